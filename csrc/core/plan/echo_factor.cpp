#include "core/plan/echo_factor.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "core/random.hpp"

namespace pyecho {
namespace {

double checked(double factor) {
  if (!(factor >= 1.0 && factor < 0xFFFFFFFFU)) {  // false for NaN too
    throw std::invalid_argument("the echo factor must be at least 1 and below 2^32 - 1, got " + std::to_string(factor));
  }
  return factor;
}

}  // namespace

EchoFactor::EchoFactor(double factor, bool even) : configured_(checked(factor)), even_(even) {
  set(configured_, static_cast<std::uint64_t>(configured_));
}

void EchoFactor::set(double factor, std::uint64_t whole) noexcept {
  whole_ = static_cast<std::uint32_t>(whole);
  factor_ = factor;
  fractional_ = factor > whole_;
}

void EchoFactor::begin_pass(std::uint64_t seed, std::uint64_t pass, std::uint64_t items, std::uint64_t uses) noexcept {
  set(configured_, static_cast<std::uint64_t>(configured_));
  if (uses != kUnknown && uses != uses_of_pass(items)) {
    set(static_cast<double>(uses) / static_cast<double>(items), uses / items);
  }
  key_ = stream_key(seed, pass, Draws::kFactor);
  items_ = items;
  index_ = 0;
  given_ = 0;
}

std::uint64_t EchoFactor::first_place() const noexcept {
  return static_cast<std::uint64_t>(unit_at(key_, 0) * static_cast<double>(items_));
}

bool EchoFactor::next_gets_more() noexcept {
  const std::uint64_t index = index_++;
  const bool is_known = items_ != kUnknown && index < items_;
  bool more = false;
  if (is_known && !even_) {
    const auto left = static_cast<double>(items_ - index);
    more = unit_at(key_, index) * left < static_cast<double>(more_among(items_) - given_);
  } else {
    const std::uint64_t place = is_known ? (first_place() + index) % items_ : index;
    more = more_among(place + 1) > more_among(place);
  }
  given_ += more ? 1 : 0;
  return more;
}

std::uint64_t EchoFactor::more_before(std::uint64_t items) const noexcept {
  if (!fractional_ || items_ == kUnknown) {
    return more_among(items);
  }
  const std::uint64_t known = std::min(items, items_);
  const std::uint64_t beyond = more_among(items) - more_among(known);
  if (even_) {
    const std::uint64_t first = first_place();
    return more_among(std::min(first + known, items_)) - more_among(first) +
           more_among(std::max(first + known, items_) - items_) + beyond;
  }
  EchoFactor from_begin = *this;
  from_begin.skip(0, 0);
  for (std::uint64_t item = 0; item < known; ++item) {
    static_cast<void>(from_begin.next_gets_more());
  }
  return from_begin.given_ + beyond;
}

}  // namespace pyecho
