// Sizes of an EchoBuffer. Private to its two source files.
#pragma once

#include <cstdint>

#include "core/stage/echo_buffer.hpp"

namespace pyecho {

struct EchoBuffer::Sizes {
  std::uint32_t slots;
  std::uint32_t ahead;   // slots beyond the capacity
  std::uint32_t depth;   // maximum of batches planned and not yet taken
  std::uint32_t blocks;  // initial blocks of batches; more are added if the consumer keeps more than `held`
};

}  // namespace pyecho
