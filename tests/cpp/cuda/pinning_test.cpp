// Pinned memory, against the stand-in driver.
#include "cuda/pinning.hpp"

#include <gtest/gtest.h>

#include "standin.h"

namespace pyecho::cuda {
namespace {

TEST(Pinning, memory_is_registered_as_long_as_it_lives) {
  const std::uint64_t before = standin_registered_ranges();
  const auto pinning = std::make_shared<Pinning>(Device::get(0), true);
  {
    const HostMemory memory(100, pinning->policy());
    EXPECT_EQ(standin_registered_ranges(), before + 1);
    EXPECT_EQ(pinning->pinned_bytes(), memory.size_bytes());
    EXPECT_EQ(pinning->failure(), "");
  }
  EXPECT_EQ(standin_registered_ranges(), before);
}

}  // namespace
}  // namespace pyecho::cuda
