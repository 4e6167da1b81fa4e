#include "core/plan/fixed_stream.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace pyecho {

void FixedStream::begin(const StreamBegin& from, const Extent& extent) {
  if (extent.uses != kUnknown) {
    if (extent.items == kUnknown || extent.items == 0 || extent.uses < extent.items) {
      throw std::invalid_argument("a pass of " + std::to_string(extent.items) + " items cannot have " +
                                  std::to_string(extent.uses) + " uses: each stream needs items, and of each a use");
    }
    if (extent.uses / extent.items >= PlanConfig::kMaxUses) {
      throw std::invalid_argument("an item has fewer than 2^32 - 1 uses");
    }
  }
  Stream::begin(from, extent);
  admitted_uses_ = lead_;
  pool_.clear();
  const std::uint64_t uses = std::min<std::uint64_t>(config_.capacity, extent.items) * input_.most_uses();
  if (uses >= PlanConfig::kMaxUses) {
    throw std::invalid_argument("the items in the pool have 2^32 - 1 uses or more: lower shuffle_buffer");
  }
  pool_.make_room(uses);  // here, where a lack of memory loses nothing
}

// ---------------------------------------------------------------- input

// Closes passes whose last item has been admitted.
inline void FixedStream::close_passes() noexcept {
  while (input_.at_pass_end()) {
    if (ends_over_ > 0) {
      --ends_over_;
    } else if (config_.iteration_uses == 0) {
      iteration_ends_.push_back(admitted_uses_);
    }
    input_.close_pass();
  }
}

inline void FixedStream::admit_next() {
  pool_.make_room(pool_.uses_left() + input_.most_uses());  // of passes that flow, there may be more items
  const Item item = input_.take();
  pool_.admit(item);
  admitted_uses_ += item.uses;
  close_passes();
}

// Returns false if no item may be admitted before uses are drawn.
inline bool FixedStream::may_admit() {
  if (!input_.at_joint()) [[likely]] {
    return true;
  }
  if (uses_left() > 0) {
    return false;
  }
  cross();
  return true;
}

// ---------------------------------------------------------------- output

Outcome FixedStream::ready(bool /*awaited*/) {
  close_passes();
  // Checked before items are admitted. Otherwise the order of entries would depend on how early items were fed, because
  // the deferred entries of the batch must come before the entries of new items.
  if (uses_left_in_iteration() == 0) {
    // Timing must not decide whether an iteration of a fixed number of uses is the last, so wait for an item or the
    // end.
    const bool known = config_.iteration_uses == 0 || uses_left() > 0 || input_.has_item() || input_.ended();
    return known ? Outcome::kEnd : Outcome::kEmpty;
  }
  while (!pool_.full() && input_.has_item() && may_admit()) {
    admit_next();
  }
  if (exhausted()) {
    return Outcome::kEnd;
  }
  const bool draining = input_.drained() || (input_.at_joint() && uses_left() > 0);
  return pool_.full() || draining ? Outcome::kOk : Outcome::kEmpty;
}

// Draws until `rows` is full, an item must be fed, the end of the iteration becomes known, or every entry is deferred.
std::uint32_t FixedStream::draw_some(std::span<Use> rows) {
  const bool draining = input_.drained();
  const std::size_t ends = iteration_ends_.size();
  return pool_.draw(rows, random_, [&] {
    if (draining || input_.at_joint()) {
      return true;
    }
    if (!input_.has_item()) {
      return false;
    }
    admit_next();
    return iteration_ends_.size() == ends;
  });
}

std::uint64_t FixedStream::min_items(std::uint64_t draws) const noexcept {
  // With u uses in a full pool, u - capacity draws may leave every item in the pool, and the next draw removes one.
  const std::uint64_t room = config_.capacity - pool_.resident();
  const std::uint64_t wanted = std::min(draws, uses_left_in_iteration());
  if (wanted == 0) {
    return 1;  // or the end
  }
  const std::uint64_t needed_uses = wanted - 1 + config_.capacity;
  const std::uint64_t missing = needed_uses - std::min<std::uint64_t>(needed_uses, pool_.uses_left());
  return std::max<std::uint64_t>({1, room, (missing + input_.most_uses() - 1) / input_.most_uses()});
}

}  // namespace pyecho
