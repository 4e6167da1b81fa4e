// Decides how many uses each item of a pass gets. Pure arithmetic.
//
// With a whole factor every item gets `factor` uses. With a fractional one every item gets floor(factor) uses, and some
// items get one more, so that a pass of N items has exactly floor(N * factor + 0.5) uses:
//
// - If N is known, these items are chosen at random, each item being equally likely (selection sampling; Knuth, volume
//   2, 3.4.2, algorithm S), seeded by (seed, pass). A pass of several segments is drawn so up to its first joint; of the
//   rest each segment has its share, so that a segment can be drawn without the ones before. Or, with `even`, they are
//   spread evenly from a random item on, so that several streams use up their items equally fast.
// - If N is unknown, the total must be right after every item, so the same items get one more use in every pass.
//
// A pass may need another number of uses U, because other ranks have more items. Then it has the factor U / N, and is
// drawn in the same way.
#pragma once

#include <cstdint>
#include <limits>

namespace pyecho {

inline constexpr std::uint64_t kUnknown = std::numeric_limits<std::uint64_t>::max();

class EchoFactor {
 public:
  // `part`: items of a segment within a pass (Segments), kUnknown: no segment ends there. Throws std::invalid_argument
  // unless factor is finite, at least 1 and below 2^32 - 1.
  explicit EchoFactor(double factor, bool even = false, std::uint64_t part = kUnknown);

  // Starts pass number `pass` of `items` items (or kUnknown), which has `uses` uses, at least `items` and below
  // PlanConfig::kMaxUses times as many, or kUnknown: uses_of_pass(). A pass that turns out longer than `items` still
  // has the exact total; a shorter one may miss it.
  void begin_pass(std::uint64_t seed, std::uint64_t pass, std::uint64_t items, std::uint64_t uses = kUnknown) noexcept;
  // Goes on after `items` items, of which `more` got one more use. Call after begin_pass(). Takes the time of a segment.
  void skip(std::uint64_t items, std::uint64_t more) noexcept;
  // Returns how many of the first `items` items of the pass get one more use. Takes the time of two segments.
  [[nodiscard]] std::uint64_t more_before(std::uint64_t items) const noexcept;
  // Returns how many items of the pass got one more use so far.
  [[nodiscard]] std::uint64_t given() const noexcept { return given_; }
  // Returns the number of uses of the next item.
  [[nodiscard]] std::uint32_t next() noexcept { return whole_ + (fractional_ && next_gets_more() ? 1U : 0U); }

  // Returns the number of uses of a whole pass of `items` items with the factor of this pass.
  [[nodiscard]] std::uint64_t uses_of_pass(std::uint64_t items) const noexcept {
    if (!fractional_) {
      return items * whole_;
    }
    const double uses_and_half = static_cast<double>(items) * factor_ + 0.5;
    return static_cast<std::uint64_t>(uses_and_half);
  }
  // Returns the fewest and the most uses of an item of this pass.
  [[nodiscard]] std::uint32_t min_uses() const noexcept { return whole_; }
  [[nodiscard]] std::uint32_t max_uses() const noexcept { return whole_ + (fractional_ ? 1U : 0U); }

 private:
  void set(double factor, std::uint64_t whole) noexcept;
  [[nodiscard]] bool next_gets_more() noexcept;
  // True if items are chosen at random in this pass.
  [[nodiscard]] bool chooses() const noexcept { return fractional_ && !even_ && items_ != kUnknown; }
  // Goes to an item of such a pass, or to its end.
  void seek(std::uint64_t items) noexcept;
  void enter_part() noexcept;
  // Returns the item from which more uses are spread evenly, of known ones.
  [[nodiscard]] std::uint64_t first_place() const noexcept;
  // Returns how many of the first `items` items get one more use.
  [[nodiscard]] std::uint64_t more_among(std::uint64_t items) const noexcept {
    return uses_of_pass(items) - items * whole_;
  }

  const double configured_;
  const bool even_;
  const std::uint64_t part_;
  std::uint32_t whole_ = 0;  // of this pass, like the next two
  double factor_ = 0;
  bool fractional_ = false;
  std::uint64_t key_ = 0;
  std::uint64_t items_ = kUnknown;
  std::uint64_t index_ = 0;  // of the next item
  std::uint64_t given_ = 0;  // items so far that got one more use
  // Where items are chosen at random:
  std::uint64_t given_in_first_ = 0;  // of given_, before the first joint, once that is reached
  std::uint64_t part_end_ = 0;        // the next joint
  std::uint64_t chosen_end_ = 0;      // end of the items that are chosen together
  std::uint64_t wanted_ = 0;          // of all items before it
};

}  // namespace pyecho
