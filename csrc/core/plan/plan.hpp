// Decides which item fills which row of which batch: the streams of a rank, one use from each in turn. Pure arithmetic:
// no threads, no clock, no payload.
//
//     item j of a pass ──▶ stream j mod k ──▶ pool, draws ──▶ use t comes from stream t mod k
//
// A run over several ranks is made of V streams, dealt to R ranks as k = V / R each (PlanConfig). Since each stream has
// draws of its own, the same uses leave for any R that divides V, and rows r, r + R, ... of the global batch are those
// of rank r. Else there is one stream, and this class only numbers its items.
//
//     Plan plan(config);
//     plan.begin(epoch, extent);
//     plan.feed(slot of the next item);  or  plan.end_pass();  or  plan.end_input();
//     Outcome outcome = plan.draw(rows, drawn);  and after the last row of a batch  plan.end_batch();
//
// A plan is a function of its configuration, the first epoch, its extent and the lengths of the passes, so where it
// stood is saved as a few numbers and found again by replaying it (replay.hpp), from the beginning of the segment
// (segments.hpp). For that it numbers the items of a run, from 0.
//
// With several streams, items wait for their stream while others draw, so PlanConfig::slots has room for more of them
// (waiting_slots(), whose bound is proved in csrc/core/memory_model.md).
//
// A stream draws its part of the rows at once, as far as it needs no input; the uses wait until their turns. So it asks
// for input in its turn only, and the bound holds.
//
// Not thread-safe: one thread at a time, except for number_of() a slot not yet released.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "core/plan/adaptive_stream.hpp"
#include "core/plan/fixed_stream.hpp"
#include "core/plan/segments.hpp"

namespace pyecho {

// Several passes of equal length, one after the other. A run may read a short source millions of times.
struct PassRun {
  std::uint64_t passes;
  std::uint64_t items;  // of each
};

// The position of a saved run. Plan::position() gives the input; the stage, which counts the output, adds that.
struct PlanPosition {
  std::uint64_t epoch = 0;  // the first one
  Extent extent{};          // as passed to Plan::begin()
  Segment segment{};        // that is planned first
  // The input.
  std::vector<PassRun> passes{};  // that have ended since then: all items of each
  std::uint64_t open_items = 0;   // known of the next pass
  bool ended = false;             // no pass follows those in `passes`
  Decisions decisions{};          // of an adaptive factor, those ahead of the consumer included
  bool feed_all = false;          // feed everything; else only what the batches taken need
  // Output taken by the consumer since the run began.
  std::uint64_t iterations = 0;  // to their ends
  std::uint64_t batches = 0;     // of the next iteration
  std::uint32_t min_rows = 1;    // shorter batches are not counted in `batches`
  std::uint64_t ahead = 0;       // batches of these that the last of the consumers, whose segment it is, has not taken

  // Returns the number of items in the input, since the run began.
  [[nodiscard]] std::uint64_t taken() const noexcept {
    std::uint64_t items = segment.taken - segment.items + open_items;
    for (const PassRun& run : passes) {
      items += run.passes * run.items;
    }
    return items;
  }
};

// Numbers of items, ascending, and the slot of each.
using Places = std::vector<std::pair<std::uint64_t, std::uint32_t>>;

// One of the streams of a plan.
struct PlannedStream {
  std::variant<FixedStream, AdaptiveStream> stream;
  std::vector<Use> uses;    // drawn ahead, by one of several streams
  std::uint32_t next = 0;   // of these
  std::uint32_t ahead = 0;  // how many there are
};

// Returns function(stream). std::visit() might throw.
template <class Function>
decltype(auto) with(auto& turn, const Function& function) {
  auto* const fixed = std::get_if<FixedStream>(&turn.stream);
  return fixed != nullptr ? function(*fixed) : function(*std::get_if<AdaptiveStream>(&turn.stream));
}
// Returns what streams of both kinds have.
[[nodiscard]] auto& shared(auto& turn) noexcept {
  return with(turn, [](auto& stream) -> auto& { return stream.shared(); });
}

class Plan {
 public:
  // Throws std::invalid_argument if the configuration is invalid, std::bad_alloc.
  explicit Plan(const PlanConfig& config);
  // Returns the bytes that a plan of this configuration allocates. Throws std::invalid_argument.
  [[nodiscard]] static std::size_t size_bytes(const PlanConfig& config);
  // Returns how many slots a plan needs besides those for its capacity and for items ahead of it.
  [[nodiscard]] static std::uint64_t waiting_slots(std::uint32_t streams, std::uint32_t capacity) noexcept {
    return streams == 1 ? 0 : capacity + std::uint64_t{kInboxSlots} * streams;
  }

