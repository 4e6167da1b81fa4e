// The memory of batches: blocks that are filled and leased.
//
// The cycle of a block: free -> being filled -> ready -> leased -> free. Consumers may keep any number of leases for as
// long as they like and end them in any order. When every block is in use, the pool adds one, up to its limit; added
// blocks that were idle for an epoch are freed at its end. The pool lives until its last lease ends, so a view of a
// batch never dangles. With uploads, a block is free again once its copy to the device is over as well. The end of a
// copy is not reported, so the filling side looks.
//
// variable     | written by        | read by       | order            | pairs with | why
// returned_    | give_back [B1]    | obtain [B2]   | release, acq_rel | B1 -> B2   | the consumer is done with the block
// outstanding_ | lease, give_back  | any           | relaxed          | -          | a count for messages and decisions; may be
//              |                   |               |                  |            | stale, because the caller checks again
// block_count_ | obtain, end_epoch | any           | release, acquire | -          | the number of blocks
// refused_     | obtain, begin     | any           | release, acquire | -          | the last attempt to obtain reached a limit
// refusal_     | obtain            | any           | mutex            | -          | the limit that was reached last
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <new>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/memory/host_memory.hpp"
#include "core/memory/sizes.hpp"
#include "core/memory/slot_layout.hpp"
#include "core/plan/plan.hpp"
#include "core/stage/uploads.hpp"
#include "core/sync/atomic.hpp"
#include "core/sync/event_count.hpp"
#include "core/sync/fork_guard.hpp"

namespace pyecho {

inline constexpr std::size_t kUnlimited = std::numeric_limits<std::size_t>::max();

// The elements of a ragged leaf of a batch, one row after the other.
class Values {
 public:
  // Returns memory for so many bytes behind those that are there, which will be `most_bytes` at most. Not after
  // share(). Throws std::bad_alloc.
  std::byte* append(std::size_t size_bytes, std::size_t most_bytes) {
    const std::size_t needed = size_bytes_ + size_bytes;
    if (needed > room_bytes_) {
      std::size_t room = std::max(needed, std::min(room_bytes_ + room_bytes_ / 2, most_bytes));
      void* larger = std::realloc(data_.get(), room);
      if (larger == nullptr && room > needed) {
        larger = std::realloc(data_.get(), room = needed);
      }
      if (larger == nullptr) {
        throw std::bad_alloc();
      }
      std::ignore = data_.release();  // realloc() has freed it
      data_.reset(static_cast<std::byte*>(larger));
      room_bytes_ = room;
    }
    return data_.get() + std::exchange(size_bytes_, needed);
  }
  [[nodiscard]] std::size_t size_bytes() const noexcept { return size_bytes_; }
  // Keeps what is there now; or forgets what was appended since.
  void keep() noexcept { kept_bytes_ = size_bytes_; }
  void undo() noexcept { size_bytes_ = kept_bytes_; }
  // Returns the elements, null if there are none, until clear().
  [[nodiscard]] std::byte* data() const noexcept { return data_ != nullptr ? data_.get() : shared_.get(); }
  // Same, and they outlive the batch.
  std::shared_ptr<std::byte> share() {
    if (data_ != nullptr) {
      shared_ = std::move(data_);
    }
    return shared_;
  }
  // Forgets the elements. Keeps the memory, unless it was shared, or is more than so many bytes.
  void clear(std::size_t most_bytes = std::numeric_limits<std::size_t>::max()) noexcept {
    if (std::exchange(shared_, nullptr) != nullptr) {
      room_bytes_ = 0;
    }
    if (room_bytes_ > most_bytes) {
      data_ = nullptr;
      room_bytes_ = 0;
    }
    size_bytes_ = kept_bytes_ = 0;
  }

 private:
  struct Free {
    void operator()(std::byte* data) const noexcept { std::free(data); }
  };

