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

EchoFactor::EchoFactor(double factor, bool even, std::uint64_t part)
    : configured_(checked(factor)), even_(even), part_(part) {
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
  skip(0, 0);
}

std::uint64_t EchoFactor::first_place() const noexcept {
  return static_cast<std::uint64_t>(unit_at(key_, 0) * static_cast<double>(items_));
}

bool EchoFactor::next_gets_more() noexcept {
  const bool is_known = items_ != kUnknown && index_ < items_;
  bool more = false;
  if (is_known && !even_) {
    if (index_ == part_end_) {
      enter_part();
    }
    const auto left = static_cast<double>(chosen_end_ - index_);
    more = unit_at(key_, index_) * left < static_cast<double>(wanted_ - given_);
  } else {
    std::uint64_t place = index_ + (is_known ? first_place() : 0);
    place -= is_known && place >= items_ ? items_ : 0;
    more = more_among(place + 1) > more_among(place);
  }
  ++index_;
  given_ += more ? 1 : 0;
  return more;
}

// Up to the first joint all items are chosen together. Of the rest of the pass, a segment has its share of what is left
// to give, rounded so that every item is equally likely.
void EchoFactor::enter_part() noexcept {
  const std::uint64_t all = more_among(items_);
  given_in_first_ = index_ == part_ ? std::min(given_, all) : given_in_first_;  // a state may tell of any number
  const auto wanted_before = [&](std::uint64_t item) {
    const std::uint64_t left = all - given_in_first_;
    const double share = static_cast<double>(item - part_) / static_cast<double>(items_ - part_);
    const double wanted = static_cast<double>(left) * share + unit_at(key_, items_);
    return given_in_first_ + std::min(left, static_cast<std::uint64_t>(wanted));
  };
  given_ = wanted_before(index_);
  part_end_ = chosen_end_ = index_ + std::min(part_, items_ - index_);
  wanted_ = wanted_before(chosen_end_);
}

void EchoFactor::seek(std::uint64_t items) noexcept {
  const auto draw_until = [this](std::uint64_t end) {
    while (index_ < end) {
      static_cast<void>(next_gets_more());
    }
  };
  index_ = given_ = 0;
  part_end_ = part_;
  chosen_end_ = items_;
  wanted_ = more_among(items_);
  draw_until(std::min(items, part_));
  if (items >= part_ && items_ > part_) {
    given_in_first_ = given_;
    index_ = items - items % part_;
    enter_part();
    draw_until(items);
  }
}

void EchoFactor::skip(std::uint64_t items, std::uint64_t more) noexcept {
  if (chooses() && items <= items_) {
    seek(items - items % part_);
  }
  index_ = items;
  given_ = more;
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
  EchoFactor there = *this;
  there.seek(known);
  return there.given_ + beyond;
}

}  // namespace pyecho
