// The common part of streams with both kinds of factor: input, iterations and segments. Pure arithmetic: no
// threads, no clock, no payload.
//
// A stream decides which of its items is drawn next. It works on slot numbers. It is fed the slots of items in source
// order, admits items while its pool has room, and draws uses of the items in the pool. An item leaves the pool with its
// last use, and the next one is admitted before the next draw. So the draws depend only on (factor, capacity, seed,
// epoch) and the number of items.
//
// Iterations. One iteration emits as many uses as the items of one pass over the source have together, or a fixed
// number (PlanConfig::iteration_uses). Passes flow into each other: end_pass() marks the items fed so far as a complete
// pass, and the items of the next pass may follow while the pool still holds older ones. The pool drains only after
// end_input(). Iteration n draws from the random numbers of (seed, epoch + n).
//
// Segments. At a joint (Segments) the stream admits no item until the uses of all earlier ones are drawn; then it draws
// from new random numbers. A plan may begin with any segment. If a segment begins within a batch, the first rows of
// that batch are left out: they are uses of no item.
//
// The two kinds are FixedStream and AdaptiveStream. Each has, besides the members here and for one stream what Plan
// has: draw_some(rows), which draws uses after ready() has returned kOk, and returns their number, 0 if none is left for
// this batch.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "core/plan/echo_factor.hpp"
#include "core/plan/plan_config.hpp"
#include "core/plan/segments.hpp"
#include "core/random.hpp"
#include "core/sync/outcome.hpp"

namespace pyecho {

// A queue in one vector: constant time for each element, and no allocation while it fits the memory it has had, which
// is that of 16 elements at first.
template <class T>
class Fifo {
 public:
  Fifo() { elements_.reserve(16); }

  void push_back(T element) { elements_.push_back(element); }
  [[nodiscard]] bool empty() const noexcept { return front_ == elements_.size(); }
  [[nodiscard]] std::size_t size() const noexcept { return elements_.size() - front_; }
  [[nodiscard]] const T& front() const noexcept { return elements_[front_]; }
  void pop_front() noexcept {
    if (++front_ > size()) {  // at most as many elements move as were popped since the last time
      elements_.erase(elements_.begin(), elements_.begin() + static_cast<std::ptrdiff_t>(front_));
      front_ = 0;
    }
  }
  void clear() noexcept {
    elements_.clear();
    front_ = 0;
  }

 private:
  std::vector<T> elements_;
  std::size_t front_ = 0;  // elements before it were popped
};

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

// The end of a segment (Segments): no item is taken beyond it before the uses of earlier ones are drawn.
struct Joint {
  std::uint64_t fed;    // items before it
  std::uint64_t pass;   // number of the open pass
  std::uint64_t parts;  // joints in that pass, this one included; 0: it is at its beginning
};

class Stream {
 public:
  // A segment that is remembered, once it has begun: by the first draw after its joint.
  struct Begun {
    Crossing at;
    std::uint64_t drawn;  // uses before it
  };

  [[nodiscard]] Stream& shared() noexcept { return *this; }
  [[nodiscard]] const Stream& shared() const noexcept { return *this; }

  // -- Input, in source order --

  void feed(std::uint32_t slot) noexcept {
    assert(fed_ - taken_ < slots_.size());
    slots_[next_fed_] = slot;
    next_fed_ = after(next_fed_);
    ++fed_;
  }
  void end_pass() { ends_.push_back(fed_); }
  // A segment ends after the items fed so far, in this pass.
  void end_segment(std::uint64_t pass, std::uint64_t parts) {
    joints_.push_back({.fed = fed_, .pass = pass, .parts = parts});
  }
  void end_input() {
    end_pass();
    ended_ = true;
  }
  // True once no item follows those fed.
  [[nodiscard]] bool ended() const noexcept { return ended_; }
  // Calls visit(slot) for every item that was fed and is not in the pool yet.
  template <class Visit>
  void each_waiting(const Visit& visit) const {
    std::size_t at = next_taken_;
    for (std::uint64_t item = taken_; item < fed_; ++item, at = after(at)) {
      visit(slots_[at]);
    }
  }

  // -- Output --

