// A stream with a fixed echo factor: draws uniformly among all remaining uses of the items in its pool.
//
// The remaining uses are an array of slot numbers, one entry for each use. A draw takes a random entry and moves the
// last one into its place, so its cost is constant for any capacity. With unique_in_batch a second use of an item in a
// batch is deferred to the next batch. A pool of one item needs one entry, whatever its uses.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <vector>

#include "core/plan/stream.hpp"

namespace pyecho {

class FixedStream : public Stream {
 public:
  explicit FixedStream(const PlanConfig& config)
      : Stream(config), entries_(most_entries(config)), items_(config.slots), taken_by_(unique() ? config.slots : 0) {
    deferred_.reserve(unique() ? entries_.size() : 0);
  }
  // Returns the bytes that the pool of a configuration allocates.
  [[nodiscard]] static std::size_t size_bytes(const PlanConfig& config) {
    const std::uint64_t per_slot = sizeof(Resident) + (config.unique_in_batch ? sizeof(taken_by_[0]) : 0);
    return most_entries(config) * sizeof(entries_[0]) * (config.unique_in_batch ? 2 : 1) + config.slots * per_slot;
  }

  void begin(const StreamBegin& from, const Extent& extent) {
    begin_at(from, extent);
    admitted_uses_ = lead_;
    resident_ = left_ = 0;
    batch_ = 1;
    deferred_.clear();
    std::ranges::fill(items_, Resident{});
    std::ranges::fill(taken_by_, 0U);
    const std::uint64_t uses = std::min<std::uint64_t>(config_.capacity, extent.items) * factor_.max_uses();
    if (uses >= PlanConfig::kMaxUses) {
      throw std::invalid_argument(kTooManyUses);
    }
    make_room(uses);  // here, where a lack of memory loses nothing
  }

  Outcome ready(bool /*awaited*/) {
    close_passes();
    // Checked before items are admitted. Otherwise the order of entries would depend on how early items were fed,
    // because the deferred entries of the batch must come before the entries of new items.
    if (uses_left_in_iteration() == 0) {
      // Timing must not decide whether an iteration of a fixed number of uses is the last, so wait for an item or the
      // end.
      const bool known = config_.iteration_uses == 0 || uses_left() > 0 || has_item() || ended();
      return known ? Outcome::kEnd : Outcome::kEmpty;
    }
    while (!full() && has_item() && may_admit()) {
      admit_next();
    }
    if (exhausted()) {
      return Outcome::kEnd;
    }
    const bool draining = drained() || (at_joint() && uses_left() > 0);
    return full() || draining ? Outcome::kOk : Outcome::kEmpty;
  }
  // Draws until `rows` is full, an item must be fed, the end of the iteration becomes known, or every entry is deferred.
  std::uint32_t draw_some(std::span<Use> rows) { return in_order() ? draw_in_order(rows) : draw_shuffled(rows); }
  // Deferred uses can be drawn again.
  void end_batch() noexcept {
    std::ranges::copy(deferred_, entries_.begin() + left_);
    left_ += static_cast<std::uint32_t>(deferred_.size());
    deferred_.clear();
    batch_ = batch_ == 0xFFFFFFFFU ? 1 : batch_ + 1;
  }
  void next_iteration() noexcept {
    close_passes();  // of several streams, only the one whose turn it was knows of the end
    Stream::next_iteration(exhausted());
  }

  void forget_segment() noexcept { forget_begun(); }

  [[nodiscard]] std::uint64_t min_items(std::uint64_t draws) const noexcept {
    // With u uses in a full pool, u - capacity draws may leave every item in the pool, and the next draw removes one.
    const std::uint64_t room = config_.capacity - resident_;
    const std::uint64_t wanted = std::min(draws, uses_left_in_iteration());
    if (wanted == 0) {
      return 1;  // or the end
    }
    const std::uint64_t needed_uses = wanted - 1 + config_.capacity;
    const std::uint64_t missing = needed_uses - std::min<std::uint64_t>(needed_uses, in_pool());
    return std::max<std::uint64_t>({1, room, (missing + factor_.max_uses() - 1) / factor_.max_uses()});
  }
  [[nodiscard]] std::uint32_t resident() const noexcept { return resident_; }
  // Returns true if the item in this slot is in the pool.
  [[nodiscard]] bool holds(std::uint32_t slot) const noexcept { return items_[slot].uses_left > 0; }

 private:
  struct Resident {
    std::uint64_t source_index;
    std::uint32_t uses_left;
    std::uint32_t uses_drawn;
  };

  static constexpr std::uint32_t kLargePool = 1U << 18U;  // entries, of four bytes, beyond the second level of caches
  static constexpr std::uint32_t kItemsAhead = 8;         // draws
  static constexpr const char* kTooManyUses = "the items in the pool have 2^32 - 1 uses or more: lower shuffle_buffer";

