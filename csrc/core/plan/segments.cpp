#include "core/plan/segments.hpp"

#include <algorithm>
#include <cmath>

#include "core/random.hpp"

namespace pyecho {
namespace {

constexpr double kLeastUses = 0x1.0p24;  // of all streams of a run: a quarter of a second of planning, or a second
constexpr double kPools = 8;             // of a full pool's uses, so that few are drawn from one that drains
constexpr double kAdaptive = 0.125;      // of both: it takes longer to plan, and its pool drains while the next fills
constexpr double kDeviations = 8;        // from the average of items that get one more use, at most half a root each

}  // namespace

bool begins_within(const Segment& segment, std::uint64_t iterations, std::uint64_t rows) noexcept {
  std::uint64_t stream = 0;
  return std::ranges::all_of(segment.streams, [&](const Crossing& at) {
    const std::uint64_t own = share_of(rows, stream++, segment.streams.size());
    return at.iterations == iterations ? at.uses <= own : at.iterations < iterations;
  });
}

Segments::Segments(const PlanConfig& config) noexcept
    : factor_(config.factor), streams_(config.streams), within_(!config.unique_in_batch || config.adaptive()) {
  if (config.unique_in_batch && (config.adaptive() ? config.min_uses > 1 : config.iteration_uses > 0)) {
    return;
  }
  const std::uint64_t places = config.capacity / config.streams;
  const double pool = static_cast<double>(places) * config.factor;
  const double streams =
      config.even_factor ? static_cast<double>(config.streams) * static_cast<double>(config.stream_step) : 1;
  const double most = std::max(kLeastUses / streams, kPools * pool) * (config.adaptive() ? kAdaptive : 1);
  const double uses = config.segment_uses > 0 ? static_cast<double>(config.segment_uses) : most;
  items_ = static_cast<std::uint64_t>(std::ceil(uses / factor_));
}

// Less than items_ of earlier passes, and as many of the next one.
double Segments::most_uses(double factor) const noexcept {
  const double items = 2 * static_cast<double>(items_ + 1);
  return static_cast<double>(streams_) * (items * factor + kDeviations * std::sqrt(items) / 2);
}

void Segments::begin(const Extent& extent, std::uint64_t parts) noexcept {
  told_ = kUnknown;
  if (extent.uses != kUnknown) {  // equally many in all streams of all ranks
    const std::uint64_t uses = extent.uses / streams_;
    told_ = static_cast<std::uint64_t>(std::ceil(static_cast<double>(uses) / factor_));
  }
  since_ = 0;
  first_ = parts_ = parts;
  find_next();
}

void Segments::find_next() noexcept {
  const std::uint64_t place = within_ && any() ? (parts_ + 1) * items_ : kUnknown;
  next_ = place < told_ ? place * streams_ : kUnknown;
}

void Segments::enter_part() noexcept {
  since_ = 0;
  first_ = ++parts_;
  find_next();
}

std::uint64_t Segments::items_of_pass(std::uint64_t items) const noexcept {
  return std::max<std::uint64_t>(1, told_ != kUnknown ? told_ : (items + streams_ - 1) / streams_);
}

bool Segments::end_pass(std::uint64_t items) noexcept {
  if (!any()) {
    return false;
  }
  const std::uint64_t of_pass = items_of_pass(items);
  since_ += of_pass - std::min(of_pass, first_ * items_);
  const bool ends = since_ >= items_;
  since_ = ends ? 0 : since_;
  first_ = parts_ = 0;
  find_next();
  return ends;
}

Segment Segments::before(const PlanConfig& config, std::uint64_t epoch, const Extent& extent, std::uint64_t items,
                         std::uint64_t iterations, std::uint64_t rows) const {
  const bool is_even = extent.uses != kUnknown || items % streams_ == 0;
  if (!any() || config.adaptive() || items == 0 || !is_even || (extent.items != kUnknown && extent.items != items)) {
    return {};
  }
  const std::uint64_t of_pass = items_of_pass(items);
  const std::uint64_t of_iteration = config.iteration_uses / streams_;
  // Goes to a pass, and returns the factor of one of the streams there.
  const auto factor_in = [&](std::uint64_t stream, std::uint64_t passes) {
    EchoFactor factor(config.factor, config.even_factor, part());
    factor.begin_pass(seed_of_stream(config.seed, config.first_stream + stream * config.stream_step), epoch + passes,
                      extent.items == kUnknown ? kUnknown : share_of(items, stream, streams_),
                      extent.uses == kUnknown ? kUnknown : extent.uses / streams_);
    return factor;
  };
  const auto uses_of_pass = [&](std::uint64_t stream) {
    return extent.uses != kUnknown ? extent.uses / streams_
                                   : factor_in(stream, 0).uses_of_pass(share_of(items, stream, streams_));
  };
  const auto at = [&](std::uint64_t passes, std::uint64_t parts) {
    Segment segment{.passes = passes, .items = std::min(parts * items_ * streams_, items), .parts = parts};
    for (std::uint64_t stream = 0; stream < streams_; ++stream) {
      const std::uint64_t own = share_of(segment.items, stream, streams_);
      const EchoFactor factor = factor_in(stream, passes);
      const std::uint64_t more = factor.more_before(own);
      const std::uint64_t uses = own * factor.min_uses() + more;
      const std::uint64_t all = of_iteration == 0 ? uses : passes * uses_of_pass(stream) + uses;
      segment.streams.push_back({.iterations = of_iteration == 0 ? passes : all / of_iteration,
                                 .uses = of_iteration == 0 ? uses : all % of_iteration,
                                 .more = more});
    }
    const bool fits = !__builtin_mul_overflow(passes, items, &segment.taken);
    segment.taken += segment.items;
    return fits && passes + parts > 0 ? segment : Segment();
  };

  // The uses of the last stream, which has the fewest.
  std::uint64_t passes = iterations;
  std::uint64_t uses = share_of(rows, streams_ - 1, streams_);
  if (of_iteration > 0) {
    std::uint64_t earlier = 0;
    if (__builtin_mul_overflow(iterations, of_iteration, &earlier) || __builtin_add_overflow(uses, earlier, &uses)) {
      return {};
    }
    const std::uint64_t in_pass = uses_of_pass(streams_ - 1);
    passes = uses / in_pass;
    uses %= in_pass;
  }
  const std::uint64_t joints = within_ ? (of_pass - 1) / items_ : 0;
  const std::uint64_t together = (items_ - 1) / of_pass + 1;  // passes without joints in them
  const bool ends_with_pass = joints == 0 || of_pass == (joints + 1) * items_;
  const double items_before = static_cast<double>(uses) / static_cast<double>(uses_of_pass(streams_ - 1)) *
                              static_cast<double>(share_of(items, streams_ - 1, streams_));
  auto parts = std::min(joints, static_cast<std::uint64_t>(items_before) / items_);
  passes -= joints == 0 ? passes % together : 0;
  while (passes + parts > 0) {
    if (parts > 0 || ends_with_pass) {
      if (Segment last = at(passes, parts); begins_within(last, iterations, rows)) {
        return last;
      }
    }
    if (parts > 0) {
      --parts;
    } else {
      passes -= joints == 0 ? together : 1;
      parts = joints;
    }
  }
  return {};
}

}  // namespace pyecho
