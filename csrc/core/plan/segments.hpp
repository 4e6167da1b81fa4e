// Segments: parts of a run that can be planned without the ones before, so that a resume plans the running one only.
//
// At a joint, the end of a segment, the pool takes no new item until the old ones are spent; then the next segment
// begins as a run does. Its items may be fed long before. Where joints are depends on the input alone:
//
// - at the first end of a pass after as many items of a stream as have PlanConfig::segment_uses uses, and
// - within a longer pass, after each multiple of that number.
//
// So they are the same for every stream of a run, however the streams are dealt to ranks, and for any draws. With
// unique_in_batch a pool that drains makes short batches, so joints are only at ends of passes, where iterations end
// too, and nowhere if iterations have a fixed number of uses.
//
// With an adaptive factor an item counts with its most uses. AdaptiveStream says how the pool drains. The uses before a
// joint follow from its decisions, so a position tells of its segment, and each segment has decisions of its own. If the
// least uses are one, the last old items are in one batch, once each, so unique_in_batch allows joints anywhere; if they
// are more, there are none.
#pragma once

#include <cstdint>
#include <vector>

#include "core/plan/plan_config.hpp"

namespace pyecho {

// Where a stream has drawn all uses of earlier segments.
struct Crossing {
  std::uint64_t iterations;  // that have ended since the run began
  std::uint64_t uses;        // of the next iteration
  std::uint64_t more;        // items so far, of the open pass, that got one more use (EchoFactor)
};

// The beginning of a segment.
struct Segment {
  std::uint64_t passes = 0;         // that have ended since the run began
  std::uint64_t items = 0;          // of the next pass, before the segment
  std::uint64_t parts = 0;          // joints in that pass so far
  std::uint64_t taken = 0;          // items since the run began
  bool alike = true;                // all passes so far had as many items as told
  std::vector<Crossing> streams{};  // of each stream; none: the run begins here
};

// Places of the joints in the input of a plan.
class Segments {
 public:
  // `config`: of the whole plan, checked.
  explicit Segments(const PlanConfig& config) noexcept;

  // True if there are any in a pass without end.
  [[nodiscard]] bool bounded() const noexcept { return any() && within_; }
  // Then returns a number that the uses of a segment in all streams stay below, where an item has `factor` on average.
  [[nodiscard]] double most_uses(double factor) const noexcept;
  // Returns the items of a stream in a segment within a pass, or kUnknown: there is none.
  [[nodiscard]] std::uint64_t part() const noexcept { return within_ ? items_ : kUnknown; }

  // Begins after so many joints in a pass. `extent`: of all streams together.
  void begin(const Extent& extent, std::uint64_t parts) noexcept;
  // Returns the number of items of the open pass before the next joint in it, or kUnknown.
  [[nodiscard]] std::uint64_t next() const noexcept { return next_; }
  // Goes on after that joint.
  void enter_part() noexcept;
  // Ends a pass. Returns true if a joint is there.
  [[nodiscard]] bool end_pass(std::uint64_t items) noexcept;
  // Returns the number of joints in the open pass so far.
  [[nodiscard]] std::uint64_t parts() const noexcept { return parts_; }

  // Returns the beginning of the last segment that begins before so many iterations and rows of the next one, or of one
  // not far before, in a run whose passes all have `items` items.
  [[nodiscard]] Segment before(const PlanConfig& config, std::uint64_t epoch, const Extent& extent, std::uint64_t items,
                               std::uint64_t iterations, std::uint64_t rows) const;

 private:
  [[nodiscard]] bool any() const noexcept { return items_ != kUnknown; }
  void find_next() noexcept;
  [[nodiscard]] std::uint64_t items_of_pass(std::uint64_t items) const noexcept;

  double factor_;
  std::uint64_t streams_;
  std::uint64_t items_ = kUnknown;  // of a stream, in a segment within a pass
  bool within_;                     // joints may be within a pass
  std::uint64_t told_ = kUnknown;   // items of a pass, for each stream, as its uses tell
  std::uint64_t since_ = 0;         // items of a stream in the segment, in earlier passes
  std::uint64_t first_ = 0;         // joints in the open pass before the segment
  std::uint64_t parts_ = 0;
  std::uint64_t next_ = kUnknown;
};

// Returns how many of the first `rows` rows belong to one of the streams, which have them in turn.
[[nodiscard]] inline std::uint64_t share_of(std::uint64_t rows, std::uint64_t stream, std::uint64_t streams) noexcept {
  return rows > stream ? (rows - stream - 1) / streams + 1 : 0;
}

// Returns true if all streams have drawn their uses of earlier segments within so many rows of an iteration.
[[nodiscard]] bool begins_within(const Segment& segment, std::uint64_t iterations, std::uint64_t rows) noexcept;

}  // namespace pyecho
