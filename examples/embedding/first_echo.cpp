// first_echo.c in C++: a thread puts 1,000 numbers, the main thread takes batches. Prints "2000 rows, sum 999000".
#include <cstdint>
#include <cstdio>
#include <pyecho/pyecho.hpp>
#include <thread>

int main() {
  pyecho::Config config;
  config.leaves = {{"number", "<i8", {}}};
  config.factor = 2;
  config.batch_size = 50;
  config.shuffle_buffer = 200;
  const pyecho::Buffer buffer(config);

  std::thread producer([&] {
    for (std::int64_t number = 0; number < 1000; ++number) {
      auto slot = buffer.reserve();        // waits for room
      *slot.at<std::int64_t>(0) = number;  // read or decode straight into it
      slot.commit();
    }
    buffer.close();
  });
  std::int64_t rows = 0;
  std::int64_t sum = 0;
  while (const pyecho::Batch batch = buffer.acquire()) {
    for (std::uint32_t row = 0; row < batch.rows(); ++row) {
      sum += batch.at<std::int64_t>(0)[row];
    }
    rows += batch.rows();
  }
  producer.join();
  std::printf("%lld rows, sum %lld\n", static_cast<long long>(rows), static_cast<long long>(sum));
}
