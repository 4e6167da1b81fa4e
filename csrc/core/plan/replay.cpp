#include "core/plan/replay.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <tuple>
#include <utility>

namespace pyecho {
namespace {

constexpr std::uint32_t kUsesAtOnce = 256;
constexpr double kUnbounded = std::numeric_limits<double>::infinity();
constexpr double kMostUses = 0x1.0p36;          // where no segment ends
constexpr double kMostDecided = 0x1.0p26;       // uses that an adaptive factor has decided ahead of the consumer
constexpr double kMostUneven = 8;               // times the factor that a pass has because other ranks have more items
constexpr double kMostEmptyPasses = 0x1.0p20;   // they take time and memory, and no use ends it
constexpr std::uint64_t kMostApart = 1U << 20;  // uses between the beginnings of the streams' segments
constexpr const char* kContradiction = "the state contradicts itself: no run comes to its position with its items";

void require(bool holds) {
  if (!holds) {
    throw BadState(kContradiction);
  }
}

}  // namespace

Replay::Replay(Plan& plan, std::uint32_t batch_size, PlanPosition position)
    : plan_(plan),
      position_(std::move(position)),
      by_use_(batch_size == 1 && !plan.config().unique_in_batch && !plan.config().adaptive()),
      batch_size_(batch_size),
      decisions_(position_.decisions.size()),
      first_(position_.segment.taken) {
  begin();
  check();
  open_pass();
  items_left_ -= position_.segment.items;
}

// Begins the plan with the segment of the position, at the last batch boundary before it.
void Replay::begin() {
  skip_regular();
  const Segment& segment = position_.segment;
  const std::uint64_t streams = plan_.config().streams;
  require(segment.streams.empty() ? segment.passes + segment.parts + segment.items == 0
                                  : segment.streams.size() == streams);
  require(begins_within(segment, position_.iterations, rows_taken()));
  const std::uint64_t all = position_.extent.uses != kUnknown ? position_.extent.uses : plan_.config().iteration_uses;
  const std::uint64_t of_iteration = all / streams;
  std::uint64_t row = 0;
  for (std::uint64_t stream = 0; stream < segment.streams.size(); ++stream) {
    const Crossing& at = segment.streams[stream];
    require(at.uses < kMostCounted && (of_iteration == 0 || at.uses <= of_iteration));
    // With an adaptive factor an iteration ends after its pass, else before the next segment begins.
    require(plan_.config().iteration_uses > 0 ||
            (plan_.config().adaptive() ? at.iterations <= segment.passes : at.iterations >= segment.passes));
    const std::uint64_t begin = at.uses * streams + stream;
    if (stream == 0 || std::tuple(at.iterations, begin) < std::tuple(iterations_, row)) {
      iterations_ = at.iterations;
      row = begin;
    }
  }
  batches_ = batches_drawn_ = row / batch_size_;
  uses_drawn_ = batches_ * batch_size_;
  lead_ = row - uses_drawn_;
  for (const Crossing& at : segment.streams) {
    const std::uint64_t between = at.iterations - iterations_;
    require(between == 0 || (of_iteration > 0 && between <= kMostApart));
    std::uint64_t apart = 0;
    const bool overflows = __builtin_mul_overflow(between, of_iteration, &apart);
    apart += at.uses - row / streams;
    require(!overflows && apart < kMostApart);
    lead_ += apart + 1;
  }
  const std::vector<PassRun>& passes = position_.passes;
  const auto first = std::ranges::find_if(passes, [](const PassRun& run) { return run.passes > 0; });
  require(segment.items <= (first == passes.end() ? position_.open_items : first->items));
  plan_.begin(position_.epoch, position_.extent, segment, iterations_, uses_drawn_, std::move(position_.decisions));
}

// Finds the segment of a position that begins with the run, if all passes are alike. One with items has its segment, in
// which the last of the consumers may stand.
void Replay::skip_regular() {
  if (position_.feed_all || !position_.segment.streams.empty() || position_.passes.size() != 1) {
    return;
  }
  PassRun& run = position_.passes.front();
  const bool over = plan_.config().iteration_uses == 0 && position_.iterations >= run.passes;
  Segment segment =
      plan_.segments().before(plan_.config(), position_.epoch, position_.extent, run.items,
                              over ? run.passes - 1 : position_.iterations, over ? kMostCounted : rows_taken());
  if (segment.passes < run.passes) {
    run.passes -= segment.passes;
    position_.segment = std::move(segment);
  }
}

// Returns the rows of the next iteration that the consumer has taken, at least.
std::uint64_t Replay::rows_taken() const noexcept {
  std::uint64_t rows = 0;
  const bool overflows = __builtin_mul_overflow(position_.batches, std::uint64_t{batch_size_}, &rows);
  return overflows || rows > kMostCounted ? kMostCounted : rows;
}

// Uses take time to plan again, up to the end of this iteration. Those of later passes do not: a source that tells its
// length may go on for ever.
void Replay::check() const {
  const PlanConfig& config = plan_.config();
  const Segments& segments = plan_.segments();
  const Extent& extent = position_.extent;
  const std::uint64_t fewest = std::max<std::uint64_t>(1, extent.items / config.streams);  // items of a stream
  const std::uint64_t uses_of_pass = extent.uses == kUnknown ? 0 : extent.uses / config.streams;
  const double of_extent = static_cast<double>(uses_of_pass) / static_cast<double>(fewest);
  const double factor = std::max(config.factor, of_extent);
  const bool by_pass = config.iteration_uses == 0;
  const bool short_batches = config.unique_in_batch || config.adaptive();
  const auto iterations = static_cast<double>(position_.iterations - iterations_);
  const double batches =
      static_cast<double>(position_.batches) - static_cast<double>(position_.iterations == iterations_ ? batches_ : 0);
  const double iterations_by_pass =
      by_pass ? static_cast<double>(position_.iterations) - static_cast<double>(position_.segment.passes) : kUnbounded;
  const double before = -static_cast<double>(position_.segment.items);
  double items = before + static_cast<double>(position_.open_items);
  double earlier = before;  // items of earlier iterations, and those of this one
  double reached = before;
  double passes = 0;
  double empty = 0;
  for (const PassRun& run : position_.passes) {
    const auto count = static_cast<double>(run.passes);
    const auto length = static_cast<double>(run.items);
    earlier += std::clamp(iterations_by_pass - passes, 0.0, count) * length;
    reached += std::clamp(iterations_by_pass + 1 - passes, 0.0, count) * length;
    items += count * length;
    passes += count;
    empty += run.items == 0 ? count : 0;
  }
  reached += passes < iterations_by_pass + 1 ? static_cast<double>(position_.open_items) : 0;
  const double of_iteration = by_pass ? kUnbounded : static_cast<double>(config.iteration_uses);
  const double in_earlier = by_pass          ? std::max(0.0, earlier) * factor
                            : iterations > 0 ? iterations * of_iteration - static_cast<double>(uses_drawn_)
                                             : 0;
  double uses = std::min(reached * factor, in_earlier + (short_batches ? of_iteration : batches * batch_size_));
  const bool is_bounded = segments.bounded() && plan_.has_joints();
  double most_uses = kMostUses;
  if (is_bounded) {
    const double ahead = static_cast<double>(position_.ahead) * batch_size_ + static_cast<double>(lead_);
    most_uses = segments.most_uses(std::min(factor, kMostUneven * config.factor)) + ahead + kMostApart;
  }
  // With an adaptive factor and no joints, the decisions bound them.
  if (config.adaptive()) {
    uses = is_bounded ? static_cast<double>(decisions_) * batch_size_ : 0;
    most_uses += kMostDecided;
  }
  if (uses > most_uses && !is_bounded) {
    throw BadState(
        "the state was taken after more than 2^36 uses of a run without segments, which would take an hour to plan "
        "again: it is damaged, or unique_in_batch and steps_per_epoch were used for so long; load an earlier one, and "
        "pass epochs= instead of steps_per_epoch=, or begin anew with set_epoch() before that");
  }
  // An iteration with uses has a decision.
  const bool many_iterations = config.adaptive() && iterations > kMostEmptyPasses + static_cast<double>(decisions_);
  if (uses > most_uses || empty > kMostEmptyPasses || many_iterations) {
    throw BadState(
        "the state was taken after more uses, or passes without items, than follow each other in a segment of a run, "
        "and would take long to plan again: it is damaged; load an earlier one");
  }
  // At least so many uses were drawn. The last iteration may be short, and the last batch of one; with unique_in_batch
  // and an adaptive factor more of them.
  const std::uint32_t rows = short_batches ? std::max(1U, position_.min_rows) : batch_size_;
  const double of_iterations =
      (iterations - 1) * static_cast<double>(config.iteration_uses) - static_cast<double>(uses_drawn_);
  const double drawn = std::max(0.0, batches - 1) * rows + std::max(0.0, of_iterations);
  require(drawn <= items * std::ceil(factor) + static_cast<double>(lead_) &&
          (!by_pass || iterations_by_pass <= passes));
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
  const auto require_so_far = [this](bool holds) {
    if (plan_.diverged()) {
      throw BadState(kOtherLog);
    }
    require(holds);
  };
  const std::uint64_t end = drawn_ + uses;
  if (uses_.empty()) {
    uses_.resize(by_use_ ? kUsesAtOnce : batch_size_);
    free_.resize(plan_.config().slots);
    std::iota(free_.rbegin(), free_.rend(), 0U);
  }
  while (iterations_ < position_.iterations || batches_ < position_.batches) {
    if (drawn_ >= end) {
      return false;
    }
    // The consumer counts an iteration of so many uses with its last batch, when nothing may tell yet what follows.
    const bool over = uses_drawn_ > 0 && uses_drawn_ == plan_.config().iteration_uses;
    const Outcome outcome = over ? Outcome::kEnd : draw_batch();
    // A state has all decisions up to its position, so that an adaptive factor draws no more uses than it had.
    require_so_far(plan_.decided() <= decisions_);
    if (outcome == Outcome::kOk) {
      continue;
    }
    // Iterations after the last one would be empty, and without end.
    require(outcome == Outcome::kEnd && iterations_ < position_.iterations && !plan_.finished());
    plan_.next_iteration();
    ++iterations_;
    batches_ = batches_drawn_ = uses_drawn_ = 0;
    ++drawn_;  // so that iterations without a use are counted too
  }
  while (position_.feed_all && feed_next()) {
  }
  require_so_far(!position_.feed_all || items_left_ == 0);
  return true;
}

Places Replay::items() const {
  Places items = plan_.items();
  for (auto& [number, slot] : items) {
    number -= first_;
  }
  return items;
}

Places Replay::items_of(std::span<const std::uint64_t> numbers) {
  Places held;
  for (const auto& [number, slot] : items()) {
    if (std::ranges::binary_search(numbers, number)) {
      held.emplace_back(number, slot);
    } else {
      require(plan_.config().adaptive());
      plan_.forget(slot);
    }
  }
  require(std::ranges::equal(held, numbers, {}, &Places::value_type::first));
  return held;
}

}  // namespace pyecho
