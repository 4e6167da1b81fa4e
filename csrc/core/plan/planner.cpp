#include "core/plan/planner.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>

namespace pyecho {

EchoFactor::EchoFactor(double factor, std::uint64_t seed, std::uint64_t epoch) noexcept
    : whole_(static_cast<std::uint32_t>(std::floor(factor))),
      fraction_(factor - std::floor(factor)),
      key_(stream_key(seed, epoch, Stream::kFactor)) {
  assert(factor >= 1.0 && factor < static_cast<double>(PlannerConfig::kMaxUses));
}

std::uint64_t EchoFactor::uses_of_first(std::uint64_t items) const noexcept {
  std::uint64_t uses = items * whole_;
  if (fraction_ > 0.0) {
    for (std::uint64_t item = 0; item < items; ++item) {
      uses += uses_of(item) - whole_;
    }
  }
  return uses;
}

Planner::Planner(const PlannerConfig& config)
    : factor_(config.factor, config.seed, config.epoch),
      random_(stream_key(config.seed, config.epoch, Stream::kDraw)),
      capacity_(config.capacity),
      unique_(config.unique_in_batch),
      items_(config.slots),
      taken_by_(config.unique_in_batch ? config.slots : 0) {
  assert(config.capacity >= 1 && config.slots >= config.capacity);
  const std::uint64_t max_uses = std::uint64_t{config.capacity} * factor_.max_uses();
  assert(max_uses < PlannerConfig::kMaxUses);
  if (capacity_ > 1) {
    entries_.resize(max_uses);  // touches the memory now rather than later
    entries_.clear();
    deferred_.reserve(unique_ ? max_uses : 0);
  }
}

void Planner::admit(std::uint32_t slot) noexcept {
  assert(has_room() && slot < items_.size());
  const std::uint32_t uses = factor_.uses_of(admitted_);
  items_[slot] = {.source_index = admitted_, .uses_left = uses, .uses_drawn = 0};
  if (unique_) {
    taken_by_[slot] = 0;
  }
  if (capacity_ == 1) {
    only_slot_ = slot;
  } else {
    entries_.insert(entries_.end(), uses, slot);  // within what was reserved
  }
  ++admitted_;
  ++resident_;
  remaining_uses_ += uses;
}

void Planner::begin_batch() noexcept {
  entries_.insert(entries_.end(), deferred_.begin(), deferred_.end());
  deferred_.clear();
  batch_ = batch_ == 0xFFFFFFFFU ? 1 : batch_ + 1;
}

// Takes a random entry out of the array, those of items that this batch has already aside. False if there is none left.
bool Planner::pick(std::uint32_t& slot) noexcept {
  while (!entries_.empty()) {
    const std::uint32_t position = random_.below(static_cast<std::uint32_t>(entries_.size()));
    slot = entries_[position];
    entries_[position] = entries_.back();
    entries_.pop_back();
    if (!unique_ || taken_by_[slot] != batch_) {
      return true;
    }
    deferred_.push_back(slot);
  }
  return false;
}

// Takes one use of the item; with the last one it leaves the pool.
inline Use Planner::take_use(std::uint32_t slot) noexcept {
  Item& item = items_[slot];
  const bool last = --item.uses_left == 0;
  resident_ -= last ? 1U : 0U;
  return {.slot = slot, .ordinal = item.uses_drawn++, .source_index = item.source_index, .last = last};
}

bool Planner::draw(Use& use) noexcept {
  assert(!has_room());
  std::uint32_t slot = only_slot_;
  if (capacity_ == 1) {
    if (remaining_uses_ == 0 || (unique_ && taken_by_[slot] == batch_)) {
      return false;
    }
  } else if (!pick(slot)) {
    return false;
  }
  if (unique_) {
    taken_by_[slot] = batch_;
  }
  --remaining_uses_;
  use = take_use(slot);
  return true;
}

std::uint32_t Planner::draw(std::span<Use> uses) noexcept {
  std::uint32_t drawn = 0;
  if (capacity_ == 1 || unique_) {
    while (drawn < uses.size() && !has_room() && draw(uses[drawn])) {
      ++drawn;
    }
    return drawn;
  }
  // What changes with every draw is kept out of memory.
  Xoshiro256 random = random_;
  std::uint32_t* const entries = entries_.data();
  const auto limit = static_cast<std::uint32_t>(std::min(uses.size(), entries_.size()));
  auto left = static_cast<std::uint32_t>(entries_.size());
  while (drawn < limit && !has_room()) {
    const std::uint32_t position = random.below(left);
    const std::uint32_t slot = entries[position];
    entries[position] = entries[--left];
    uses[drawn++] = take_use(slot);
  }
  random_ = random;
  entries_.resize(left);
  remaining_uses_ -= drawn;
  return drawn;
}

std::uint64_t Planner::min_admissions(std::uint64_t draws) const noexcept {
  if (draws == 0 || !has_room()) {
    return 0;
  }
  // With the pool full and u uses in it, u - capacity draws leave every item in, and one more may empty a place.
  const std::uint64_t room = capacity_ - resident_;
  const std::uint64_t needed_uses = draws - 1 + capacity_;
  const std::uint64_t missing = needed_uses > remaining_uses_ ? needed_uses - remaining_uses_ : 0;
  return std::max(room, (missing + factor_.max_uses() - 1) / factor_.max_uses());
}

}  // namespace pyecho
