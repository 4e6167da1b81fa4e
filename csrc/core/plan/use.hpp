// One emission of an item, as decided by the plan.
#pragma once

#include <cstdint>

namespace pyecho {

struct Use {
  std::uint32_t slot;
  std::uint32_t ordinal;       // 0 is the fresh use
  std::uint64_t source_index;  // number of the item in its pass over the source
  bool last;                   // true for the last use of the item
};

}  // namespace pyecho