  // Returns the entries of a full pool.
  [[nodiscard]] static std::uint64_t most_entries(const PlanConfig& config) {
    const bool in_order = config.capacity == 1 && !config.unique_in_batch;
    return in_order ? 1 : std::uint64_t{config.capacity} * EchoFactor(config.factor).max_uses();
  }
  [[nodiscard]] bool unique() const noexcept { return config_.unique_in_batch; }
  // True if the uses of an item are drawn one after the other.
  [[nodiscard]] bool in_order() const noexcept { return config_.capacity == 1 && !unique(); }
  [[nodiscard]] bool full() const noexcept { return resident_ == config_.capacity; }
  [[nodiscard]] std::uint64_t in_pool() const noexcept { return left_ + deferred_.size(); }
  [[nodiscard]] std::uint64_t uses_left() const noexcept { return in_pool() + lead_; }
  [[nodiscard]] bool exhausted() const noexcept { return drained() && uses_left() == 0; }

  // Allocates for as many uses, if that is more than a full pool has with the configured factor. Throws std::bad_alloc,
  // std::length_error.
  void make_room(std::uint64_t uses) {
    if (uses <= entries_.size() || in_order()) [[likely]] {
      return;
    }
    if (uses >= PlanConfig::kMaxUses) {
      throw std::length_error(kTooManyUses);
    }
    deferred_.reserve(unique() ? uses : 0);
    entries_.resize(uses);
  }
  // Returns false if no item may be admitted before uses are drawn.
  [[nodiscard]] bool may_admit() {
    if (!at_joint()) [[likely]] {
      return true;
    }
    if (uses_left() > 0) {
      return false;
    }
    cross();
    return true;
  }
  void admit_next() {
    make_room(in_pool() + factor_.max_uses());  // of passes that flow, there may be more items
    const Item item = take();
    items_[item.slot] = {.source_index = item.source_index, .uses_left = item.uses, .uses_drawn = 0};
    if (unique()) {
      taken_by_[item.slot] = 0;
    }
    std::fill_n(entries_.begin() + left_, in_order() ? 1 : item.uses, item.slot);
    left_ += item.uses;
    ++resident_;
    admitted_uses_ += item.uses;
    close_passes();
  }
  // Closes passes whose last item has been admitted.
  void close_passes() noexcept {
    while (at_pass_end()) {
      if (ends_over_ > 0) {
        --ends_over_;
      } else if (config_.iteration_uses == 0) {
        iteration_ends_.push_back(admitted_uses_);
      }
      close_pass();
    }
  }

  // Takes one use of the item, which leaves the pool with its last use. Returns true if that is the last. Writes the
  // members one by one: a whole Use would be read back from the stack before it is stored.
  bool take_use(std::uint32_t slot, Use& use) noexcept {
    Resident& item = items_[slot];
    const bool last = --item.uses_left == 0;
    resident_ -= last ? 1 : 0;
    use.slot = slot;
    use.ordinal = item.uses_drawn++;
    use.source_index = item.source_index;
    use.last = last;
    return last;
  }
  // Without drawing: a repeat in batch echoing costs half as much.
  [[nodiscard]] std::uint32_t draw_in_order(std::span<Use> rows) noexcept {
    const std::uint32_t slot = entries_[0];
    const auto drawn = static_cast<std::uint32_t>(std::min<std::size_t>(rows.size(), left_));
    std::ranges::for_each(rows.first(drawn), [&](Use& use) { take_use(slot, use); });
    left_ -= drawn;
    return drawn;
  }
  [[nodiscard]] std::uint32_t draw_shuffled(std::span<Use> rows) {
    const bool draining = drained();
    const std::size_t ends = iteration_ends_.size();
    std::uint32_t* entries = entries_.data();  // local copies, in registers
    std::uint32_t left = left_;
    std::uint32_t drawn = 0;
    const auto limit = static_cast<std::uint32_t>(rows.size());
    const bool large = left > kLargePool;
    while (drawn < limit && left > 0) {
      // In a large pool each draw misses the caches, for its entry and for the item. What will be drawn is fetched, or a
      // neighbour if items come or go in between: then the item was fetched in vain.
      if (large) {
        __builtin_prefetch(entries + random_.peek(RandomAhead::kAhead, left));
        __builtin_prefetch(&items_[entries[random_.peek(kItemsAhead, left)]]);
      }
      const std::uint32_t position = random_.below(left);
      const std::uint32_t slot = entries[position];
      entries[position] = entries[--left];
      if (unique()) {
        if (taken_by_[slot] == batch_) {
          deferred_.push_back(slot);
          continue;
        }
        taken_by_[slot] = batch_;
      }
      const bool last = take_use(slot, rows[drawn++]);
      // After the last row of a batch, its deferred entries come before those of new items.
      if (last && drawn < limit && !draining && !at_joint()) {
        if (!has_item()) {
          break;
        }
        left_ = left;
        admit_next();
        left = left_;
        entries = entries_.data();  // may have grown
        if (iteration_ends_.size() != ends) {
          break;
        }
      }
    }
    left_ = left;
    return drawn;
  }

  std::uint32_t resident_ = 0;           // items in the pool
  std::uint32_t left_ = 0;               // entries in use
  std::vector<std::uint32_t> entries_;   // slot numbers that may be drawn, one for each use
  std::vector<std::uint32_t> deferred_;  // entries deferred to the next batch; unique_in_batch only
  std::vector<Resident> items_;          // by slot
  std::uint32_t batch_ = 1;              // never 0
  // By slot: the last batch that took the item, modulo 2^32; unique_in_batch only.
  std::vector<std::uint32_t> taken_by_;
  std::uint64_t admitted_uses_ = 0;  // of all items admitted so far
};

}  // namespace pyecho
