#include "core/plan/stream_plan.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

namespace pyecho {
namespace {

// Passes that may end within the slots or the pool at the same time. For more, the vectors grow on demand.
constexpr std::size_t kEndsAtOnce = 16;

std::uint64_t most_uses(const PlanConfig& config) {
  return std::uint64_t{config.capacity} * EchoFactor(config.factor).max_uses();
}

// Returns the size of an array that only a fixed factor needs.
std::size_t if_fixed(const PlanConfig& config, std::size_t size) { return config.adaptive() ? 0 : size; }

PlanConfig checked(PlanConfig config) {
  if (config.capacity < 1 || config.slots < config.capacity) {
    throw std::invalid_argument("a plan needs a capacity of at least 1 and as many slots");
  }
  if (most_uses(config) >= PlanConfig::kMaxUses) {
    throw std::invalid_argument("capacity times factor must stay below 2^32 - 1");
  }
  if (config.adaptive() && (config.factor < config.min_uses || config.factor != std::floor(config.factor) ||
                            config.capacity < config.batch_rows)) {
    throw std::invalid_argument("an adaptive factor is whole, at least min_uses, and its pool holds a batch");
  }
  return config;
}

}  // namespace

StreamPlan::StreamPlan(const PlanConfig& config)
    : config_(checked(config)),
      factor_(config.factor, config.even_factor),
      inbox_(config.slots),
      entries_(if_fixed(config, most_uses(config))),
      pool_(if_fixed(config, config.slots)),
      taken_by_(if_fixed(config, config.unique_in_batch ? config.slots : 0)) {
  if (config.adaptive()) {
    adaptive_ = std::make_unique<AdaptivePool>(config);
  }
  deferred_.reserve(if_fixed(config, config.unique_in_batch ? most_uses(config) : 0));
  pass_ends_.reserve(kEndsAtOnce);
  iteration_ends_.reserve(kEndsAtOnce);
  begin(0, {});
}

std::size_t StreamPlan::size_bytes(const PlanConfig& config) {
  const std::uint64_t uses = most_uses(checked(config));
  if (config.adaptive()) {
    return AdaptivePool::size_bytes(config) + config.slots * sizeof(std::uint32_t);
  }
  const std::uint64_t per_slot = sizeof(std::uint32_t) + sizeof(Item) + (config.unique_in_batch ? 4 : 0);
  return uses * sizeof(std::uint32_t) * (config.unique_in_batch ? 2 : 1) + config.slots * per_slot;
}

void StreamPlan::begin(std::uint64_t epoch, const Extent& extent) {
  check(extent);
  fed_ = admitted_ = pass_begin_ = admitted_uses_ = 0;
  pass_ends_.clear();
  ended_ = false;
  extent_ = extent;
  pass_ = epoch;
  factor_.begin_pass(config_.seed, pass_, extent_.items, extent_.uses);
  make_room(0);
  drawn_ = 0;
  iteration_ = epoch;
  iteration_ends_.clear();
  finished_.store_relaxed(false);
  begin_iteration();
  resident_.store_relaxed(0);
  left_ = 0;
  batch_ = 1;
  deferred_.clear();
  std::ranges::fill(pool_, Item{});
  std::ranges::fill(taken_by_, 0U);
  begin_decisions(epoch);
}

void StreamPlan::check(const Extent& extent) const {
  if (extent.uses == kUnknown) {
    return;
  }
  if (adaptive_ || extent.items == kUnknown || extent.items == 0 || extent.uses < extent.items) {
    throw std::invalid_argument("a pass of " + std::to_string(extent.items) + " items cannot have " +
                                std::to_string(extent.uses) + " uses: each stream needs items, and of each a use");
  }
  if (extent.uses / extent.items >= PlanConfig::kMaxUses) {
    throw std::invalid_argument("an item has fewer than 2^32 - 1 uses");
  }
}

// Makes room for the uses of a pass that follows on so many items, as far as the pool holds them all. Only a pass with a
// factor of its own needs more than the constructor has made.
void StreamPlan::make_room(std::uint64_t earlier_items) {
  if (extent_.uses == kUnknown) {
    return;
  }
  const std::uint64_t items = std::min<std::uint64_t>(config_.capacity, earlier_items + extent_.items);
  const std::uint64_t uses = items * factor_.max_uses();
  if (uses >= PlanConfig::kMaxUses) {
    throw std::invalid_argument("the items in the pool have 2^32 - 1 uses or more: lower its capacity");
  }
  if (uses > entries_.size()) {
    entries_.resize(uses);
    deferred_.reserve(config_.unique_in_batch ? uses : 0);
  }
}

// ---------------------------------------------------------------- input

// Closes passes whose last item has been admitted.
inline void StreamPlan::close_passes() noexcept {
  while (!pass_ends_.empty() && pass_ends_.front() == admitted_) {
    pass_ends_.pop_front();
    if (config_.iteration_uses == 0) {
      iteration_ends_.push_back(admitted_uses_);
    }
    ++pass_;
    pass_begin_ = admitted_;
    factor_.begin_pass(config_.seed, pass_, extent_.items, extent_.uses);
  }
}

inline void StreamPlan::admit_next() noexcept {
  const std::uint32_t slot = inbox_[admitted_ % inbox_.size()];
  const std::uint32_t uses = factor_.next();
  pool_[slot] = {.source_index = admitted_ - pass_begin_, .uses_left = uses, .uses_drawn = 0};
  if (config_.unique_in_batch) {
    taken_by_[slot] = 0;
  }
  std::fill_n(entries_.begin() + left_, uses, slot);
  left_ += uses;
  ++admitted_;
  resident_.store_relaxed(resident() + 1);
  admitted_uses_ += uses;
  if (!pass_ends_.empty()) {
    close_passes();
  }
}

// ---------------------------------------------------------------- output

// An iteration of a fixed number of uses has a known end; others end where their pass does, see close_passes().
void StreamPlan::begin_iteration() noexcept {
  if (config_.iteration_uses > 0) {
    iteration_ends_.push_back(drawn_ + config_.iteration_uses);
  }
  random_ = Xoshiro256(stream_key(config_.seed, iteration_, Stream::kDraw));
}

Outcome StreamPlan::ready() noexcept {
  if (adaptive_) {
    if (!decide()) {
      return Outcome::kEmpty;
    }
    return uses_left_in_iteration() == 0 || exhausted() ? Outcome::kEnd : Outcome::kOk;
  }
  close_passes();
  // Checked before items are admitted. Otherwise the order of entries would depend on how early items were fed, because
  // the deferred entries of the batch must come before the entries of new items.
  if (uses_left_in_iteration() == 0) {
    // Timing must not decide whether an iteration of a fixed number of uses is the last, so wait for an item or the end.
    const bool known = config_.iteration_uses == 0 || remaining_uses() > 0 || admitted_ < fed_ || ended_;
    return known ? Outcome::kEnd : Outcome::kEmpty;
  }
  while (!full() && admitted_ < fed_) {
    admit_next();
  }
  if (exhausted()) {
    return Outcome::kEnd;
  }
  return full() || drains() ? Outcome::kOk : Outcome::kEmpty;
}

void StreamPlan::next_iteration() noexcept {
  if (!adaptive_) {
    close_passes();  // of several streams, only the one whose turn it was knows of the end
  }
  if (!iteration_ends_.empty()) {
    iteration_ends_.pop_front();
  }
  finished_.store_relaxed(exhausted() && iteration_ends_.empty());
  ++iteration_;
  begin_iteration();
}

void StreamPlan::end_batch() noexcept {
  begun_ = decided_ = false;
  std::ranges::copy(deferred_, entries_.begin() + left_);
  left_ += static_cast<std::uint32_t>(deferred_.size());
  deferred_.clear();
  batch_ = batch_ == 0xFFFFFFFFU ? 1 : batch_ + 1;
}

Outcome StreamPlan::draw(std::span<Use> rows, std::uint32_t& drawn) noexcept {
  drawn = 0;
  while (drawn < rows.size()) {
    if (const Outcome outcome = ready(); outcome != Outcome::kOk) {
      return outcome;
    }
    // An iteration whose end is unknown has at least as many uses left as the pool holds.
    const std::uint64_t most = std::min<std::uint64_t>(rows.size() - drawn, uses_left_in_iteration());
    const std::span<Use> wanted = rows.subspan(drawn, most);
    const bool in_order = config_.capacity == 1 && !config_.unique_in_batch;
    const std::uint32_t got = adaptive_  ? draw_adaptive(wanted)
                              : in_order ? draw_in_order(wanted)
                                         : draw_shuffled(wanted);
    if (got == 0) {
      return Outcome::kEnd;
    }
    drawn += got;
  }
  return Outcome::kOk;
}

// Takes one use of the item. The item leaves the pool with its last use.
inline Use StreamPlan::take_use(std::uint32_t slot) noexcept {
  Item& item = pool_[slot];
  const bool spent = --item.uses_left == 0;
  resident_.store_relaxed(resident() - (spent ? 1U : 0U));
  return {.slot = slot, .ordinal = item.uses_drawn++, .source_index = item.source_index, .last = spent};
}

// Draws until `rows` is full, an item must be fed, the end of the iteration becomes known, or every entry is deferred.
// Local copies keep the state of the draw in registers.
std::uint32_t StreamPlan::draw_shuffled(std::span<Use> rows) noexcept {
  Xoshiro256 random = random_;
  std::uint32_t* const entries = entries_.data();
  const bool unique = config_.unique_in_batch;
  const bool draining = drains();
  std::uint32_t left = left_;
  std::uint32_t drawn = 0;
  const auto limit = static_cast<std::uint32_t>(rows.size());
  const std::size_t ends = iteration_ends_.size();
  while (drawn < limit && left > 0) {
    const std::uint32_t position = random.below(left);
    const std::uint32_t slot = entries[position];
    entries[position] = entries[--left];
    if (unique) {
      if (taken_by_[slot] == batch_) {
        deferred_.push_back(slot);
        continue;
      }
      taken_by_[slot] = batch_;
    }
    const Use use = take_use(slot);
    rows[drawn++] = use;
    if (use.last && !draining) {
      if (drawn == limit || admitted_ == fed_) {
        break;  // after the last row of a batch, its deferred entries come first
      }
      left_ = left;
      admit_next();
      left = left_;
      if (iteration_ends_.size() != ends) {
        break;  // now the iteration has a known end
      }
    }
  }
  random_ = random;
  left_ = left;
  drawn_ += drawn;
  return drawn;
}

// Same for a pool of one item, without drawing: a repeat in batch echoing costs half as much.
std::uint32_t StreamPlan::draw_in_order(std::span<Use> rows) noexcept {
  const std::uint32_t slot = entries_[0];
  const auto drawn = static_cast<std::uint32_t>(std::min<std::size_t>(rows.size(), left_));
  for (Use& use : rows.first(drawn)) {
    use = take_use(slot);
  }
  left_ -= drawn;
  drawn_ += drawn;
  return drawn;
}

std::uint64_t StreamPlan::min_items(std::uint64_t draws) const noexcept {
  if (adaptive_) {
    return filling_ ? config_.capacity - resident() : 1;
  }
  // With u uses in a full pool, u - capacity draws may leave every item in the pool, and the next draw removes one.
  const std::uint64_t room = config_.capacity - resident();
  const std::uint64_t wanted = std::min(draws, uses_left_in_iteration());
  if (wanted == 0) {
    return 1;  // or the end
  }
  const std::uint64_t needed_uses = wanted - 1 + config_.capacity;
  const std::uint64_t missing = needed_uses - std::min(needed_uses, remaining_uses());
  return std::max<std::uint64_t>({1, room, (missing + factor_.max_uses() - 1) / factor_.max_uses()});
}

}  // namespace pyecho
