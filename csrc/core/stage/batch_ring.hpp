// A ring of batches on their way to the consumer: planned -> claimed -> ready -> taken, by numbers that only grow.
//
// The thread that plans puts batches in, in their order. Any thread that copies claims the next one that is planned, and
// publishes it once it is copied, in any order. The consumer takes them in the order of planning.
//
//     planner, one at a time    if (!ring.full()) { ring.plan(item); }
//     any thread                if (Claim claim; ring.claim(claim)) { copy *claim.item; ring.publish(claim); }
//     consumer                  if (Item* item = ring.front(); item != nullptr) { use it; ring.take(); }
//
// variable | written by     | read by          | order            | pairs with | why
// planned_ | plan [D1]      | claim [D2], any  | release, acquire | D1 -> D2   | the item, and what was planned for it
// claimed_ | claim          | claim, waiting() | relaxed CAS      | -          | only claims numbers
// ready    | publish [D3]   | front [D4]       | release, acquire | D3 -> D4   | the item is copied; a number and 1, so that it
//          |                |                  |                  |            | is empty again with the next number
// taken    | take           | full()           | EventCount       | E1 -> E5   | the consumer's last use of the place before its
//          |                |                  |                  |            | next filling
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/sync/atomic.hpp"
#include "core/sync/event_count.hpp"

namespace pyecho {

template <class Item, template <class> class Atom = std::atomic, class Count = EventCount>
class BatchRing {
 public:
  struct Claim {
    Item* item = nullptr;
    std::uint64_t number = 0;
  };

  // `depth`: maximum of items planned and not yet taken.
  explicit BatchRing(std::uint32_t depth) : depth_(depth), places_(std::bit_ceil(depth)) {}
  // Returns the bytes that such a ring allocates.
  [[nodiscard]] static std::size_t size_bytes(std::uint32_t depth) noexcept {
    return std::bit_ceil(depth) * sizeof(Place);
  }

  // -- The planner: one thread at a time --

  [[nodiscard]] std::uint64_t planned() const noexcept { return planned_.load_relaxed(); }
  [[nodiscard]] bool full() const noexcept { return planned_.load_relaxed() >= taken_.read() + depth_; }
  // Requires that the ring is not full.
  void plan(Item* item) noexcept {
    const std::uint64_t number = planned_.load_relaxed();
    place_of(number).item = item;
    planned_.store_release(number + 1);  // [D1] pairs with [D2]
  }

  // -- Threads that copy: any number --

  // Returns false if no item is planned and not claimed.
  bool claim(Claim& claim) noexcept {
    claim.number = claimed_.load_relaxed();
    do {
      if (claim.number >= planned_.load_acquire()) {  // [D2] pairs with [D1]
        return false;
      }
    } while (!claimed_.try_claim_relaxed(claim.number, claim.number + 1));
    claim.item = place_of(claim.number).item;
    return true;
  }
  void publish(const Claim& claim) {
    place_of(claim.number).ready.store_release(claim.number + 1);  // [D3] pairs with [D4]
    ready_.advance();
  }

  // Claims and publishes the item that was planned last, where one thread does everything, and no other waits.
  void pass() noexcept {
    const std::uint64_t planned = planned_.load_relaxed();
    claimed_.store_relaxed(planned);
    place_of(planned - 1).ready.store_release(planned);
  }

  // -- The consumer --

  // Returns the next item, or null if it is not ready.
  [[nodiscard]] Item* front() noexcept {
    const std::uint64_t number = taken_.read();
    Place& place = place_of(number);
    return place.ready.load_acquire() == number + 1 ? place.item : nullptr;  // [D4] pairs with [D3]
  }
  void take() { taken_.advance(); }

  // -- Any thread --

  // Returns how many items are planned and not claimed; or not taken. May be stale.
  [[nodiscard]] std::uint64_t waiting() const noexcept {
    const std::uint64_t claimed = claimed_.load_acquire();  // read first, so that it never exceeds planned_
    return planned_.load_acquire() - claimed;
  }
  [[nodiscard]] std::uint64_t untaken() const noexcept {
    const std::uint64_t taken = taken_.read();  // likewise
    return planned_.load_acquire() - taken;
  }
  // Advanced by publish(), and by take().
  [[nodiscard]] Count& ready() noexcept { return ready_; }
  [[nodiscard]] Count& taken() noexcept { return taken_; }

  // -- No other thread inside --

  // Calls visit(item) for each item that is not taken.
  template <class Visit>
  void each_untaken(const Visit& visit) {
    for (std::uint64_t number = taken_.read(); number < planned_.load_relaxed(); ++number) {
      visit(place_of(number).item);
    }
  }
  // Drops them. Counts those that were not published as ready, so that all counts stand at the next number again.
  void clear() {
    claimed_.store_relaxed(planned_.load_relaxed());
    ready_.advance(planned_.load_relaxed() - ready_.read());
    taken_.advance(untaken());
  }

 private:
  struct Place {
    Item* item = nullptr;
    Atomic<std::uint64_t, Atom> ready;
  };

  [[nodiscard]] Place& place_of(std::uint64_t number) noexcept { return places_[number & (places_.size() - 1)]; }

  const std::uint64_t depth_;
  std::vector<Place> places_;  // a power of two
  Sequence<Atom> planned_;
  Sequence<Atom> claimed_;
  Count ready_;
  Count taken_;
};

}  // namespace pyecho
