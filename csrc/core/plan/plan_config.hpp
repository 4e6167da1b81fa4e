// Input and output of a plan: its configuration, and the uses that it draws.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "core/plan/echo_factor.hpp"

namespace pyecho {

// One emission of an item.
struct Use {
  std::uint32_t slot;
  std::uint32_t ordinal;       // 0 is the fresh use
  std::uint64_t source_index;  // number of the item in its pass over the source
  bool last;                   // true for the last use of the item
  std::uint32_t pass;          // of the item, modulo 2^32; if PlanConfig::tells_passes
};

// An item on its way into a pool.
struct Item {
  std::uint32_t slot;
  std::uint64_t source_index;  // in its pass
  std::uint32_t uses;          // with an adaptive factor: at most
};

// The decisions of an adaptive factor: for each batch the number of events (items, ends of passes) taken before it.
using Decisions = std::vector<std::uint32_t>;

// A segment of any run.
struct SegmentName {
  std::uint64_t epoch = 0;  // the first of passes that flow into each other
  std::uint64_t pass = 0;   // in which it begins; the first one is `epoch`
  std::uint64_t parts = 0;  // see Segment
  auto operator<=>(const SegmentName&) const = default;
};

using DecisionLog = std::map<SegmentName, Decisions>;

// Of a plan that has diverged from the decisions to take again.
inline constexpr const char* kOtherLog =
    "the log is not that of this run: the pool cannot take as many items before a batch as the log says; replay needs "
    "the source, the options, the seed and the epochs of the run that made the log";

struct PlanConfig {
  std::uint32_t capacity = 1;  // distinct items in the pool; 1: no shuffling, uses of an item are consecutive
  std::uint32_t slots = 1;     // slot numbers are below this; at least capacity
  double factor = 2.0;         // at least 1
  std::uint64_t seed = 0;
  bool unique_in_batch = false;      // no item twice in a batch
  bool tells_passes = false;         // uses have the number of the item's pass
  std::uint64_t iteration_uses = 0;  // uses of an iteration; 0: all uses of one pass
  bool even_factor = false;          // see EchoFactor
  std::uint64_t segment_uses = 0;    // of a stream in a segment, for tests; 0: as Segments says
  std::uint64_t part = kUnknown;     // of one stream: Segments::part()

  // The streams whose uses are drawn in turn (Plan), and their numbers in a run of several ranks.
  std::uint32_t streams = 1;
  std::uint64_t first_stream = 0;
  std::uint64_t stream_step = 1;  // stream i is number first_stream + i * stream_step

  // An adaptive factor: each item has at least min_uses and at most `factor` uses, as many as the source's speed makes
  // necessary (AdaptiveStream).
  std::uint32_t min_uses = 0;    // 0: the factor is fixed
  std::uint64_t max_age = 0;     // batches after which an item leaves the pool, once it has had min_uses; 0: none
  std::uint32_t batch_size = 1;  // at most capacity
  // Decisions to take again, as far as they go.
  std::shared_ptr<const DecisionLog> replay = std::make_shared<const DecisionLog>();

  [[nodiscard]] bool adaptive() const noexcept { return min_uses > 0; }

  // Remaining uses are counted in 32 bits: capacity * ceil(factor), and the uses that a pass has in the pool, must stay
  // below this.
  static constexpr std::uint64_t kMaxUses = 0xFFFFFFFFU;
};

// Extent of every pass, known when a plan begins. Known uses need known items, and are at least as many. A pass has the
// factor uses / items then, in place of the configured one (EchoFactor).
struct Extent {
  std::uint64_t items = kUnknown;  // of a pass
  std::uint64_t uses = kUnknown;   // of a pass; kUnknown: as the configured factor says
};

}  // namespace pyecho
