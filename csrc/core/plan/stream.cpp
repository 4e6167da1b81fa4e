#include "core/plan/stream.hpp"

#include <algorithm>
#include <utility>

namespace pyecho {

void Stream::begin(const StreamBegin& from, const Extent& extent) {
  input_.begin(from.epoch + from.passes, extent, from.items, from.at.more);
  is_known_ = from.passes > 0 || from.parts > 0;
  if (is_known_) {
    input_.end_segment(from.epoch + from.passes, from.parts);
  }
  drawn_ = 0;
  lead_ = from.lead;
  ends_over_ = from.iterations - std::min(from.iterations, from.passes);
  crossings_.assign(1, from.at);
  crossed_at_.assign(1, lead_);
  iteration_ends_.clear();
  epoch_ = from.epoch;
  iteration_ = from.epoch + from.iterations;
  finished_ = false;
  begin_iteration(from.uses);
}

// An iteration of a fixed number of uses has a known end; others end where their pass does.
void Stream::begin_iteration(std::uint64_t uses) noexcept {
  begun_ = drawn_ - uses;
  if (config_.iteration_uses > 0) {
    iteration_ends_.push_back(begun_ + config_.iteration_uses);
  }
  random_ = Xoshiro256(stream_key(config_.seed, iteration_, Draws::kDraw));
}

void Stream::next_iteration() noexcept {
  if (!iteration_ends_.empty()) {
    iteration_ends_.pop_front();
  }
  finished_ = exhausted() && iteration_ends_.empty();
  ++iteration_;
  begin_iteration(0);
}

// If several segments begin here, the last one decides. An iteration that is one pass has its random numbers already, if
// the segment begins with it.
Joint Stream::cross() {
  Joint joint{};
  while (input_.may_cross()) {
    joint = input_.cross();
    if (!std::exchange(is_known_, false)) {
      crossings_.push_back({.iterations = iteration_ - epoch_, .uses = drawn_ - begun_, .more = input_.more()});
      crossed_at_.push_back(drawn_);
    }
  }
  if (config_.iteration_uses > 0 || joint.parts > 0 || config_.adaptive()) {
    const std::uint64_t key = stream_key(config_.seed, joint.pass, Draws::kSegment);
    random_ = Xoshiro256(mix64(key + joint.parts * kGoldenGamma));
  }
  return joint;
}

std::uint32_t Stream::draw_lead(std::span<Use> rows) noexcept {
  const auto drawn = static_cast<std::uint32_t>(std::min<std::uint64_t>(rows.size(), lead_));
  std::ranges::fill(rows.first(drawn), Use{.slot = 0, .ordinal = 0, .source_index = 0, .last = false});
  lead_ -= drawn;
  return drawn;
}

Outcome Stream::draw(std::span<Use> rows, std::uint32_t& drawn, bool awaited) {
  for (drawn = 0; drawn < rows.size();) {
    if (const Outcome outcome = ready(awaited); outcome != Outcome::kOk) {
      return outcome;
    }
    // An iteration whose end is unknown has at least as many uses left as the pool holds.
    const std::uint64_t most = std::min<std::uint64_t>(rows.size() - drawn, uses_left_in_iteration());
    const std::uint32_t got = lead_ > 0 ? draw_lead(rows.subspan(drawn, most)) : draw_some(rows.subspan(drawn, most));
    if (got == 0) {
      return Outcome::kEnd;
    }
    drawn_ += got;
    drawn += got;
  }
  return Outcome::kOk;
}

}  // namespace pyecho
