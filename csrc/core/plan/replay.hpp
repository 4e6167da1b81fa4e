// Brings a plan to the position of a saved state. Pure arithmetic: no threads, clock or payload.
//
// A Plan follows from the lengths of the passes and the number of batches taken. So a saved state holds these few
// numbers instead of the plan, and loading it plans the batches of its segment once more without copying a row, at some
// 25 ns a use. Nothing in a state is an index that must be trusted. A position that tells of a run from its beginning,
// in passes of one length, is found by arithmetic.
//
//     Replay replay(plan, rows, position);
//     while (!replay.advance()) { ... look for Ctrl-C ... }
//     ... fill the slots of items_of() the state; those of free_slots() are free
//
// It assumes what Plan guarantees: draws do not depend on how early an item or the end of a pass is fed.
#pragma once

#include <cstdint>
#include <span>
#include <stdexcept>
#include <vector>

#include "core/plan/plan.hpp"
#include "core/sync/outcome.hpp"

namespace pyecho {

// A saved state that cannot be used.
class BadState : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

class Replay {
 public:
  // Begins `plan`, which outlives the replay, and allocates nothing yet. It needs a slot more than its capacity; with
  // feed_all also one for each item that it holds in the end. Throws BadState if the numbers of the position contradict
  // each other, or the way there takes more uses than a segment has, or many passes without items.
  Replay(Plan& plan, std::uint32_t batch_size, PlanPosition position);

  // Draws some `uses` more. Returns true once the plan stands at the position, at a batch boundary. Throws BadState if
  // there is no such position, or its decisions are not those of this input.
  [[nodiscard]] bool advance(std::uint64_t uses = 1U << 20);
  // At the position: returns the items that the plan holds, numbered as the position does: from 0 in its segment.
  [[nodiscard]] Places items() const;
  // Same, of these numbers, which are ascending. Throws BadState unless the plan holds these only; with an adaptive
  // factor it may hold more, which had left ahead of the consumer, are not used again, and are forgotten.
  [[nodiscard]] Places items_of(std::span<const std::uint64_t> numbers);

  [[nodiscard]] const Plan& plan() const noexcept { return plan_; }
  // Returns the slots without an item, after advance().
  [[nodiscard]] const std::vector<std::uint32_t>& free_slots() const noexcept { return free_; }
  // Returns the batches drawn since the last iteration, short ones included.
  [[nodiscard]] std::uint64_t batches_drawn() const noexcept { return batches_drawn_; }
  // Returns the iterations that have ended, and the uses drawn since.
  [[nodiscard]] std::uint64_t iterations() const noexcept { return iterations_; }
  [[nodiscard]] std::uint64_t uses_drawn() const noexcept { return uses_drawn_; }
  // Returns the number of passes of the run that have ended.
  [[nodiscard]] std::uint64_t passes_fed() const noexcept { return position_.segment.passes + passes_fed_; }

 private:
  static constexpr std::uint64_t kMostCounted = std::uint64_t{1} << 62;

  void begin();
  void skip_regular();
  [[nodiscard]] std::uint64_t rows_taken() const noexcept;
  void check() const;
  Outcome draw_batch();
  bool feed_next();
  void open_pass() noexcept;

  Plan& plan_;
  PlanPosition position_;
  bool by_use_;  // a batch is one use, so that several can be drawn at once
  std::uint32_t batch_size_;
  std::vector<Use> uses_;
  std::uint32_t rows_ = 0;        // of the open batch
  std::uint64_t iterations_ = 0;  // that have ended
  std::uint64_t batches_ = 0;     // of the next one, as counted
  std::uint64_t batches_drawn_ = 0;
  std::uint64_t uses_drawn_ = 0;
  std::uint64_t drawn_ = 0;
  std::uint64_t decisions_;  // of the position
  std::uint64_t first_;      // number of the first item of the position
  std::uint64_t lead_ = 0;   // uses from the first draw to the segment

  std::vector<std::uint32_t> free_;
  std::size_t run_ = 0;  // in position_.passes, which are counted down
  std::uint64_t passes_fed_ = 0;
  std::uint64_t items_left_ = 0;  // to feed in the open pass
};

}  // namespace pyecho