  // See Plan::draw(). `stream`: this.
  template <class Kind>
  Outcome draw_by(Kind& stream, std::span<Use> rows, std::uint32_t& drawn, bool awaited) {
    for (drawn = 0; drawn < rows.size();) {
      if (const Outcome outcome = stream.ready(awaited); outcome != Outcome::kOk) {
        return outcome;
      }
      // An iteration whose end is unknown has at least as many uses left as the pool holds.
      const std::uint64_t most = std::min<std::uint64_t>(rows.size() - drawn, uses_left_in_iteration());
      const std::span<Use> next = rows.subspan(drawn, most);
      const std::uint32_t got = lead_ > 0 ? draw_lead(next) : stream.draw_some(next);
      if (got == 0) {
        return Outcome::kEnd;
      }
      if (!passes_.empty()) {
        std::ranges::for_each(next.first(got), [this](Use& use) { use.pass = passes_[use.slot]; });
      }
      drawn_ += got;
      drawn += got;
    }
    return Outcome::kOk;
  }
  [[nodiscard]] bool finished() const noexcept { return finished_; }
  // Returns the uses drawn so far.
  [[nodiscard]] std::uint64_t drawn() const noexcept { return drawn_; }
  // Returns the segments that are remembered, the oldest first.
  [[nodiscard]] const std::vector<Begun>& segments() const noexcept { return segments_; }
  // Forgets the oldest, once the plan has.
  void forget_begun() noexcept { segments_.erase(segments_.begin()); }

 protected:
  // `config`: of this stream, checked. Throws std::bad_alloc.
  explicit Stream(const PlanConfig& config)
      : config_(config),
        factor_(config.factor, config.even_factor, config.part),
        slots_(config.slots),
        passes_(config.tells_passes ? config.slots : 0) {
    segments_.reserve(kSegments);
  }

  void begin_at(const StreamBegin& from, const Extent& extent) noexcept {
    fed_ = taken_ = 0;
    next_fed_ = next_taken_ = 0;
    pass_begin_ = 0 - from.items;
    ends_.clear();
    joints_.clear();
    ended_ = false;
    extent_ = extent;
    pass_ = from.epoch + from.passes;
    factor_.begin_pass(config_.seed, pass_, extent_.items, extent_.uses);
    factor_.skip(from.items, from.at.more);
    is_known_ = from.passes > 0 || from.parts > 0;
    if (is_known_) {
      end_segment(pass_, from.parts);
    }
    drawn_ = 0;
    lead_ = from.lead;
    ends_over_ = from.iterations - std::min(from.iterations, from.passes);
    segments_.assign(1, {.at = from.at, .drawn = lead_});
    iteration_ends_.clear();
    epoch_ = from.epoch;
    iteration_ = from.epoch + from.iterations;
    finished_ = false;
    begin_iteration(from.uses);
  }

  // -- Input --

  [[nodiscard]] bool has_item() const noexcept { return taken_ < fed_; }
  // True if all items of the open pass are taken, and it ends there.
  [[nodiscard]] bool at_pass_end() const noexcept { return !ends_.empty() && ends_.front() == taken_; }
  // True if the next item to take belongs to the next segment.
  [[nodiscard]] bool at_joint() const noexcept { return !joints_.empty() && joints_.front().fed == taken_; }
  // Same, and the end of each pass before the joint is closed.
  [[nodiscard]] bool may_cross() const noexcept { return at_joint() && joints_.front().pass <= pass_; }
  // True once no item is left to take, or to come.
  [[nodiscard]] bool drained() const noexcept { return ended_ && taken_ == fed_; }
  // Same, and no end of a pass either.
  [[nodiscard]] bool over() const noexcept { return ended_ && ends_.empty(); }
  [[nodiscard]] Item take() noexcept {
    const Item item{.slot = slots_[next_taken_], .source_index = taken_++ - pass_begin_, .uses = factor_.next()};
    next_taken_ = after(next_taken_);
    if (!passes_.empty()) {
      passes_[item.slot] = static_cast<std::uint32_t>(pass_);
    }
    return item;
  }
  void close_pass() noexcept {
    ends_.pop_front();
    pass_begin_ = taken_;
    factor_.begin_pass(config_.seed, ++pass_, extent_.items, extent_.uses);
  }