  std::unique_ptr<std::byte, Free> data_;
  std::shared_ptr<std::byte> shared_;
  std::size_t size_bytes_ = 0;
  std::size_t kept_bytes_ = 0;
  std::size_t room_bytes_ = 0;
};

struct Padding {
  Values rows;                        // padded, once the batch is whole
  std::vector<std::uint64_t> places;  // the shape of each
};

// One block: memory for a batch, and the use of each row.
struct Batch {
  HostMemory memory;
  Upload upload;
  std::vector<Values> values;   // by leaf, if any is ragged
  std::vector<Padding> padded;  // likewise
  std::vector<Use> uses;        // of the rows; sized for a whole batch once
  std::uint64_t number = 0;     // in the order of planning
  std::uint64_t epoch = 0;      // the number of its iteration, of which
  std::uint64_t begin = 0;      // uses are in the batches before
  std::uint32_t rows = 0;       // planned
  std::uint32_t copied = 0;     // rows copied, at most `rows`
  std::uint32_t fresh = 0;      // of these, first uses
  bool whole = false;           // planned, copied, sent, and its slots reported
  // Numbers of the items whose last use is among the copied rows, in their order; with an adaptive factor, of which any
  // use may turn out to be the last, those of all copied rows.
  std::vector<std::uint64_t> spent;
  Batch* next = nullptr;  // in the stack of returned blocks; written by give_back
  std::size_t place = 0;  // among all blocks of the pool

  // Returns the rows that are not planned yet.
  [[nodiscard]] std::span<Use> missing() noexcept { return std::span(uses).subspan(rows); }
};

class BatchPool {
 public:
  // Sets `upload` if batches are sent to a device.
  using NewMemory = std::function<HostMemory(std::size_t size_bytes, Upload& upload)>;

  // Allocates `blocks` blocks. Adds more on demand while all blocks together fit in `max_bytes`, but none if the memory
  // comes from `new_memory` (optional). `uploads`: where batches are sent (optional). Throws as HostMemory and
  // `new_memory` do.
  BatchPool(SlotLayout layout, std::uint32_t blocks, std::size_t max_bytes, const NewMemory& new_memory = {},
            std::shared_ptr<Uploads> uploads = {});

  [[nodiscard]] const SlotLayout& layout() const noexcept { return layout_; }

  // Returns the bytes of one block, including its uses and the pool's bookkeeping. `bounded`: and the most that rows
  // of any size may have.
  [[nodiscard]] static std::size_t block_bytes(const SlotLayout& layout, bool bounded) noexcept {
    const std::size_t ragged_bytes = bounded ? layout.ragged_bytes() : 0;
    const std::size_t of_rows = times(plus(sizeof(Use) + sizeof(std::uint64_t), ragged_bytes), layout.rows());
    return plus(HostMemory::rounded_bytes(layout.batch_bytes()) + sizeof(Batch) + sizeof(owned_[0]), of_rows);
  }

  // -- The filling side: one thread at a time --

  // Returns a block to fill. Returns null if all are in use and the limit (or the system) allows no more.
  Batch* obtain();
  // Frees added blocks as far as they were not needed since the last call.
  void end_epoch();
  // Cancels a refusal: it concerns one attempt of one plan.
  void forget_refusal() noexcept {
    if (refused_.load_relaxed() != 0) {
      refused_.store_release(0);
    }
  }
  // Blocks until returns() exceeds `seen` (kOk), `interrupted()` is true (kEmpty), or the deadline has passed
  // (kTimeout).
  template <class Interrupted>
  Outcome await_return(std::uint64_t seen, Deadline deadline, const Interrupted& interrupted) {
    Outcome outcome = Outcome::kTimeout;
    for (auto pause = kShortestPause; outcome == Outcome::kTimeout; pause = std::min(2 * pause, kLongestPause)) {
      const Deadline look = uploads_ == nullptr ? deadline : std::min(deadline, Deadline::clock::now() + pause);
      outcome = returns_.await(seen + 1, look, WaitStrategy::sleep(), interrupted);
      if (look == deadline) {
        break;
      }
      if (outcome == Outcome::kTimeout && find_free() != nullptr) {
        outcome = Outcome::kOk;
      }
    }
    return outcome;
  }
  [[nodiscard]] std::uint64_t returns() const noexcept { return returns_.read(); }
  void alert() { returns_.alert(); }
  // Sends a batch that is whole to the device, if it goes to one. The thread that has the batch. `by_consumer`: it is
  // none of pyecho's, and its device and capture mode stay as they are; the batch is sent as after an error.
  void send(Batch& batch, bool by_consumer) noexcept {
    if (by_consumer) {
      batch.upload.error = Upload::kUnsent;
    } else if (uploads_ != nullptr) {
      uploads_->send(batch.memory.data(), layout_.leaves_bytes(), batch.upload);
    }
  }

  // -- Any thread --

