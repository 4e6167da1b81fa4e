// pyecho.hpp: what it adds to the C interface.
#include <gtest/gtest.h>

#include <thread>

#include "calls.hpp"
#include "pyecho/pyecho.hpp"

namespace pyecho::capi_tests {
namespace {

pyecho::Config cpp_config() {
  pyecho::Config config;
  config.leaves = {{.name = "number", .dtype = "<i8", .shape = {}}};
  config.batch_size = 2;
  config.shuffle_buffer = 4;
  return config;
}

TEST(Wrapper, ABorrowedBufferOfNullIsAnError) {
  try {
    static_cast<void>(pyecho::Buffer::borrowed(nullptr));
    FAIL();
  } catch (const pyecho::Error& error) {
    EXPECT_EQ(error.status(), PYECHO_INVALID);
    EXPECT_NE(std::string(error.what()).find("null"), std::string::npos);
  }
}

TEST(Wrapper, PutsTakesSavesAndLoads) {
  const pyecho::Buffer buffer(cpp_config());
  const pyecho::Buffer same = pyecho::Buffer::borrowed(buffer.handle());
  for (std::int64_t number = 0; number < 3; ++number) {
    auto slot = same.reserve();
    ASSERT_TRUE(slot);
    *slot.at<std::int64_t>(0) = number;
    slot.commit();
  }
  buffer.close();
  std::uint64_t taken = 0;
  const std::vector<unsigned char> state = buffer.save(&taken);
  EXPECT_EQ(taken, 3U);
  const auto rows_of = [](const pyecho::Buffer& from) {
    std::vector<std::int64_t> rows;
    while (const pyecho::Batch batch = from.acquire()) {
      rows.insert(rows.end(), batch.at<std::int64_t>(0), batch.at<std::int64_t>(0) + batch.rows());
    }
    const pyecho::Batch end = from.acquire();
    EXPECT_EQ(end.status(), PYECHO_END);
    EXPECT_EQ(end.end(), PYECHO_END_LAST);
    return rows;
  };
  const pyecho::Buffer other(cpp_config());
  other.load(state);
  EXPECT_FALSE(other.reserve());  // its input has ended
  EXPECT_EQ(rows_of(other), rows_of(buffer));
}

}  // namespace
}  // namespace pyecho::capi_tests