  // Drops all state and starts with iteration and pass number `epoch`. `extent`: of all streams together, which are
  // dealt the items in turn and have equally many uses. Several streams end together only if their uses are known.
  // Throws std::invalid_argument if the uses cannot be dealt so, or are fewer than the items of some stream;
  // std::bad_alloc.
  //
  // With more arguments it starts with a segment of that run. The first draw is the row of this number of an iteration,
  // a batch boundary at the beginning of the segment or before; all rows of a batch, up to the segment, have no item. An
  // adaptive factor takes these decisions again, and those of PlanConfig::replay if they go on longer.
  void begin(std::uint64_t epoch, const Extent& extent, const Segment& segment = {}, std::uint64_t iterations = 0,
             std::uint64_t rows = 0, Decisions decisions = {});

  // -- Input, in source order --

  // Adds the next item, which lies in this slot. At most PlanConfig::slots items may be fed and not yet drawn to their
  // last use.
  void feed(std::uint32_t slot) {
    if (fed_.items == segments_.next()) [[unlikely]] {
      end_part();
    }
    shared(streams_[next_fed_]).feed(slot);
    next_fed_ = after(next_fed_);
    numbers_[slot] = fed_.taken++;
    ++fed_.items;
  }
  // Marks the items fed since the last end_pass() as a complete pass. Another pass follows.
  void end_pass();
  // Same as end_pass(), but no item follows, so the pool drains. Returns false if the input had ended before.
  bool end_input();

  // -- Output --

  // Draws the next uses into `rows` and sets `drawn` to their number, for every outcome. kOk: all of `rows`. kEmpty: an
  // item or the end must be fed first. kEnd: no use is left for this batch; if `drawn` is also 0, the iteration is
  // over. `awaited`: the consumer waits for this batch; else an adaptive factor waits for fresh items (kEmpty) instead
  // of repeating others. Throws std::bad_alloc with an adaptive factor.
  Outcome draw(std::span<Use> rows, std::uint32_t& drawn, bool awaited = true);
  // Returns the outcome that a draw of one use would have.
  Outcome ready(bool awaited = true) {
    PlannedStream& turn = streams_[turn_];
    const auto is_ready = [&](auto& stream) { return stream.ready(awaited); };
    return turn.next < turn.ahead ? Outcome::kOk : with(turn, is_ready);
  }
  // Ends the batch; the next draw belongs to another one.
  void end_batch() noexcept;
  // Starts the next iteration. Requires the current one to be over.
  void next_iteration() noexcept;

  // Calls visit(slots) with the slots that items have left between two uses, if there are any. With an adaptive factor,
  // call it after each draw() and ready().
  template <class Visit>
  void take_left(const Visit& visit) {
    AdaptiveStream* const stream = std::get_if<AdaptiveStream>(&streams_[0].stream);
    if (stream != nullptr && !stream->left().empty()) {
      visit(std::span<const std::uint32_t>(stream->left()));
      stream->left().clear();
    }
  }
  // Calls visit(segment, decisions) for the segments that are remembered, with the decisions of an adaptive factor: the
  // newest first, until it returns false.
  template <class Visit>
  void each_log(const Visit& visit) const {
    const AdaptiveStream* const stream = adaptive();
    for (std::size_t at = stream == nullptr ? 0 : stream->logs().size(); at > 0; --at) {
      const auto& [segment, decisions] = stream->logs()[at - 1];
      if (!visit(segment, decisions)) {
        return;
      }
    }
  }
  // Returns the number of decisions of an adaptive factor since begin().
  [[nodiscard]] std::uint64_t decided() const noexcept { return adaptive() == nullptr ? 0 : adaptive()->decided(); }
  // True if PlanConfig::replay cannot be that of this input: the plan has gone on without it.
  [[nodiscard]] bool diverged() const noexcept {
    return draws_lost_ || (adaptive() != nullptr && adaptive()->diverged());
  }

  // True once the last iteration is over: every use of every item has been drawn, and no input can follow.
  [[nodiscard]] bool finished() const noexcept {
    return std::ranges::any_of(streams_, [](const PlannedStream& turn) { return shared(turn).finished(); });
  }
  // Returns a lower bound of the items to feed before `draws` more draws, or all that the iteration has left, can be
  // made (if the input does not end). Valid after draw() or ready() returned kEmpty.
  [[nodiscard]] std::uint64_t min_items(std::uint64_t draws) const noexcept {
    const std::size_t streams = streams_.size();
    const auto min_items = [&](const auto& stream) { return stream.min_items(streams == 1 ? draws : 1); };
    return (with(streams_[turn_], min_items) - 1) * streams + 1;
  }
  // Returns the number of items in the pool, those included whose last use waits for its turn.
  [[nodiscard]] std::uint32_t resident() const noexcept;