  void lease() noexcept { outstanding_.fetch_add_relaxed(1); }
  // Returns a block, whether it was leased or not. Blocks only to wake a filler.
  void give_back(Batch* batch, bool was_leased);
  [[nodiscard]] std::uint64_t outstanding() const noexcept { return outstanding_.load_relaxed(); }
  [[nodiscard]] std::uint64_t blocks() const noexcept { return block_count_.load_acquire(); }
  // True if the last attempt to obtain was refused and every block is leased, so that filling continues only after a
  // lease ends.
  [[nodiscard]] bool exhausted() const noexcept { return refused_.load_acquire() != 0 && outstanding() == blocks(); }
  // Returns the reason why the last attempt to add a block failed; "" if `max_bytes` was the limit.
  [[nodiscard]] std::string refusal() const;

 private:
  // A wait for the end of a copy looks after these times, ever longer ones, so that a stream that is held costs little.
  static constexpr std::chrono::microseconds kShortestPause{50};
  static constexpr std::chrono::microseconds kLongestPause{1000};

  Batch* add_block(const NewMemory& new_memory);
  Batch** find_free() noexcept;
  Batch* refuse(const char* reason);
  void take_returned() noexcept;

  ForkGuard fork_guard_;
  SlotLayout layout_;                               // constant
  Placement placement_ = Placement::for_batches();  // constant
  std::size_t max_bytes_;                           // constant
  const std::shared_ptr<Uploads> uploads_;
  std::vector<std::unique_ptr<Batch>> owned_;  // filling side only
  Batch* free_ = nullptr;                      // filling side only: blocks taken off returned_
  std::size_t least_;                          // blocks to begin with
  std::uint64_t most_leased_ = 0;              // filling side only: at a time, since end_epoch()
  Atomic<Batch*> returned_;                    // pushed by any thread, taken whole by the filling side
  EventCount returns_;                         // advanced by give_back
  Sequence<> outstanding_;                     // leases alive
  Atomic<std::uint64_t> block_count_;          // owned_.size(), for other threads
  Atomic<std::uint32_t> refused_;              // set by the filling side
  mutable std::mutex refusal_mutex_;
  std::string refusal_;  // guarded by refusal_mutex_
};

// The right to read and write one batch. The block can be filled again once the lease ends. Move-only, any thread.
class Lease {
 public:
  Lease() noexcept = default;
  Lease(std::shared_ptr<BatchPool> pool, Batch* batch) noexcept : pool_(std::move(pool)), batch_(batch) {
    pool_->lease();
  }
  ~Lease() { reset(); }
  Lease(Lease&& other) noexcept : pool_(std::move(other.pool_)), batch_(std::exchange(other.batch_, nullptr)) {}
  Lease& operator=(Lease&& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(batch_, other.batch_);
    return *this;
  }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  explicit operator bool() const noexcept { return batch_ != nullptr; }
  [[nodiscard]] std::byte* data() const noexcept { return batch_->memory.data(); }
  [[nodiscard]] std::uint32_t rows() const noexcept { return batch_->rows; }
  // Returns the use of each row.
  [[nodiscard]] std::span<const Use> uses() const noexcept { return std::span(batch_->uses).first(batch_->rows); }
  [[nodiscard]] const SlotLayout& layout() const noexcept { return pool_->layout(); }

  [[nodiscard]] const Batch& batch() const noexcept { return *batch_; }
  // The elements of a ragged leaf, one row after the other; of a padded one with its padding.
  [[nodiscard]] Values& values(std::size_t leaf) const noexcept {
    return layout().leaves()[leaf].pad.empty() ? batch_->values[leaf] : batch_->padded[leaf].rows;
  }
  // The shape of each row of a padded leaf.
  [[nodiscard]] std::span<const std::uint64_t> places(std::size_t leaf) const noexcept {
    return batch_->padded[leaf].places;
  }

  // Returns the owner of the memory, if the pool's memory comes from another allocator.
  [[nodiscard]] void* owner() const noexcept { return batch_->memory.owner(); }
  // The destination of this batch, and of the next one in its block.
  [[nodiscard]] Upload& upload() const noexcept { return batch_->upload; }
  // Ends the lease and leaves the batch's memory to its owner; the block continues with `memory`, of the same size.
  void exchange(HostMemory memory) {
    batch_->memory = std::move(memory);
    reset();
  }

  void reset() {
    if (batch_ != nullptr) {
      pool_->give_back(std::exchange(batch_, nullptr), true);
      pool_.reset();
    }
  }

 private:
  std::shared_ptr<BatchPool> pool_;
  Batch* batch_ = nullptr;
};

}  // namespace pyecho
