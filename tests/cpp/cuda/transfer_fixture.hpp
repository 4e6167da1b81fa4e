// Sources and destinations of transfers.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "core/plan/random.hpp"
#include "cuda/transfer_engine.hpp"
#include "fixture.hpp"

namespace pyecho::cuda {

// Bytes that identify their source and their position in it.
inline void fill(std::span<std::byte> bytes, std::uint64_t key) {
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::byte>(mix64(key + i / 8) >> (8 * (i % 8)));
  }
}
[[nodiscard]] inline bool is_filled(std::span<const std::byte> bytes, std::uint64_t key) {
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] != static_cast<std::byte>(mix64(key + i / 8) >> (8 * (i % 8)))) {
      return false;
    }
  }
  return true;
}

// Host memory that is overwritten as soon as it is released, as the memory of a batch is.
class Source {
 public:
  Source(std::span<std::byte> bytes, std::uint64_t key) : bytes_(bytes), key_(key) { fill(bytes_, key_); }

  // Returns a holder for an engine. The source must outlive it.
  std::shared_ptr<void> hold() {
    return {this, [](void* self) { static_cast<Source*>(self)->let_go(); }};
  }
  [[nodiscard]] int times_let_go() const noexcept { return times_let_go_; }
  [[nodiscard]] const std::byte* data() const noexcept { return bytes_.data(); }
  [[nodiscard]] std::size_t size() const noexcept { return bytes_.size(); }
  [[nodiscard]] std::uint64_t key() const noexcept { return key_; }

 private:
  void let_go() {
    std::fill(bytes_.begin(), bytes_.end(), std::byte{0xEE});
    ++times_let_go_;
  }

  std::span<std::byte> bytes_;
  std::uint64_t key_;
  std::atomic<int> times_let_go_ = 0;
};

// Device memory, which is ordinary memory with the stand-in.
class Target {
 public:
  explicit Target(std::size_t size) : bytes_(size) {}
  [[nodiscard]] Copy from(const Source& source) {
    return {.to = device_pointer(bytes_.data()), .from = source.data(), .size_bytes = source.size()};
  }
  [[nodiscard]] bool has(const Source& source) const {
    return is_filled(std::span(bytes_).first(source.size()), source.key());
  }
  [[nodiscard]] bool untouched() const {
    return std::all_of(bytes_.begin(), bytes_.end(), [](std::byte byte) { return byte == std::byte{0}; });
  }

 private:
  std::vector<std::byte> bytes_;
};

// Tests of engines, with a pinned source and an unpinned one.
class TransferTest : public CudaTest {
 protected:
  static constexpr std::size_t kBytes = 5000;

  static std::vector<Copy> only(const Copy& copy) { return {copy}; }
  static std::shared_ptr<const Transfer> start(TransferEngine& engine, Target& target, Source& source) {
    return engine.start(only(target.from(source)), source.hold());
  }
  // Releases the streams after a while, in which the test waits for them.
  static std::jthread let_go_soon() {
    return std::jthread([] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      standin_hold(STANDIN_RUN);
    });
  }

  PinnedBuffer pinned_memory_{device, 4 * kBytes};
  std::vector<std::byte> pageable_memory_ = std::vector<std::byte>(4 * kBytes);
  // Four of each kind.
  std::span<std::byte> pinned(std::size_t index) { return {pinned_memory_.data() + index * kBytes, kBytes}; }
  std::span<std::byte> pageable(std::size_t index) {
    return std::span(pageable_memory_).subspan(index * kBytes, kBytes);
  }
};

}  // namespace pyecho::cuda
