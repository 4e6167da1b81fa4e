// Decides which item of a stream is drawn next. Pure arithmetic: no threads, no clock, no payload.
//
// A stream works on slot numbers. It is fed the slots of items in source order (Input), admits items while its pool has
// room, and draws uses of the items in the pool. An item leaves the pool with its last use, and the next one is
// admitted before the next draw. So the draws depend only on (factor, capacity, seed, epoch) and the number of items.
//
// Iterations. One iteration emits as many uses as the items of one pass over the source have together, or a fixed
// number (PlanConfig::iteration_uses). Passes flow into each other: end_pass() marks the items fed so far as a complete
// pass, and the items of the next pass may follow while the pool still holds older ones. The pool drains only after
// end_input(). Iteration n draws from the random numbers of (seed, epoch + n).
//
// Segments. At a joint (Segments) the stream admits no item until the uses of all earlier ones are drawn; then it draws
// from new random numbers. A plan may begin with any segment. If a segment begins within a batch, the first rows of
// that batch are left out: draw() fills them with uses of no item.
//
// Two kinds of factor are two kinds of stream: FixedStream (fixed_stream.hpp) and AdaptiveStream (adaptive_stream.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/plan/fifo.hpp"
#include "core/plan/input.hpp"
#include "core/plan/plan_config.hpp"
#include "core/plan/segments.hpp"
#include "core/random.hpp"
#include "core/sync/outcome.hpp"

namespace pyecho {

// Where a stream begins.
struct StreamBegin {
  std::uint64_t epoch = 0;   // of the first pass and iteration of the run
  std::uint64_t passes = 0;  // that have ended
  std::uint64_t items = 0;   // of the next one, before this
  std::uint64_t parts = 0;   // see Segment
  Crossing at{};             // of the segment that begins here
  // The place of the first draw, before that or there.
  std::uint64_t iterations = 0;
  std::uint64_t uses = 0;  // of the next iteration
  std::uint64_t lead = 0;  // uses from there to the segment, of no item
};

class Stream {
 public:
  virtual ~Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // The members below are those of Plan, for one stream. begin() throws std::invalid_argument also if there is no such
  // pass, or its uses in the pool cannot be counted.
  virtual void begin(const StreamBegin& from, const Extent& extent);

  // -- Input, in source order --

  void feed(std::uint32_t slot) noexcept { input_.feed(slot); }
  void end_pass() { input_.end_pass(); }
  void end_input() { input_.end(); }
  // A segment ends here.
  void end_segment(std::uint64_t pass, std::uint64_t parts) { input_.end_segment(pass, parts); }
  [[nodiscard]] bool ended() const noexcept { return input_.ended(); }

  // -- Output --

  Outcome draw(std::span<Use> rows, std::uint32_t& drawn, bool awaited);
  virtual Outcome ready(bool awaited) = 0;
  virtual void end_batch() noexcept = 0;
  virtual void next_iteration() noexcept;

  [[nodiscard]] bool finished() const noexcept { return finished_; }
  [[nodiscard]] virtual std::uint64_t min_items(std::uint64_t draws) const noexcept = 0;
  [[nodiscard]] virtual std::uint32_t resident() const noexcept = 0;
  // Returns true if the item in this slot is in the pool.
  [[nodiscard]] virtual bool holds(std::uint32_t slot) const noexcept = 0;
  // Returns where the segments that are remembered begin, the oldest first, as far as they have begun: by the first draw
  // after their joints.
  [[nodiscard]] const std::vector<Crossing>& crossings() const noexcept { return crossings_; }
  // Returns the uses drawn since the segment of this number among them began.
  [[nodiscard]] std::uint64_t drawn_since(std::size_t number) const noexcept { return drawn_ - crossed_at_[number]; }
  // Forgets the oldest.
  virtual void forget_crossing() noexcept {
    crossings_.erase(crossings_.begin());
    crossed_at_.erase(crossed_at_.begin());
  }
  // Calls visit(slot) for every item that was fed and is not drawn to its last use.
  template <class Visit>
  void each_slot(const Visit& visit) const {
    for (std::uint32_t slot = 0; slot < config_.slots; ++slot) {
      if (holds(slot)) {
        visit(slot);
      }
    }
    input_.each_slot(visit);
  }

 protected:
  // `config`: of this stream, checked. Throws std::bad_alloc.
  explicit Stream(const PlanConfig& config) : config_(config), input_(config) {
    crossings_.reserve(kCrossings);
    crossed_at_.reserve(kCrossings);
  }

  // Returns the number of the first epoch.
  [[nodiscard]] std::uint64_t epoch() const noexcept { return epoch_; }
  // Returns true if no use of the iteration is drawn.
  [[nodiscard]] bool at_iteration_begin() const noexcept { return drawn_ == begun_; }
  [[nodiscard]] std::uint64_t uses_left_in_iteration() const noexcept {
    return iteration_ends_.empty() ? kUnknown : iteration_ends_.front() - drawn_;
  }

  // At a joint, once no use of earlier items is left: goes on with the next segment, and returns the joint.
  Joint cross();

  const PlanConfig config_;
  Input input_;
  Xoshiro256 random_{0};
  std::uint64_t lead_ = 0;              // uses of no item to draw first
  std::uint64_t ends_over_ = 0;         // ends of passes whose iterations are over
  std::uint64_t drawn_ = 0;             // uses so far
  Fifo<std::uint64_t> iteration_ends_;  // value of drawn_ at the end of each iteration with a known end

 private:
  // Draws uses into `rows`, after ready() has returned kOk. Returns their number, 0 if none is left for this batch.
  [[nodiscard]] virtual std::uint32_t draw_some(std::span<Use> rows) = 0;
  // True once no use is left, and none can follow.
  [[nodiscard]] virtual bool exhausted() const noexcept = 0;
  void begin_iteration(std::uint64_t uses) noexcept;
  [[nodiscard]] std::uint32_t draw_lead(std::span<Use> rows) noexcept;

  static constexpr std::size_t kCrossings = 16;  // more are allocated on demand

  std::uint64_t epoch_ = 0;
  std::uint64_t iteration_ = 0;  // its number
  std::uint64_t begun_ = 0;      // value of drawn_ at its beginning
  bool finished_ = false;
  bool is_known_ = false;  // the next joint is the beginning of the first segment
  std::vector<Crossing> crossings_;
  std::vector<std::uint64_t> crossed_at_;  // value of drawn_ at each
};

}  // namespace pyecho