  // -- Output --

  // Returns true if no use of the iteration is drawn.
  [[nodiscard]] bool at_iteration_begin() const noexcept { return drawn_ == begun_; }
  [[nodiscard]] std::uint64_t uses_left_in_iteration() const noexcept {
    return iteration_ends_.empty() ? kUnknown : iteration_ends_.front() - drawn_;
  }
  // At a joint, once no use of earlier items is left: goes on with the next segment, and returns the joint. If several
  // segments begin here, the last one decides. An iteration that is one pass has its random numbers already, if the
  // segment begins with it.
  Joint cross() {
    Joint joint{};
    while (may_cross()) {
      joint = joints_.front();
      joints_.pop_front();
      if (!std::exchange(is_known_, false)) {
        const std::uint64_t uses = drawn_ - begun_;
        segments_.push_back(
            {.at = {.iterations = iteration_ - epoch_, .uses = uses, .more = factor_.given()}, .drawn = drawn_});
      }
    }
    if (config_.iteration_uses > 0 || joint.parts > 0 || config_.adaptive()) {
      const std::uint64_t key = stream_key(config_.seed, joint.pass, Draws::kSegment);
      random_ = RandomAhead(mix64(key + joint.parts * kGoldenGamma));
    }
    return joint;
  }
  // `exhausted`: no use is left, and none can follow.
  void next_iteration(bool exhausted) noexcept {
    if (!iteration_ends_.empty()) {
      iteration_ends_.pop_front();
    }
    finished_ = exhausted && iteration_ends_.empty();
    ++iteration_;
    begin_iteration(0);
  }

  const PlanConfig config_;
  EchoFactor factor_;  // of the open pass
  RandomAhead random_{0};
  std::uint64_t epoch_ = 0;             // the first one
  std::uint64_t fed_ = 0;               // items so far
  std::uint64_t taken_ = 0;             // of these
  Fifo<Joint> joints_;                  // that are not crossed
  std::uint64_t lead_ = 0;              // uses of no item to draw first
  std::uint64_t ends_over_ = 0;         // ends of passes whose iterations are over
  std::uint64_t drawn_ = 0;             // uses so far
  Fifo<std::uint64_t> iteration_ends_;  // value of drawn_ at the end of each iteration with a known end

 private:
  static constexpr std::size_t kSegments = 16;  // more are allocated on demand

  [[nodiscard]] std::size_t after(std::size_t place) const noexcept {
    return place + 1 == slots_.size() ? 0 : place + 1;
  }
  // An iteration of a fixed number of uses has a known end; others end where their pass does.
  void begin_iteration(std::uint64_t uses) noexcept {
    begun_ = drawn_ - uses;
    if (config_.iteration_uses > 0) {
      iteration_ends_.push_back(begun_ + config_.iteration_uses);
    }
    random_ = RandomAhead(stream_key(config_.seed, iteration_, Draws::kDraw));
  }
  [[nodiscard]] std::uint32_t draw_lead(std::span<Use> rows) noexcept {
    const auto drawn = static_cast<std::uint32_t>(std::min<std::uint64_t>(rows.size(), lead_));
    std::ranges::fill(rows.first(drawn), Use{.slot = 0, .ordinal = 0, .source_index = 0, .last = false, .pass = 0});
    lead_ -= drawn;
    return drawn;
  }

  Extent extent_;
  std::vector<std::uint32_t> slots_;   // a ring of the items fed and not taken
  std::vector<std::uint32_t> passes_;  // by slot; empty: not told
  std::size_t next_fed_ = 0;           // in slots_
  std::size_t next_taken_ = 0;         // likewise
  Fifo<std::uint64_t> ends_;           // value of fed_ at the end of each pass that is not closed
  bool ended_ = false;
  std::uint64_t pass_ = 0;        // number of the open pass
  std::uint64_t pass_begin_ = 0;  // items taken before it
  std::uint64_t iteration_ = 0;   // its number
  std::uint64_t begun_ = 0;       // value of drawn_ at its beginning
  bool finished_ = false;
  bool is_known_ = false;  // the next joint is the beginning of the first segment
  std::vector<Begun> segments_;
};

}  // namespace pyecho
