#include "core/plan/uniform_pool.hpp"

#include <stdexcept>

namespace pyecho {
namespace {

// Returns the entries of a full pool.
std::uint64_t most_entries(const PlanConfig& config) {
  const bool in_order = config.capacity == 1 && !config.unique_in_batch;
  return in_order ? 1 : std::uint64_t{config.capacity} * EchoFactor(config.factor).max_uses();
}

}  // namespace

UniformPool::UniformPool(const PlanConfig& config)
    : capacity_(config.capacity),
      unique_(config.unique_in_batch),
      entries_(most_entries(config)),
      resident_of_(config.slots),
      taken_by_(config.unique_in_batch ? config.slots : 0) {
  deferred_.reserve(unique_ ? entries_.size() : 0);
}

std::size_t UniformPool::size_bytes(const PlanConfig& config) {
  const std::uint64_t per_slot = sizeof(Resident) + (config.unique_in_batch ? sizeof(std::uint32_t) : 0);
  return most_entries(config) * sizeof(std::uint32_t) * (config.unique_in_batch ? 2 : 1) + config.slots * per_slot;
}

void UniformPool::clear() {
  resident_ = left_ = 0;
  batch_ = 1;
  deferred_.clear();
  std::ranges::fill(resident_of_, Resident{});
  std::ranges::fill(taken_by_, 0U);
}

void UniformPool::make_room(std::uint64_t uses) {
  if (uses <= entries_.size() || in_order()) [[likely]] {
    return;
  }
  if (uses >= PlanConfig::kMaxUses) {
    throw std::length_error("the items in the pool have 2^32 - 1 uses or more: lower shuffle_buffer");
  }
  deferred_.reserve(unique_ ? uses : 0);
  entries_.resize(uses);
}

void UniformPool::admit(const Item& item) noexcept {
  resident_of_[item.slot] = {.source_index = item.source_index, .uses_left = item.uses, .uses_drawn = 0};
  if (unique_) {
    taken_by_[item.slot] = 0;
  }
  std::fill_n(entries_.begin() + left_, in_order() ? 1 : item.uses, item.slot);
  left_ += item.uses;
  ++resident_;
}

// Without drawing: a repeat in batch echoing costs half as much.
std::uint32_t UniformPool::draw_in_order(std::span<Use> rows) noexcept {
  const std::uint32_t slot = entries_[0];
  const auto drawn = static_cast<std::uint32_t>(std::min<std::size_t>(rows.size(), left_));
  for (Use& use : rows.first(drawn)) {
    use = take_use(slot);
  }
  left_ -= drawn;
  return drawn;
}

void UniformPool::end_batch() noexcept {
  std::ranges::copy(deferred_, entries_.begin() + left_);
  left_ += static_cast<std::uint32_t>(deferred_.size());
  deferred_.clear();
  batch_ = batch_ == 0xFFFFFFFFU ? 1 : batch_ + 1;
}

}  // namespace pyecho
