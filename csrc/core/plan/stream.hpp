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
// Two kinds of factor are two kinds of stream: FixedStream (fixed_stream.hpp) and AdaptiveStream (adaptive_stream.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/plan/fifo.hpp"
#include "core/plan/input.hpp"
#include "core/plan/plan_config.hpp"
#include "core/random.hpp"
#include "core/sync/outcome.hpp"

namespace pyecho {

class Stream {
 public:
  virtual ~Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // The members below are those of Plan, for one stream. begin() throws std::invalid_argument also if there is no such
  // pass, or its uses in the pool cannot be counted.
  virtual void begin(std::uint64_t epoch, const Extent& extent);

  // -- Input, in source order --

  void feed(std::uint32_t slot) noexcept { input_.feed(slot); }
  void end_pass() { input_.end_pass(); }
  void end_input() { input_.end(); }
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
  explicit Stream(const PlanConfig& config) : config_(config), input_(config) {}

  [[nodiscard]] std::uint64_t uses_left_in_iteration() const noexcept {
    return iteration_ends_.empty() ? kUnknown : iteration_ends_.front() - drawn_;
  }

  const PlanConfig config_;
  Input input_;
  Xoshiro256 random_{0};
  std::uint64_t drawn_ = 0;             // uses so far
  Fifo<std::uint64_t> iteration_ends_;  // value of drawn_ at the end of each iteration with a known end

 private:
  // Draws uses into `rows`, after ready() has returned kOk. Returns their number, 0 if none is left for this batch.
  [[nodiscard]] virtual std::uint32_t draw_some(std::span<Use> rows) = 0;
  // True once no use is left, and none can follow.
  [[nodiscard]] virtual bool exhausted() const noexcept = 0;
  void begin_iteration() noexcept;

  std::uint64_t iteration_ = 0;  // its number
  bool finished_ = false;
};

}  // namespace pyecho
