// The same without Python: tar_echo HEIGHT WIDTH THREADS FACTOR SHARD... prints what a training loop would see.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>
#include <thread>

#include "tar_shards.hpp"

int main(int argc, char** argv) {
  if (argc < 6) {
    std::fprintf(stderr, "usage: tar_echo HEIGHT WIDTH THREADS FACTOR SHARD...\n");
    return 2;
  }
  try {
    const int height = std::atoi(argv[1]);
    const int width = std::atoi(argv[2]);
    const TarShards shards({argv + 5, argv + argc}, height, width, std::atoi(argv[3]));
    pyecho::Config config;
    config.leaves = shards.leaves();
    config.factor = std::atof(argv[4]);
    config.batch_size = 16;
    config.shuffle_buffer = 64;
    const pyecho::Buffer buffer(config);

    std::thread feeder([&] {
      try {
        shards.feed(buffer);
        buffer.close();
      } catch (const std::exception& error) {
        buffer.fail(error.what());
      }
    });
    std::uint64_t rows = 0;
    std::uint64_t labels = 0;
    const auto begin = std::chrono::steady_clock::now();
    std::exception_ptr failure;
    try {
      while (const pyecho::Batch batch = buffer.acquire()) {
        for (std::uint32_t row = 0; row < batch.rows(); ++row) {
          const std::int64_t label = batch.at<std::int64_t>(1)[row];
          if (label < 0) {
            throw std::runtime_error("a label is " + std::to_string(label) + ", and classes are 0, 1, ...");
          }
          labels += static_cast<std::uint64_t>(label);
        }
        rows += batch.rows();
      }
    } catch (...) {
      failure = std::current_exception();
      buffer.stop();  // else the feeder would wait for room for ever
    }
    feeder.join();
    if (failure) {
      std::rethrow_exception(failure);
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    std::printf("%llu rows, sum of labels %llu, %.0f images decoded per second\n",
                static_cast<unsigned long long>(rows), static_cast<unsigned long long>(labels),
                static_cast<double>(buffer.stats().fresh) / seconds);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tar_echo: %s\n", error.what());
    return 1;
  }
  return 0;
}
