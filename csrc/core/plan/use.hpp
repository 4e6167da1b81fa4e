// One emission of an item, as the plan decides it and everybody after the plan reads it.
#pragma once

#include <cstdint>

namespace pyecho {

struct Use {
  std::uint32_t slot;
  std::uint32_t ordinal;       // 0 is the fresh use
  std::uint64_t source_index;  // number of the item in its pass over the source
  bool last;                   // no use of the item follows
};

}  // namespace pyecho