  // -- What a saved state tells of a plan --

  [[nodiscard]] const PlanConfig& config() const noexcept { return config_; }
  // Returns the first epoch.
  [[nodiscard]] std::uint64_t epoch() const noexcept { return epoch_; }
  // Returns the number of items fed since the run began.
  [[nodiscard]] std::uint64_t taken() const noexcept { return fed_.taken; }
  // Returns the number of items fed since the last end_pass().
  [[nodiscard]] std::uint64_t open_items() const noexcept { return fed_.items; }
  [[nodiscard]] bool ended() const noexcept { return shared(streams_[0]).ended(); }
  // Returns what the plan was fed, and its decisions, since the last segment that begins before so many iterations and
  // rows of the next one.
  [[nodiscard]] PlanPosition position(std::uint64_t iterations, std::uint64_t rows) const;
  [[nodiscard]] const Segments& segments() const noexcept { return segments_; }
  // Returns the number, since the run began, of the item that was fed in this slot last.
  [[nodiscard]] std::uint64_t number_of(std::uint32_t slot) const noexcept { return numbers_[slot]; }
  // Returns true if the segments end where Segments says: with an adaptive factor not where PlanConfig::replay has
  // decisions of the first segment only. These may be a plan of the whole run, not a log.
  [[nodiscard]] bool has_joints() const noexcept { return has_joints_; }
  // Has each_item() pass over the item in this slot, which leaves before its next use, and whose data is gone. A plan
  // that draws it has diverged.
  void forget(std::uint32_t slot) noexcept {
    numbers_[slot] = kUnknown;
    forgets_ = true;
  }
  // Returns every item that was fed and is not drawn to its last use.
  [[nodiscard]] Places items() const;
  // Calls visit(slot, number) for each of them, in no order.
  template <class Visit>
  void each_item(const Visit& visit) const {
    for (const PlannedStream& turn : streams_) {
      const auto visit_known = [&](std::uint32_t slot) {
        if (numbers_[slot] != kUnknown) {
          visit(slot, numbers_[slot]);
        }
      };
      for (std::uint32_t slot = 0; slot < config_.slots; ++slot) {
        if (with(turn, [&](const auto& stream) { return stream.holds(slot); })) {
          visit_known(slot);
        }
      }
      shared(turn).each_waiting(visit_known);
      for (std::uint32_t use = turn.next; use < turn.ahead; ++use) {
        if (turn.uses[use].last) {
          visit(turn.uses[use].slot, numbers_[turn.uses[use].slot]);
        }
      }
    }
  }

 private:
  static constexpr std::uint32_t kInboxSlots = 5;
  static constexpr std::uint32_t kUsesAhead = 32;  // of each of several streams

  // A segment that is remembered, because the consumer may not have come to the next one.
  struct Base {
    Segment begin;                  // but for its streams
    std::vector<PassRun> passes{};  // that have ended since then, and before the next one
  };
  static constexpr std::uint64_t kUsesKept = std::uint64_t{1} << 26;  // of a stream, more than are made ahead

  // Calls visit(stream) for each of them.
  template <class Visit>
  void each_stream(const Visit& visit) {
    for (PlannedStream& turn : streams_) {
      with(turn, visit);
    }
  }
  // Returns the one stream, if the factor is adaptive, else null.
  [[nodiscard]] const AdaptiveStream* adaptive() const noexcept {
    return std::get_if<AdaptiveStream>(&streams_[0].stream);
  }
  [[nodiscard]] std::size_t after(std::size_t stream) const noexcept {
    return stream + 1 == streams_.size() ? 0 : stream + 1;
  }
  Outcome draw_ahead(PlannedStream& turn, std::uint64_t rows, bool awaited);
  void count_pass();
  void end_part();
  void begin_segment();

  const PlanConfig config_;
  std::vector<std::uint64_t> numbers_;  // by slot
  std::vector<PlannedStream> streams_;
  std::uint32_t last_ahead_ = 0;  // last uses of items that wait for their turns
  std::uint64_t epoch_ = 0;
  Extent extent_;
  std::size_t turn_ = 0;      // the stream of the next use
  std::size_t next_fed_ = 0;  // the stream of the next item
  Segment fed_{};             // the input so far, as if a segment began here
  Segments segments_;
  bool has_joints_ = true;
  bool forgets_ = false;     // forget() was called
  bool draws_lost_ = false;  // an item of these was drawn
  std::vector<Base> bases_;  // the oldest first
};

}  // namespace pyecho
