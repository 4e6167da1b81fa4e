// Decides which item fills which position of which batch. Pure arithmetic: no threads, no clock, no payload.
//
// The plan deals in slot numbers. It is fed the slots of items in source order, admits items while its pool has room,
// and draws uniformly among all remaining uses of the items in the pool. An item leaves the pool with its last use, and
// the next one is admitted before the next draw. So the draws are a function of (factor, capacity, seed, epoch) and the
// number of items alone.
//
//     BatchPlan plan(config);
//     plan.begin(epoch, items);
//     plan.feed(slots of the next items);  or  plan.end_pass();  or  plan.end_input();
//     Outcome outcome = plan.draw(rows, drawn);  and after the last row of a batch  plan.end_batch();
//
// The remaining uses are an array of slot numbers, one entry for each use; a draw takes a random entry and moves the last
// one into its place. Cost of a draw: constant, whatever the capacity.
//
// Iterations. One iteration hands out as many uses as the items of one pass over the source have together, or a fixed
// number (PlanConfig::iteration_uses). Passes flow into each other: end_pass() says that the items fed so far complete
// a pass, and the items of the next one may follow while the pool still holds older ones. Only end_input() makes the
// pool drain. Iteration n draws from the random numbers of (seed, epoch + n).
//
// Not thread-safe: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/plan/echo_factor.hpp"
#include "core/plan/random.hpp"
#include "core/plan/use.hpp"
#include "core/sync/outcome.hpp"

namespace pyecho {

struct PlanConfig {
  std::uint32_t capacity = 1;  // distinct items in the pool; 1: no shuffling, the uses of an item follow each other
  std::uint32_t slots = 1;     // slot numbers are below this; at least capacity
  double factor = 2.0;         // at least 1
  std::uint64_t seed = 0;
  bool unique_in_batch = false;      // no item twice in a batch
  std::uint64_t iteration_uses = 0;  // uses of an iteration; 0: those of the items of one pass

  // Remaining uses are counted in 32 bits: capacity * ceil(factor) must stay below this.
  static constexpr std::uint64_t kMaxUses = 0xFFFFFFFFU;
};

class BatchPlan {
 public:
  // Throws std::invalid_argument if the configuration cannot be, std::bad_alloc.
  explicit BatchPlan(const PlanConfig& config);
  // Bytes that a plan of this configuration allocates. Throws as the constructor.
  [[nodiscard]] static std::size_t size_bytes(const PlanConfig& config);

  // Forgets everything and starts with iteration and pass number `epoch`. `items`: how many a pass has, if known.
  void begin(std::uint64_t epoch, std::uint64_t items);

  // -- Input, in source order --

  // The next items are in these slots. At most `slots` may be fed and not yet left the pool.
  void feed(std::span<const std::uint32_t> slots) noexcept;
  // The items fed since the last end_pass() are a pass; another one follows.
  void end_pass() { pass_ends_.push_back(fed_); }
  // As end_pass(), but nothing follows: the pool drains. False if that was known.
  bool end_input() {
    if (ended_) {
      return false;
    }
    end_pass();
    return ended_ = true;
  }

  // -- Output --

  // Draws the next uses; `drawn` of them were written to `rows` whatever is returned.
  // kOk: rows.size() of them. kEmpty: an item must be fed first (or the end). kEnd: nothing is left for this batch; if nothing was
  // drawn, the iteration is over.
  Outcome draw(std::span<Use> rows, std::uint32_t& drawn) noexcept;
  // Whether a draw would answer kOk, kEmpty or kEnd.
  Outcome ready() noexcept;
  // The next draw belongs to another batch. Matters to unique_in_batch only.
  void end_batch() noexcept;
  // Goes on to the next iteration. Requires the current one to be over.
  void next_iteration() noexcept;

  // The last iteration is over: every use of every item has been drawn, and no input can follow.
  [[nodiscard]] bool finished() const noexcept { return finished_; }
  // At least this many items must be fed before `draws` more draws, or those that the iteration has left, can be made (if
  // the input does not end). Valid after draw() or ready() answered kEmpty.
  [[nodiscard]] std::uint64_t min_items(std::uint64_t draws) const noexcept;
  // Items in the pool.
  [[nodiscard]] std::uint32_t resident() const noexcept { return resident_; }

 private:
  struct Item {
    std::uint64_t source_index;
    std::uint32_t uses_left;
    std::uint32_t uses_drawn;
  };

  [[nodiscard]] bool exhausted() const noexcept { return drains() && remaining_uses_ == 0; }
  [[nodiscard]] bool drains() const noexcept { return ended_ && admitted_ == fed_; }
  [[nodiscard]] std::uint64_t uses_left_in_iteration() const noexcept;
  [[nodiscard]] bool fill_pool() noexcept;
  void admit_next() noexcept;
  void close_passes() noexcept;
  [[nodiscard]] std::uint32_t draw_shuffled(std::span<Use> rows) noexcept;
  [[nodiscard]] std::uint32_t draw_in_order(std::span<Use> rows) noexcept;
  [[nodiscard]] std::uint32_t draw_unique(std::span<Use> rows) noexcept;
  [[nodiscard]] Use take_use(std::uint32_t slot) noexcept;

  const PlanConfig config_;
  EchoFactor factor_;
  Xoshiro256 random_{0};

  // Input
  std::vector<std::uint32_t> inbox_;      // slots of items that were fed and not admitted: a ring of config_.slots
  std::uint64_t fed_ = 0;                 // items so far
  std::uint64_t admitted_ = 0;            // items so far
  std::vector<std::uint64_t> pass_ends_;  // items fed when a pass ended, of passes that were not admitted to their end
  bool ended_ = false;
  std::uint64_t items_ = kUnknown;  // of a pass
  std::uint64_t pass_ = 0;          // the one that is being admitted
  std::uint64_t pass_begin_ = 0;    // items admitted before it
  std::uint64_t uses_ = 0;          // of all items admitted so far

  // Output
  std::uint64_t drawn_ = 0;      // uses so far
  std::uint64_t iteration_ = 0;  // its number
  bool finished_ = false;
  std::uint64_t iteration_begin_ = 0;          // uses drawn before it
  std::vector<std::uint64_t> iteration_ends_;  // uses drawn when an iteration is over, where that is known

  // The pool
  std::uint32_t resident_ = 0;
  std::uint64_t remaining_uses_ = 0;
  std::uint32_t left_ = 0;               // entries in use
  std::vector<std::uint32_t> entries_;   // slot numbers that may be drawn, one for each use
  std::vector<std::uint32_t> deferred_;  // entries that wait for the next batch; unique_in_batch only
  std::vector<Item> pool_;               // by slot
  std::uint32_t batch_ = 1;              // never 0
  std::vector<std::uint32_t>
      taken_by_;  // by slot: the last batch that took the item, modulo 2^32; unique_in_batch only
};

}  // namespace pyecho
