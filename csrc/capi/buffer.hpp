// The buffer behind the handle of the C interface (include/pyecho/pyecho.h), which is its contract.
//
// variable       | written by          | read by         | order          | why
// references_    | retain, release     | release         | acq_rel RMW    | the last one sees all that the others did
// open_[slot]    | reserve, commit,    | commit, abort   | relaxed RMW    | one thread ends a reservation; callers
//                | abort               |                 |                | hand the slot from thread to thread
// closed_        | close [P2]          | reserve [P1]    | acq_rel RMW    | a late reservation is seen by abort_open(), which
//                |                     |                 |                | follows, or sees that the pass is closed
// batches_ ...   | the consumer        | the consumer    | consumer_      |
// leases_ ...    | acquire, release    | the same        | lease_mutex_   |
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "core/stage/echo_buffer.hpp"
#include "core/sync/atomic.hpp"
#include "core/sync/outcome.hpp"
#include "pyecho/pyecho.h"

namespace pyecho::capi {

// A leaf with memory of its own. Not movable, because `view` points into it.
struct Leaf {
  // The offsets are set by Buffer. `variable`: if examples differ in size.
  Leaf(const char* name, const char* dtype, std::span<const std::int64_t> shape, std::size_t size_bytes,
       const VariableLeaf& variable = {});
  ~Leaf() = default;
  Leaf(const Leaf&) = delete;
  Leaf& operator=(const Leaf&) = delete;

  const std::string name;
  const std::string dtype;
  const std::vector<std::int64_t> shape;
  const VariableLeaf variable;
  std::shared_ptr<const ops::Program> program;  // null: rows are copies
  std::uint64_t program_sum = 0;                // tells programs apart
  pyecho_leaf view;
};
using Leaves = std::vector<std::unique_ptr<Leaf>>;

// Waits for room in place of Buffer: calls `attempt(deadline of a slice)` until it returns something else than
// kTimeout, or the deadline has passed. Returns false if the thread was interrupted.
using Waiter = bool (*)(const std::function<Outcome(Deadline)>& attempt, Deadline deadline, Outcome& outcome);

// The consumer of a buffer, and its input.
enum class Role : unsigned char {
  kWhole,     // the caller
  kProducer,  // something else
  kPass       // something else, and the input is one pass over a source
};

// Measures the time during which at least one thread waits. Any thread.
class WaitClock {
 public:
  // Counts the calling thread while it exists.
  class Span {
   public:
    explicit Span(WaitClock& clock) : clock_(clock) { clock_.add(1); }
    ~Span() { clock_.add(-1); }
    Span(const Span&) = delete;
    Span& operator=(const Span&) = delete;

   private:
    WaitClock& clock_;
  };

  // Returns how many threads wait.
  [[nodiscard]] std::uint32_t waiting() const {
    const std::scoped_lock lock(mutex_);
    return waiting_;
  }
  [[nodiscard]] std::uint64_t waited_ns() const {
    const std::scoped_lock lock(mutex_);
    return waited_ns_ + (waiting_ == 0 ? 0 : ns_of(Clock::now() - since_));
  }

 private:
  void add(int threads) {
    const std::scoped_lock lock(mutex_);
    const Clock::time_point now = Clock::now();
    waited_ns_ += waiting_ == 0 ? 0 : ns_of(now - since_);
    since_ = now;
    waiting_ += static_cast<std::uint32_t>(threads);
  }

  mutable std::mutex mutex_;
  std::uint32_t waiting_ = 0;  // guarded by mutex_, like the next two
  Clock::time_point since_{};
  std::uint64_t waited_ns_ = 0;
};

class Buffer final : public pyecho_buffer {
 public:
  // A buffer that the caller consumes. Throws as EchoBuffer does.
  Buffer(Leaves leaves, EchoConfig config);
  // A buffer that something else consumes: only producers' functions may be called. `leaves`: the first ones of the
  // core's.
  Buffer(Role role, Leaves leaves, std::shared_ptr<EchoBuffer> core, Waiter waiter);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  // Returns null if that is no buffer.
  static Buffer* of(pyecho_buffer* handle) noexcept {
    auto* const buffer = static_cast<Buffer*>(handle);
    return handle != nullptr && buffer->magic_ == kMagic ? buffer : nullptr;
  }

  void retain() noexcept { references_.fetch_add_acq_rel(1); }
  void release() {
    if (references_.fetch_add_acq_rel(~std::uint64_t{0}) == 1) {
      delete this;
    }
  }

  // Goes on with another core of the same leaves. No other thread may be inside of any function.
  void follow(std::shared_ptr<EchoBuffer> core) {
    core_ = std::move(core);
    settle();
  }
  [[nodiscard]] EchoBuffer& core() const noexcept { return *core_; }
  [[nodiscard]] const Leaves& leaves() const noexcept { return leaves_; }
  [[nodiscard]] bool foreign() const noexcept { return role_ != Role::kWhole; }

  // -- Producers --

