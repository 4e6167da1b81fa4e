#include "core/plan/replay.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

namespace pyecho {
namespace {

constexpr std::uint32_t kUsesAtOnce = 256;
constexpr double kMostUses = 0x1.0p36;
constexpr double kMostEmptyPasses = 0x1.0p20;  // they take time, and no use ends it
constexpr const char* kContradiction = "the state contradicts itself: no run comes to its position with its items";

}  // namespace

Replay::Replay(Plan& plan, std::uint32_t batch_size, PlanPosition position)
    : plan_(plan),
      position_(std::move(position)),
      by_use_(batch_size == 1 && !plan.config().unique_in_batch && !plan.config().adaptive()),
      batch_size_(batch_size),
      decisions_(position_.decisions.size()) {
  plan_.begin(position_.epoch, position_.extent);
  plan_.replay(std::move(position_.decisions));
  check();
  open_pass();
}

void Replay::check() const {
  const PlanConfig& config = plan_.config();
  const Extent& extent = position_.extent;
  const double of_extent =
      extent.uses == kUnknown ? 0 : static_cast<double>(extent.uses) / static_cast<double>(extent.items);
  // Uses take time to plan again, up to the end of this iteration. Those of later passes do not: a source that tells its
  // length may go on for ever.
  const bool by_pass = config.iteration_uses == 0;
  const double iterations = static_cast<double>(position_.iterations) + 1;
  const double most_passes = by_pass ? iterations : std::numeric_limits<double>::infinity();
  auto items = static_cast<double>(position_.open_items);
  double reached = 0;
  double passes = 0;
  double empty = 0;
  for (const PassRun& run : position_.passes) {
    const auto count = static_cast<double>(run.passes);
    const auto length = static_cast<double>(run.items);
    reached += std::clamp(most_passes - passes, 0.0, count) * length;
    items += count * length;
    passes += count;
    empty += run.items == 0 ? count : 0;
  }
  reached += passes < most_passes ? static_cast<double>(position_.open_items) : 0;
  double uses = reached * std::max(config.adaptive() ? config.min_uses : config.factor, of_extent);
  if (!by_pass) {
    uses = std::min(uses, iterations * static_cast<double>(config.iteration_uses));
  }
  if (uses > kMostUses || empty > kMostEmptyPasses) {
    throw BadState(
        "the state was taken after more than 2^36 uses, or 2^20 passes without items, which would take half an hour or "
        "more to plan again, or it is damaged; load an earlier one, and let fewer passes flow into each other");
  }
  // At least so many uses were drawn. The last iteration may be short, and the last batch of one; with unique_in_batch
  // and an adaptive factor more of them.
  const bool short_batches = config.unique_in_batch || config.adaptive();
  const std::uint32_t rows = short_batches ? std::max(1U, position_.min_rows) : batch_size_;
  const double drawn =
      std::max(0.0, static_cast<double>(position_.batches) - 1) * rows +
      std::max(0.0, static_cast<double>(position_.iterations) - 1) * static_cast<double>(config.iteration_uses);
  const bool has_iterations = config.iteration_uses > 0 || static_cast<double>(position_.iterations) <= passes;
  if (drawn > items * std::ceil(std::max(config.factor, of_extent)) || !has_iterations) {
    throw BadState(kContradiction);
  }
}

// ---------------------------------------------------------------- input

void Replay::open_pass() noexcept {
  const std::vector<PassRun>& runs = position_.passes;
  while (run_ < runs.size() && runs[run_].passes == 0) {
    ++run_;
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
  --position_.passes[run_].passes;
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
    uses_drawn_ += drawn;
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

bool Replay::advance(std::uint64_t uses) {
  const Outcome outcome = draw_until(drawn_ + uses);
  if (plan_.diverged()) {
    throw BadState(kOtherLog);
  }
  // A state has all decisions up to its position, so that an adaptive factor draws no more uses than it had.
  if (outcome == Outcome::kClosed || plan_.decisions().size() > decisions_) {
    throw BadState(kContradiction);
  }
  return outcome == Outcome::kOk;
}

// kEmpty: so many uses are drawn. kClosed: there is no such position.
Outcome Replay::draw_until(std::uint64_t drawn) {
  if (uses_.empty()) {
    uses_.resize(by_use_ ? kUsesAtOnce : batch_size_);
    free_.resize(plan_.config().slots);
    std::iota(free_.rbegin(), free_.rend(), 0U);
  }
  while (iterations_ < position_.iterations || batches_ < position_.batches) {
    if (drawn_ >= drawn) {
      return Outcome::kEmpty;
    }
    const Outcome outcome = draw_batch();
    if (outcome == Outcome::kOk) {
      continue;
    }
    // Iterations after the last one would be empty, and without end.
    if (outcome == Outcome::kClosed || iterations_ == position_.iterations || plan_.finished()) {
      return Outcome::kClosed;
    }
    plan_.next_iteration();
    ++iterations_;
    batches_ = batches_drawn_ = uses_drawn_ = 0;
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

Places Replay::items_of(std::span<const std::uint64_t> numbers) const {
  Places items = plan_.items();
  const auto others = std::ranges::remove_if(
      items, [&](std::uint64_t number) { return !std::ranges::binary_search(numbers, number); },
      &Places::value_type::first);
  if (!others.empty() && !plan_.config().adaptive()) {
    throw BadState(kContradiction);
  }
  items.erase(others.begin(), others.end());
  if (!std::ranges::equal(items, numbers, {}, &Places::value_type::first)) {
    throw BadState(kContradiction);
  }
  return items;
}

}  // namespace pyecho
