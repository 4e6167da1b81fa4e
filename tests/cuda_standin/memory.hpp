// Host memory that is registered, and device memory. Guarded by State::mutex.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>

namespace pyecho::standin {

struct FreeMemory {
  void operator()(std::byte* data) const noexcept { std::free(data); }
};

struct Allocation {
  std::unique_ptr<std::byte, FreeMemory> data;
  std::size_t size_bytes;
};

// Do these ranges have a byte in common?
[[nodiscard]] inline bool overlap(const std::byte* a, std::size_t a_bytes, const std::byte* b, std::size_t b_bytes) {
  const auto a_begin = reinterpret_cast<std::uintptr_t>(a);
  const auto b_begin = reinterpret_cast<std::uintptr_t>(b);
  return a_begin < b_begin + b_bytes && b_begin < a_begin + a_bytes;
}

// Registered ranges, which never overlap.
class RegisteredRanges {
 public:
  [[nodiscard]] bool overlaps(const std::byte* data, std::size_t size_bytes) const;
  // Every byte registered, be it by several ranges.
  [[nodiscard]] bool cover(const std::byte* data, std::size_t size_bytes) const;
  // The size of the range that begins here; 0 if there is none.
  [[nodiscard]] std::size_t size_of(const std::byte* data) const;
  void add(const std::byte* data, std::size_t size_bytes);
  void remove(const std::byte* data);

  [[nodiscard]] std::size_t count() const noexcept { return ranges_.size(); }
  [[nodiscard]] std::uint64_t size_bytes() const noexcept { return size_bytes_; }

 private:
  std::map<std::uintptr_t, std::size_t> ranges_;  // begin -> size
  std::uint64_t size_bytes_ = 0;
};

struct Memory {
  RegisteredRanges registered;
  std::map<std::uintptr_t, Allocation> allocated;  // on devices
};

}  // namespace pyecho::standin