  // Sets `count` slots: kOk, kTimeout, kClosed, kForked. `interrupted`: as Waiter tells.
  Outcome reserve(std::span<pyecho_slot> slots, std::int64_t timeout_ns, std::size_t& count, bool& interrupted);
  // True if the slot is as reserve() has set it.
  [[nodiscard]] bool is_reserved(const pyecho_slot& slot) const noexcept {
    return slot.index < open_.size() && slot.data == data_of(slot.index) && slot.ticket + 1 != 0 &&
           open_[slot.index].load_relaxed() == slot.ticket + 1;
  }
  // Returns memory for an example of this shape. Throws std::invalid_argument, std::logic_error, std::bad_alloc.
  std::byte* set_shape(const pyecho_slot& slot, std::size_t leaf, const std::int64_t* shape);
  // True if no leaf of variable size of the slot lacks its shape.
  [[nodiscard]] bool is_shaped(std::uint32_t slot) const noexcept;
  // Takes the reservations of `slots` back, up to the first that there is none of, and returns how many.
  std::size_t take_back(std::span<const pyecho_slot> slots, std::span<Reservation> reservations) noexcept;
  Outcome end_pass(std::int64_t timeout_ns, bool& interrupted);
  // Ends the input; of a pass, only that of this handle.
  void close();
  // Returns how many slots are reserved.
  [[nodiscard]] std::size_t open_slots() const noexcept;
  // Aborts all of them, and returns how many these were. No thread may be filling them.
  std::size_t abort_open() noexcept;
  // Returns how many producers wait for room, and the time during which at least one did. 0 in a forked child, where a
  // thread that stayed in the parent may hold the lock.
  [[nodiscard]] std::uint32_t waiting() const { return core_->input().forked() ? 0 : waits_.waiting(); }
  [[nodiscard]] std::uint64_t producer_wait_ns() const { return core_->input().forked() ? 0 : waits_.waited_ns(); }

  // -- The consumer --

  // Held by the thread that is inside one of the functions below.
  [[nodiscard]] std::mutex& consumer() noexcept { return consumer_; }

  // Sets `batch` to a lease (kOk), or only its `end` (kEnd).
  Outcome acquire(pyecho_batch& batch, std::int64_t timeout_ns);
  // Sets where the rows of a ragged leaf lie. Returns false if there is no lease of this id.
  bool get_rows(std::uint64_t id, std::size_t leaf, const unsigned char*& data, const std::int64_t*& shapes);
  // Ends a lease, and its reference. Returns false if there is none of this id.
  bool release_lease(std::uint64_t id);
  [[nodiscard]] Outcome begin(std::uint64_t epoch, std::uint64_t items);

  // Returns memory for std::free() with the state. Sets its size, and the items before the first open reservation.
  // Throws std::bad_alloc.
  unsigned char* save(std::size_t& size_bytes, std::uint64_t& taken);
  // Throws BadState, std::length_error if max_bytes has no room for the items, and as EchoBuffer does. The buffer then
  // goes on as before, unless the system had no memory for a plan of this position.
  void load(std::span<const std::byte> state, std::uint64_t& taken);

 private:
  static constexpr std::uint64_t kMagic = 0x7079'6563'686f'3031;
  struct HeldLease {
    Lease lease;
    std::uint32_t generation = 0;
    std::uint32_t next_free = 0;  // as free_lease_
  };

  template <class Attempt>
  Outcome wait(std::int64_t timeout_ns, bool& interrupted, const Attempt& attempt);
  void settle();
  [[nodiscard]] unsigned char* data_of(std::uint32_t slot) const noexcept {
    return reinterpret_cast<unsigned char*>(core_->slot_data(slot));
  }
  bool end_reservation(std::uint32_t slot, std::uint64_t expected) noexcept;
  [[nodiscard]] HeldLease* lease_of(std::uint64_t id) noexcept;
  [[nodiscard]] std::vector<std::uint64_t> fingerprint() const;

  std::uint64_t magic_ = kMagic;
  const Role role_;
  const Leaves leaves_;
  EchoConfig config_;  // not of a foreign one
  std::shared_ptr<EchoBuffer> core_;
  const Waiter waiter_ = nullptr;
  Atomic<std::uint64_t> references_{1};
  Atomic<std::uint32_t> closed_;             // of a pass
  std::vector<Atomic<std::uint64_t>> open_;  // by slot: 1 + ticket of its reservation, 0 without one
  WaitClock waits_;                          // of producers for room

  std::mutex consumer_;
  std::uint64_t iterations_ = 0;  // the consumer's, like the next one: to their ends, but for the last one
  std::uint64_t batches_ = 0;     // of the next one

  std::mutex lease_mutex_;
  std::vector<HeldLease> leases_;  // guarded by lease_mutex_, like the next one
  std::uint32_t free_lease_ = 0;   // a place in leases_, plus 1; 0: none
};

// -- Turns the configuration of a caller in C into that of the core, and trusts nothing in it (config.cpp). --

// Throws std::invalid_argument.
[[nodiscard]] Leaves checked_leaves(const pyecho_config& config);
// Leaves the limits of numbers to the core, which checks them before it allocates.
[[nodiscard]] EchoConfig core_config(const pyecho_config& config, const Leaves& leaves);

// The functions of the C interface as a table.
extern const pyecho_api kApi;

}  // namespace pyecho::capi
