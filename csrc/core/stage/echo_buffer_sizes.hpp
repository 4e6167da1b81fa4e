// How much of everything an EchoBuffer has. Private to its two source files.
#pragma once

#include <cstdint>

#include "core/stage/echo_buffer.hpp"

namespace pyecho {

struct EchoBuffer::Sizes {
  std::uint32_t slots;
  std::uint32_t ahead;   // of the slots, those that the pool does not need
  std::uint32_t depth;   // batches planned and not yet taken, at most
  std::uint32_t blocks;  // of batches, before the consumer keeps more than it said
};

}  // namespace pyecho
