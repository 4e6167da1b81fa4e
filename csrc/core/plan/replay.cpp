#include "core/plan/replay.hpp"

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

namespace pyecho {
namespace {

constexpr std::uint32_t kUsesAtOnce = 256;

}  // namespace

Replay::Replay(BatchPlan& plan, std::uint32_t batch_rows, PlanPosition position)
    : plan_(plan),
      position_(std::move(position)),
      by_use_(batch_rows == 1 && !plan.config().unique_in_batch && !plan.config().adaptive()),
      uses_(by_use_ ? kUsesAtOnce : batch_rows),
      free_(plan.config().slots) {
  plan_.begin(position_.epoch, position_.extent);
  plan_.replay(std::move(position_.decisions));
  plan_.extend(position_.knots);
  std::iota(free_.rbegin(), free_.rend(), 0U);
  open_pass();
}

// ---------------------------------------------------------------- input

void Replay::open_pass() noexcept {
  const std::vector<PassRun>& runs = position_.passes;
  for (; run_ < runs.size() && run_passes_ == runs[run_].passes; ++run_) {
    run_passes_ = 0;
  }
  items_left_ = run_ < runs.size() ? runs[run_].items : position_.open_items;
}

// Feeds the next item or the end of a pass. Returns false if nothing is left, or no slot.
bool Replay::feed_next() {
  if (items_left_ > 0) {
    if (free_.empty()) {
      return false;
    }
    plan_.feed(free_.back());
    free_.pop_back();
    --items_left_;
    return true;
  }
  if (run_ == position_.passes.size()) {
    return false;
  }
  ++passes_fed_;
  ++run_passes_;
  open_pass();
  if (position_.ended && run_ == position_.passes.size()) {
    plan_.end_input();
  } else {
    plan_.end_pass();
  }
  return true;
}

// ---------------------------------------------------------------- output

// Draws a batch, or the end of an iteration. kClosed: the input does not suffice.
Outcome Replay::draw_batch() {
  const bool last = iterations_ == position_.iterations;
  for (;;) {
    std::span<Use> rows = std::span(uses_).subspan(rows_);
    if (by_use_ && last) {
      rows = rows.first(std::min<std::uint64_t>(rows.size(), position_.batches - batches_));
    }
    std::uint32_t drawn = 0;
    const Outcome outcome = plan_.draw(rows, drawn);
    for (const Use& use : rows.first(drawn)) {
      if (use.last) {
        free_.push_back(use.slot);
      }
    }
    plan_.take_left(
        [&](std::span<const std::uint32_t> slots) { free_.insert(free_.end(), slots.begin(), slots.end()); });
    drawn_ += drawn;
    if (by_use_ && drawn > 0) {
      batches_ += drawn;
      batches_drawn_ += drawn;
      return Outcome::kOk;
    }
    rows_ += drawn;
    if (outcome == Outcome::kEmpty) {
      if (!feed_next()) {
        return Outcome::kClosed;
      }
      continue;
    }
    if (rows_ == 0) {
      return Outcome::kEnd;
    }
    plan_.end_batch();
    ++batches_drawn_;
    batches_ += std::exchange(rows_, 0) >= position_.min_rows ? 1 : 0;
    return Outcome::kOk;
  }
}

Outcome Replay::advance(std::uint64_t uses) {
  const std::uint64_t until = drawn_ + uses;
  while (iterations_ < position_.iterations || batches_ < position_.batches) {
    if (drawn_ >= until) {
      return Outcome::kEmpty;
    }
    const Outcome outcome = draw_batch();
    if (outcome == Outcome::kOk) {
      continue;
    }
    // Iterations beyond the last one would be empty, and without end.
    if (outcome == Outcome::kClosed || iterations_ == position_.iterations || plan_.finished()) {
      return Outcome::kClosed;
    }
    plan_.next_iteration();
    ++iterations_;
    batches_ = batches_drawn_ = 0;
    ++drawn_;  // so that iterations without a use are counted too
  }
  if (position_.feed_all) {
    while (feed_next()) {
    }
    if (items_left_ > 0) {
      return Outcome::kClosed;
    }
  }
  return Outcome::kOk;
}

}  // namespace pyecho
