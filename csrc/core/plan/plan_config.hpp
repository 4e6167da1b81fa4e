// Input and output of a plan: its configuration, and the uses that it draws.
#pragma once

#include <cstdint>

#include "core/plan/decision_log.hpp"
#include "core/plan/echo_factor.hpp"

namespace pyecho {

// One emission of an item.
struct Use {
  std::uint32_t slot;
  std::uint32_t ordinal;       // 0 is the fresh use; ~n: additional use n, see Extent
  std::uint64_t source_index;  // number of the item in its pass over the source
  bool last;                   // true for the last use of the item

  [[nodiscard]] bool additional() const noexcept { return ordinal > 0x7FFFFFFFU; }
};

struct PlanConfig {
  std::uint32_t capacity = 1;  // distinct items in the pool; 1: no shuffling, uses of an item are consecutive
  std::uint32_t slots = 1;     // slot numbers are below this; at least capacity
  double factor = 2.0;         // at least 1
  std::uint64_t seed = 0;
  bool unique_in_batch = false;      // no item twice in a batch
  std::uint64_t iteration_uses = 0;  // uses of an iteration; 0: all uses of one pass
  bool even_factor = false;          // see EchoFactor

  // The streams whose uses are drawn in turn (InterleavedPlan), and their numbers in a run of several ranks.
  std::uint32_t streams = 1;
  std::uint64_t first_stream = 0;
  std::uint64_t stream_step = 1;  // stream i is number first_stream + i * stream_step

  // An adaptive factor: each item has at least min_uses and at most `factor` uses, as many as the source's speed makes
  // necessary (AdaptivePool).
  std::uint32_t min_uses = 0;    // 0: the factor is fixed
  std::uint64_t max_age = 0;     // batches after which an item leaves the pool, once it has had min_uses; 0: none
  std::uint32_t batch_rows = 1;  // at most capacity
  DecisionLog replay = {};       // decisions to take again, as far as they go

  [[nodiscard]] bool adaptive() const noexcept { return min_uses > 0; }
  // True if the plan takes what several ranks have agreed on (Schedule).
  [[nodiscard]] bool joint() const noexcept { return adaptive() && stream_step > 1; }

  // Remaining uses are counted in 32 bits: capacity * ceil(factor) must stay below this.
  static constexpr std::uint64_t kMaxUses = 0xFFFFFFFFU;
};

// How far a plan goes from one begin() to the next. With `total_uses`, a plan whose pool has drained goes on with
// additional uses of the items that were in the pool when the input ended, in rounds of one for each, until so many uses
// are drawn. A plan that begins with 0 items takes the items it is fed all the same, and all their uses are additional.
// In a joint plan the uses of all items of a pass beyond `items` are additional.
struct Extent {
  std::uint64_t items = kUnknown;    // of a pass
  std::uint64_t iteration_uses = 0;  // uses of an iteration; 0: PlanConfig::iteration_uses; kUnknown: it has no end
  std::uint64_t total_uses = 0;      // 0: no additional uses; kUnknown: without end

  [[nodiscard]] bool padded() const noexcept { return total_uses > 0; }
};

// How many uses a plan draws before only additional ones are left, and how many it had drawn, at most, when that was known.
// Both follow from the input, not from time. kUnknown as long as they are not known.
struct OwnUses {
  std::uint64_t count = kUnknown;
  std::uint64_t known_after = kUnknown;
};

}  // namespace pyecho
