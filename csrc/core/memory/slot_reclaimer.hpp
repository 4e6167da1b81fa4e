// Releases slots once every copy out of them has been made.
//
// Batches are planned one after the other and copied at the same time by several threads. So the last use of a slot may
// be copied before an earlier use that belongs to an earlier batch. The rule: a slot may be released once its last use
// has been copied and every earlier batch is whole (all its rows are copied). The oldest batch that is not whole, the
// front, releases its slots as they are copied. Slots of later batches are parked until the front reaches them.
//
// variable    | written by         | read by     | order            | pairs with | why
// front_      | copied [S1], with  | copied [S2] | release, acquire | S1 -> S2   | the copies of all earlier batches happen before
//             | mutex_             |             |                  |            | the release of a slot of the front
// parked_[i]  | copied             | copied      | mutex_           | -          | a batch parks its slots until it is the front
//
// A batch takes the mutex once, when it is whole, and more often only while it is ahead of the front. No thread waits
// while it holds the mutex, except for a producer that was suspended while it took a slot (SlotPool::release).
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "core/memory/slot_pool.hpp"
#include "core/sync/atomic.hpp"

namespace pyecho {

class SlotReclaimer {
 public:
  // At most `batches` batches of at most `rows` rows are copied at a time. `pool` outlives this.
  SlotReclaimer(SlotPool& pool, std::uint32_t batches, std::uint32_t rows);
  // Returns the bytes that such an object allocates.
  [[nodiscard]] static std::size_t size_bytes(std::uint32_t batches, std::uint32_t rows) noexcept {
    return std::size_t{batches} * (sizeof(Parked) + rows * sizeof(std::uint32_t));
  }

  // Reports that the last uses of these slots, in batch number `batch`, have been copied. `whole`: all rows of the batch
  // have been copied; the last call for each batch, and only the last, sets it. One thread at a time for each batch.
  void copied(std::uint64_t batch, std::span<const std::uint32_t> slots, bool whole);

  // Forgets the parked slots and starts with `batch` as the front. No batch may be in progress.
  void reset(std::uint64_t batch);

 private:
  struct Parked {
    std::vector<std::uint32_t> slots;
    bool whole = false;
  };

  SlotPool& pool_;
  Sequence<> front_;  // the oldest batch that is not whole
  std::mutex mutex_;
  std::vector<Parked> parked_;  // by batch number modulo its size
};

}  // namespace pyecho
