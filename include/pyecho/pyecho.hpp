// pyecho from C++17: owners for what pyecho.h counts, and exceptions for its codes. pyecho.h is the contract: what
// blocks, which threads may call, how long things live.
//
//     pyecho::Config config;
//     config.leaves = {{"image", "|u1", {32, 32, 3}}, {"label", "<i8", {}}};
//     config.batch_size = 32;
//     config.shuffle_buffer = 320;
//     pyecho::Buffer buffer(config);
//
//     any thread:  while (auto slot = buffer.reserve()) {      // empty once the buffer is closed
//                    decode_into(slot.at<std::uint8_t>(0)); *slot.at<std::int64_t>(1) = label;
//                    slot.commit();                             // else its destructor aborts it
//                  }
//     one thread:  while (pyecho::Batch batch = buffer.acquire()) train(batch.at<std::uint8_t>(0), batch.rows());
//
// A Buffer is a reference: copies refer to the same buffer. Buffer::borrowed(handle) is one to a buffer of Python's
// (the pointer of a capsule, see PYECHO_CAPSULE_NAME). Everything but the constructor works without linking libpyecho.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "pyecho/pyecho.h"

namespace pyecho {
inline namespace v1 {

// A status that is no part of a loop's normal course: all but PYECHO_OK, END, CLOSED and TIMEOUT.
class Error : public std::runtime_error {
 public:
  Error(pyecho_status status, const std::string& message) : std::runtime_error(message), status_(status) {}
  [[nodiscard]] pyecho_status status() const noexcept { return status_; }

 private:
  pyecho_status status_;
};

using Timeout = std::chrono::nanoseconds;
inline constexpr Timeout kForever{PYECHO_FOREVER};

// See pyecho_leaf.
struct Leaf {
  std::string name;
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::size_t size_bytes = 0;  // this and the offsets: set by Buffer
  std::size_t slot_offset = 0;
  std::size_t batch_offset = 0;
};

// See pyecho_config.
struct Config {
  std::vector<Leaf> leaves;
  double factor = 2;
  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;
  std::uint64_t items = PYECHO_UNKNOWN;
  std::uint64_t steps_per_epoch = 0;
  std::uint64_t max_age = 0;
  std::uint32_t min_uses = 0;
  std::uint32_t batch_size = 0;
  std::uint32_t shuffle_buffer = 1;
  std::uint32_t prefetch = 2;
  std::uint32_t threads = 0;
  std::uint32_t slots_ahead = 1;
  std::uint32_t held = 2;
  bool unique_in_batch = false;
  bool drop_last = false;
  bool with_info = false;
  std::size_t max_bytes = 0;
  void* (*allocate)(std::size_t size_bytes, void* context) = nullptr;
  void (*deallocate)(void* memory, std::size_t size_bytes, void* context) = nullptr;
  void* context = nullptr;
};

namespace detail {

// Returns a status of a loop's normal course, and throws any other one.
inline pyecho_status checked(const pyecho_api& api, pyecho_status status) {
  if (status == PYECHO_OK || status == PYECHO_END || status == PYECHO_CLOSED || status == PYECHO_TIMEOUT) {
    return status;
  }
  const std::string message = api.last_error();
  throw Error(status, std::string(api.status_string(status)) + (message.empty() ? "" : ": " + message));
}

// One reference to a buffer, and its leaves.
class Reference {
 public:
  // Takes over a reference.
  explicit Reference(pyecho_buffer* handle) : handle_(handle) {
    try {
      pyecho_layout layout = PYECHO_LAYOUT_INIT;
      checked(api(), api().get_layout(handle, &layout));
      for (std::size_t i = 0; i < layout.leaf_count; ++i) {
        pyecho_leaf leaf = PYECHO_LEAF_INIT;
        checked(api(), api().get_leaf(handle, i, &leaf));
        leaves_.push_back({leaf.name,
                           leaf.dtype,
                           {leaf.shape, leaf.shape + leaf.ndim},
                           leaf.size_bytes,
                           leaf.slot_offset,
                           leaf.batch_offset});
      }
    } catch (...) {
      api().release(handle_);
      throw;
    }
  }
  ~Reference() { api().release(handle_); }
  Reference(const Reference&) = delete;
  Reference& operator=(const Reference&) = delete;

  [[nodiscard]] pyecho_buffer* handle() const noexcept { return handle_; }
  [[nodiscard]] const pyecho_api& api() const noexcept { return *handle_->api; }
  [[nodiscard]] const std::vector<Leaf>& leaves() const noexcept { return leaves_; }

 private:
  pyecho_buffer* handle_;
  std::vector<Leaf> leaves_;
};

}  // namespace detail

// Up to N reserved slots. Aborts in its destructor those that were not committed. Must not outlive the Buffer.
template <std::size_t N = 1>
class Slots {
  static_assert(N >= 1 && N <= PYECHO_MAX_GROUP);

 public:
  Slots(Slots&& other) noexcept
      : buffer_(other.buffer_), slots_(other.slots_), size_(std::exchange(other.size_, 0)), status_(other.status_) {}
  Slots& operator=(Slots&&) = delete;
  ~Slots() { abort(); }

  // True unless none could be reserved; status() says why.
  explicit operator bool() const noexcept { return size_ > 0; }
  [[nodiscard]] pyecho_status status() const noexcept { return status_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  // Returns where leaf number `leaf` of the example is to be written.
  template <class T = unsigned char>
  [[nodiscard]] T* at(std::size_t leaf, std::size_t slot = 0) const {
    return reinterpret_cast<T*>(slots_[slot].data + buffer_->leaves()[leaf].slot_offset);
  }
  // Hands all of them over.
  void commit() {
    if (size_ > 0) {
      detail::checked(buffer_->api(), buffer_->api().commit(buffer_->handle(), slots_.data(), std::exchange(size_, 0)));
    }
  }
  void abort() noexcept {
    if (size_ > 0) {
      buffer_->api().abort(buffer_->handle(), slots_.data(), std::exchange(size_, 0));
    }
  }

 private:
  friend class Buffer;
  explicit Slots(const detail::Reference* buffer) : buffer_(buffer) {}

  const detail::Reference* buffer_;
  std::array<pyecho_slot, N> slots_{};
  std::size_t size_ = 0;
  pyecho_status status_ = PYECHO_OK;
};

// A batch, released by its destructor.
class Batch {
 public:
  Batch(Batch&& other) noexcept
      : buffer_(std::move(other.buffer_)),
        batch_(std::exchange(other.batch_, PYECHO_BATCH_INIT)),
        status_(other.status_) {}
  Batch& operator=(Batch&& other) noexcept {
    std::swap(buffer_, other.buffer_);
    std::swap(batch_, other.batch_);
    std::swap(status_, other.status_);
    return *this;
  }
  ~Batch() {
    if (batch_.id != 0) {
      buffer_->api().release_batch(buffer_->handle(), &batch_);
    }
  }

  // True unless there is none; status() says why: PYECHO_END, CLOSED, TIMEOUT.
  explicit operator bool() const noexcept { return batch_.id != 0; }
  [[nodiscard]] pyecho_status status() const noexcept { return status_; }
  // With PYECHO_END: what has ended, PYECHO_END_EMPTY, PYECHO_END_LAST.
  [[nodiscard]] std::uint32_t end() const noexcept { return batch_.end; }
  [[nodiscard]] std::uint32_t rows() const noexcept { return batch_.rows; }
  // Returns the rows of leaf number `leaf`, which are contiguous.
  template <class T = unsigned char>
  [[nodiscard]] T* at(std::size_t leaf) const {
    return reinterpret_cast<T*>(batch_.data + buffer_->leaves()[leaf].batch_offset);
  }
  // With with_info, else null.
  [[nodiscard]] const std::int64_t* source_index() const noexcept { return batch_.source_index; }
  [[nodiscard]] const std::int32_t* use() const noexcept { return batch_.use; }

 private:
  friend class Buffer;
  explicit Batch(std::shared_ptr<detail::Reference> buffer) : buffer_(std::move(buffer)) {}

  std::shared_ptr<detail::Reference> buffer_;
  pyecho_batch batch_ = PYECHO_BATCH_INIT;
  pyecho_status status_ = PYECHO_OK;
};

class Buffer {
 public:
  // Throws Error.
  explicit Buffer(const Config& config) : buffer_(std::make_shared<detail::Reference>(created(config))) {}
  // Refers to a buffer that somebody else made. Throws Error, also for null.
  static Buffer borrowed(pyecho_buffer* handle) {
    if (handle == nullptr) {
      throw Error(
          PYECHO_INVALID,
          "Buffer::borrowed() needs a buffer, got null; pass the pointer of a capsule named " PYECHO_CAPSULE_NAME);
    }
    detail::checked(*handle->api, handle->api->retain(handle));
    return Buffer(std::make_shared<detail::Reference>(handle));
  }

  [[nodiscard]] pyecho_buffer* handle() const noexcept { return buffer_->handle(); }
  [[nodiscard]] const std::vector<Leaf>& leaves() const noexcept { return buffer_->leaves(); }
  [[nodiscard]] pyecho_stats stats() const {
    pyecho_stats stats = PYECHO_STATS_INIT;
    check(api().get_stats(handle(), &stats));
    return stats;
  }

  // -- Producers: any number of threads --

  // Waits for a slot, then reserves up to N.
  template <std::size_t N = 1>
  [[nodiscard]] Slots<N> reserve(Timeout timeout = kForever) const {
    Slots<N> slots(buffer_.get());
    slots.status_ = check(api().reserve(handle(), slots.slots_.data(), N, timeout.count(), &slots.size_));
    return slots;
  }
  pyecho_status end_pass(Timeout timeout = kForever) const { return check(api().end_pass(handle(), timeout.count())); }
  void close() const { check(api().close(handle())); }
  void fail(const std::string& message) const { check(api().fail(handle(), message.c_str())); }
  void stop() const { check(api().stop(handle())); }

  // -- The consumer: one thread at a time --

  [[nodiscard]] Batch acquire(Timeout timeout = kForever) const {
    Batch batch(buffer_);
    batch.status_ = check(api().acquire(handle(), &batch.batch_, timeout.count()));
    return batch;
  }
  void begin(std::uint64_t epoch, std::uint64_t items = PYECHO_UNKNOWN) const {
    check(api().begin(handle(), epoch, items));
  }
  // `taken`: see pyecho_save().
  [[nodiscard]] std::vector<unsigned char> save(std::uint64_t* taken = nullptr) const {
    unsigned char* state = nullptr;
    std::size_t size_bytes = 0;
    check(api().save(handle(), &state, &size_bytes, taken));
    const std::unique_ptr<unsigned char, void (*)(unsigned char*)> owner(state, api().free);
    return {state, state + size_bytes};
  }
  void load(const std::vector<unsigned char>& state, std::uint64_t* taken = nullptr) const {
    check(api().load(handle(), state.data(), state.size(), taken));
  }

 private:
  explicit Buffer(std::shared_ptr<detail::Reference> buffer) : buffer_(std::move(buffer)) {}
  [[nodiscard]] const pyecho_api& api() const noexcept { return buffer_->api(); }
  pyecho_status check(pyecho_status status) const { return detail::checked(api(), status); }

  static pyecho_buffer* created(const Config& config) {
    std::vector<pyecho_leaf> leaves;
    for (const Leaf& leaf : config.leaves) {
      pyecho_leaf each = PYECHO_LEAF_INIT;
      each.name = leaf.name.c_str();
      each.dtype = leaf.dtype.c_str();
      each.shape = leaf.shape.data();
      each.ndim = static_cast<std::uint32_t>(leaf.shape.size());
      leaves.push_back(each);
    }
    pyecho_config c = PYECHO_CONFIG_INIT;
    c.leaves = leaves.data();
    c.leaf_count = leaves.size();
    c.factor = config.factor;
    c.seed = config.seed;
    c.epoch = config.epoch;
    c.items = config.items;
    c.steps_per_epoch = config.steps_per_epoch;
    c.max_age = config.max_age;
    c.min_uses = config.min_uses;
    c.batch_size = config.batch_size;
    c.shuffle_buffer = config.shuffle_buffer;
    c.prefetch = config.prefetch;
    c.threads = config.threads;
    c.slots_ahead = config.slots_ahead;
    c.held = config.held;
    c.unique_in_batch = config.unique_in_batch ? 1 : 0;
    c.drop_last = config.drop_last ? 1 : 0;
    c.with_info = config.with_info ? 1 : 0;
    c.max_bytes = config.max_bytes;
    c.allocate = config.allocate;
    c.deallocate = config.deallocate;
    c.context = config.context;
    pyecho_buffer* handle = nullptr;
    detail::checked(*pyecho_get_api(PYECHO_ABI_VERSION), pyecho_create(&c, &handle));
    return handle;
  }

  std::shared_ptr<detail::Reference> buffer_;
};

}  // namespace v1
}  // namespace pyecho
