#include "core/plan/stream.hpp"

#include <algorithm>

namespace pyecho {

void Stream::begin(std::uint64_t epoch, const Extent& extent) {
  input_.begin(epoch, extent);
  drawn_ = 0;
  iteration_ends_.clear();
  iteration_ = epoch;
  finished_ = false;
  begin_iteration();
}

// An iteration of a fixed number of uses has a known end; others end where their pass does.
void Stream::begin_iteration() noexcept {
  if (config_.iteration_uses > 0) {
    iteration_ends_.push_back(drawn_ + config_.iteration_uses);
  }
  random_ = Xoshiro256(stream_key(config_.seed, iteration_, Draws::kDraw));
}

void Stream::next_iteration() noexcept {
  if (!iteration_ends_.empty()) {
    iteration_ends_.pop_front();
  }
  finished_ = exhausted() && iteration_ends_.empty();
  ++iteration_;
  begin_iteration();
}

Outcome Stream::draw(std::span<Use> rows, std::uint32_t& drawn, bool awaited) {
  for (drawn = 0; drawn < rows.size();) {
    if (const Outcome outcome = ready(awaited); outcome != Outcome::kOk) {
      return outcome;
    }
    // An iteration whose end is unknown has at least as many uses left as the pool holds.
    const std::uint64_t most = std::min<std::uint64_t>(rows.size() - drawn, uses_left_in_iteration());
    const std::uint32_t got = draw_some(rows.subspan(drawn, most));
    if (got == 0) {
      return Outcome::kEnd;
    }
    drawn_ += got;
    drawn += got;
  }
  return Outcome::kOk;
}

}  // namespace pyecho
