// A stream with an adaptive echo factor: what to take of the input before each batch.
//
// Takes the items that have arrived at the beginning of each batch. If they are too few, older ones are repeated
// (RoundsPool), but only for a batch that the consumer waits for: else a fresh item may still come in time. The number
// of events of the input (items, ends of passes) taken before a batch is its decision. Where there are decisions to take
// again, it takes as many, so the draws depend on them instead of the time.
//
// An iteration ends at the first batch boundary at which the end of its pass was taken and as many uses were drawn as
// the items so far have at least; it has a batch, if there are enough. At the end of the input only the least uses are
// drawn.
//
// At a joint (Segments), which is an event, items of the next segment begin to wait in slots, and each takes the place of
// one that may leave, as if it were admitted: more events. Once none may leave, or too few uses for a batch are left,
// items that remain have their least uses. Then, mostly in the middle of a batch, the next segment begins as a run does,
// and decides once more for that batch. The items for nearly a full pool have come by then.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/plan/decisions.hpp"
#include "core/plan/rounds_pool.hpp"
#include "core/plan/stream.hpp"

namespace pyecho {

class AdaptiveStream final : public Stream {
 public:
  explicit AdaptiveStream(const PlanConfig& config) : Stream(config), pool_(config) {}

  void begin(const StreamBegin& from, const Extent& extent) override;
  // After begin(): takes these decisions again, and those of PlanConfig::replay if they go on longer.
  void replay(Decisions decisions);

  Outcome ready(bool awaited) override;
  void end_batch() noexcept override {
    state_ = Deciding::kNotBegun;
    batch_begin_ = drawn_;
  }
  void next_iteration() noexcept override;
  [[nodiscard]] std::uint64_t min_items(std::uint64_t draws) const noexcept override;
  [[nodiscard]] std::uint32_t resident() const noexcept override { return pool_.resident(); }
  [[nodiscard]] bool holds(std::uint32_t slot) const noexcept override { return pool_.holds(slot); }
  void forget_crossing() noexcept override {
    Stream::forget_crossing();
    logs_.erase(logs_.begin());
  }

  // Slots of items that left between two of their uses, since the caller cleared this.
  [[nodiscard]] std::vector<std::uint32_t>& left() noexcept { return pool_.left(); }
  // The decisions of the segments that are remembered: see crossings(), and the next one once its joint was taken.
  struct Log {
    SegmentName segment;
    Decisions decisions;
  };
  [[nodiscard]] const std::vector<Log>& logs() const noexcept { return logs_; }
  // Returns the number of decisions since begin().
  [[nodiscard]] std::uint64_t decided() const noexcept { return decided_; }
  // True if the decisions to take again cannot be those of this input: the stream has gone on without them.
  [[nodiscard]] bool diverged() const noexcept { return diverged_; }

 private:
  enum class Deciding : std::uint8_t { kNotBegun, kBegun, kDone };

  std::uint32_t draw_some(std::span<Use> rows) override { return pool_.draw(rows, random_); }
  [[nodiscard]] bool exhausted() const noexcept override { return input_.over() && pool_.resident() == 0; }
  [[nodiscard]] bool decide(bool awaited);
  [[nodiscard]] bool take_what_arrived(bool awaited);
  [[nodiscard]] bool take_event();
  [[nodiscard]] bool has_item() const noexcept;
  void drain();
  void begin_segment();
  void add_log(const Joint& joint);
  void end_iteration();

  RoundsPool pool_;
  std::vector<Log> logs_;
  Decisions replay_;          // decisions to take again
  std::size_t replayed_ = 0;  // of them
  std::uint64_t decided_ = 0;
  bool diverged_ = false;
  Deciding state_ = Deciding::kNotBegun;  // of this batch
  std::uint32_t taken_ = 0;               // events before this batch
  bool joining_ = false;                  // the joint was taken,
  std::uint32_t waiting_ = 0;             // and items of the next segment that have a place
  bool awaited_ = true;                   // as ready() was told last
  bool filling_ = false;                  // uses did not suffice, so the pool is to be full before the next batch
  bool draining_ = false;                 // of the pool: no item is admitted in this segment
  Fifo<std::uint64_t> least_uses_;   // at the end of each pass whose iteration goes on: of its items and earlier ones
  std::uint64_t ended_before_ = 0;   // such passes before the segment of begin(), whose uses are drawn
  std::uint64_t batch_begin_ = 0;    // value of drawn_
  std::uint64_t segment_items_ = 0;  // value of input_.taken() at the beginning of the segment
  std::uint64_t segment_uses_ = 0;   // value of drawn_ there
};

}  // namespace pyecho
