// The seeded random numbers of the planner: the same on every platform and in every build.
//
// Draws come from xoshiro256** (Blackman and Vigna). The SplitMix64 finaliser derives its state, and every per-item
// decision, from (seed, epoch, stream). So streams and epochs are independent, and a per-item decision depends only on
// the item's number, not on the number of draws before it.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace pyecho {

inline constexpr std::uint64_t kGoldenGamma = 0x9E3779B97F4A7C15U;

[[nodiscard]] constexpr std::uint64_t mix64(std::uint64_t z) noexcept {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31);
}

enum class Draws : std::uint8_t { kDraw = 1, kFactor = 2, kOps = 3, kOrder = 4, kSegment = 5, kAnchors = 6 };

// Returns the key from which a stream of numbers is derived.
[[nodiscard]] constexpr std::uint64_t stream_key(std::uint64_t seed, std::uint64_t epoch, Draws stream) noexcept {
  const std::uint64_t of_seed = mix64(seed + kGoldenGamma);
  const std::uint64_t of_epoch = mix64(of_seed + epoch + kGoldenGamma);
  return mix64(of_epoch + static_cast<std::uint64_t>(stream) * kGoldenGamma);
}

// Returns the seed of one stream of a run. Stream 0 draws as a run without streams does.
[[nodiscard]] constexpr std::uint64_t seed_of_stream(std::uint64_t seed, std::uint64_t number) noexcept {
  return number == 0 ? seed : mix64(seed + number * kGoldenGamma);
}

// Returns the `counter`-th number in [0, 1) of the stream `key`, with 53 random bits.
[[nodiscard]] constexpr double unit_at(std::uint64_t key, std::uint64_t counter) noexcept {
  return static_cast<double>(mix64(key + (counter + 1) * kGoldenGamma) >> 11) * 0x1.0p-53;
}

// Returns a uniform number in [0, bound), by Lemire's multiplication with rejection. next(): a random number of 32 bits.
template <class Next>
constexpr std::uint32_t bounded(std::uint32_t bound, const Next& next) noexcept {
  std::uint64_t product = std::uint64_t{next()} * bound;
  if (static_cast<std::uint32_t>(product) < bound) [[unlikely]] {
    const std::uint32_t threshold = (0U - bound) % bound;
    while (static_cast<std::uint32_t>(product) < threshold) {
      product = std::uint64_t{next()} * bound;
    }
  }
  return static_cast<std::uint32_t>(product >> 32);
}

class Xoshiro256 {
 public:
  explicit constexpr Xoshiro256(std::uint64_t key) noexcept {
    for (auto& word : state_) {
      key += kGoldenGamma;
      word = mix64(key);
    }
  }

  constexpr std::uint64_t next() noexcept {
    const std::uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
    const std::uint64_t t = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= t;
    state_[3] = std::rotl(state_[3], 45);
    return result;
  }

  // Returns a uniform number in [0, bound). Requires bound >= 1.
  constexpr std::uint32_t below(std::uint32_t bound) noexcept {
    return bounded(bound, [this] { return next() >> 32; });
  }

 private:
  std::array<std::uint64_t, 4> state_{};
};

// The numbers of Xoshiro256::below(), made some ahead of the draws, so that the memory that they lead to can be fetched
// in time.
class RandomAhead {
 public:
  static constexpr std::uint32_t kAhead = 16;

  explicit constexpr RandomAhead(std::uint64_t key) noexcept : source_(key) {
    make(0);
    make(kAhead);
  }
  constexpr std::uint32_t below(std::uint32_t bound) noexcept {
    return bounded(bound, [this] {
      const std::uint32_t word = words_[next_++ % words_.size()];
      if (next_ % kAhead == 0) {
        make(next_ + kAhead);
      }
      return word;
    });
  }
  // Returns what below(bound) will, after `others` more draws, at most kAhead, unless a number is rejected.
  [[nodiscard]] constexpr std::uint32_t peek(std::uint32_t others, std::uint32_t bound) const noexcept {
    return static_cast<std::uint32_t>((std::uint64_t{words_[(next_ + others) % words_.size()]} * bound) >> 32);
  }

 private:
  [[gnu::noinline]] constexpr void make(std::uint32_t from) noexcept {
    Xoshiro256 source = source_;  // in registers
    for (std::uint32_t word = 0; word < kAhead; ++word) {
      words_[(from + word) % words_.size()] = static_cast<std::uint32_t>(source.next() >> 32);
    }
    source_ = source;
  }

  Xoshiro256 source_;
  std::array<std::uint32_t, std::size_t{2} * kAhead> words_{};  // a ring
  std::uint32_t next_ = 0;                                      // modulo 2^32
};

}  // namespace pyecho
