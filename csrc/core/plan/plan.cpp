#include "core/plan/plan.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

namespace pyecho {
namespace {

constexpr std::size_t kPassRuns = 16;  // more are allocated on demand
constexpr std::size_t kBases = 16;     // likewise

// Returns the part of a number of uses that belongs to each stream.
std::uint64_t share(std::uint64_t uses, std::uint64_t streams) {
  if (uses != kUnknown && uses % streams != 0) {
    throw std::invalid_argument("streams have equally many uses");
  }
  return uses == kUnknown ? kUnknown : uses / streams;
}

void check(const PlanConfig& config) {
  if (config.capacity < 1 || config.slots < config.capacity) {
    throw std::invalid_argument("a plan needs a shuffle_buffer of at least 1 and as many slots");
  }
  if (std::uint64_t{config.capacity} * EchoFactor(config.factor).max_uses() >= PlanConfig::kMaxUses) {
    throw std::invalid_argument("shuffle_buffer times factor must stay below 2^32 - 1");
  }
  if (config.adaptive() && (config.factor < config.min_uses || config.factor != std::floor(config.factor) ||
                            config.capacity < config.batch_size)) {
    throw std::invalid_argument("an adaptive factor is whole, at least min_uses, and its pool holds a batch");
  }
  if (config.unique_in_batch && config.capacity < config.batch_size) {
    throw std::invalid_argument("unique_in_batch needs a pool of as many items as a batch has rows, for each stream");
  }
}

// Returns the configuration of one stream.
PlanConfig of_stream(PlanConfig config, std::uint64_t stream) {
  const std::uint32_t streams = config.streams;
  if (streams < 1 || streams > config.capacity) {
    throw std::invalid_argument("a plan has at least one stream, and for each a place in its pool");
  }
  config.capacity /= streams;
  config.seed = seed_of_stream(config.seed, config.first_stream + stream * config.stream_step);
  config.iteration_uses = share(config.iteration_uses, streams);
  config.batch_size = (config.batch_size - 1) / streams + 1;
  if (streams > 1 && config.adaptive()) {
    throw std::invalid_argument("an adaptive factor has one stream");
  }
  check(config);
  return config;
}

// Returns the extent of one stream.
Extent checked(const Extent& extent, bool adaptive) {
  if (extent.uses == kUnknown) {
    return extent;
  }
  if (adaptive) {
    throw std::invalid_argument("with an adaptive factor the source's speed decides the uses of a pass");
  }
  if (extent.items == kUnknown || extent.items == 0 || extent.uses < extent.items) {
    throw std::invalid_argument("a pass of " + std::to_string(extent.items) + " items cannot have " +
                                std::to_string(extent.uses) + " uses: each stream needs items, and of each a use");
  }
  if (extent.uses / extent.items >= PlanConfig::kMaxUses) {
    throw std::invalid_argument("an item has fewer than 2^32 - 1 uses");
  }
  return extent;
}

}  // namespace

Plan::Plan(const PlanConfig& config) : config_(config), segments_(config) {
  for (std::uint32_t number = 0; number < std::max(1U, config.streams); ++number) {
    PlanConfig of_one = of_stream(config, number);
    of_one.part = segments_.part();
    using Kinds = decltype(PlannedStream::stream);
    streams_.push_back({.stream = config.adaptive() ? Kinds(AdaptiveStream(of_one)) : Kinds(FixedStream(of_one)),
                        .uses = std::vector<Use>(config.streams > 1 ? kUsesAhead : 0)});
  }
  numbers_.resize(config.slots);  // not before the configuration is checked
  bases_.reserve(kBases);
  begin(0, {});
}

std::size_t Plan::size_bytes(const PlanConfig& config) {
  const PlanConfig of_one = of_stream(config, 0);
  const std::size_t pool = config.adaptive() ? RoundsPool::size_bytes(of_one) : FixedStream::size_bytes(of_one);
  const std::size_t input = config.slots * sizeof(std::uint32_t) * (config.tells_passes ? 2 : 1);
  const std::size_t ahead = config.streams > 1 ? kUsesAhead * sizeof(Use) : 0;
  return config.slots * sizeof(std::uint64_t) + config.streams * (pool + input + ahead);
}

void Plan::begin(std::uint64_t epoch, const Extent& extent, const Segment& segment, std::uint64_t iterations,
                 std::uint64_t rows, Decisions decisions) {
  const std::uint64_t streams = streams_.size();
  const std::uint64_t uses = share(extent.uses, streams);
  const std::uint64_t of_iteration = uses != kUnknown ? uses : config_.iteration_uses / streams;
  epoch_ = epoch;
  extent_ = extent;
  fed_ = segment;
  fed_.streams.clear();
  bases_.assign(1, {.begin = fed_});
  bases_.front().passes.reserve(kPassRuns);
  segments_.begin(extent, segment.parts);
  const auto is_of_run = [&](const auto& log) { return log.first.epoch == epoch; };
  has_joints_ = segment.passes + segment.parts > 0 || !config_.replay->contains({.epoch = epoch, .pass = epoch}) ||
                std::ranges::count_if(*config_.replay, is_of_run) > 1;
  turn_ = rows % streams;
  next_fed_ = segment.items % streams;
  last_ahead_ = 0;
  forgets_ = draws_lost_ = false;
  for (std::uint64_t stream = 0; stream < streams; ++stream) {
    const Crossing at = segment.streams.empty() ? Crossing{} : segment.streams[stream];
    const std::uint64_t begin = share_of(rows, stream, streams);
    const std::uint64_t items = extent.items == kUnknown ? kUnknown : share_of(extent.items, stream, streams);
    const StreamBegin from{.epoch = epoch,
                           .passes = segment.passes,
                           .items = share_of(segment.items, stream, streams),
                           .parts = segment.parts,
                           .at = at,
                           .iterations = iterations,
                           .uses = begin,
                           .lead = (at.iterations - iterations) * of_iteration + at.uses - begin};
    const Extent own = checked({.items = items, .uses = uses}, config_.adaptive());
    with(streams_[stream], [&](auto& of_kind) { of_kind.begin(from, own); });
    streams_[stream].next = streams_[stream].ahead = 0;
  }
  if (AdaptiveStream* const stream = std::get_if<AdaptiveStream>(&streams_[0].stream)) {
    stream->replay(std::move(decisions));
  }
}

void Plan::end_pass() {
  while (segments_.next() != kUnknown && extent_.uses != kUnknown) {  // of other streams, which have more items
    end_part();
  }
  const std::uint64_t items = fed_.items;
  count_pass();
  each_stream([](auto& stream) { stream.end_pass(); });
  if (segments_.end_pass(items)) {
    begin_segment();
  }
}

// Ends a segment within the open pass.
void Plan::end_part() {
  segments_.enter_part();
  begin_segment();
}

void Plan::begin_segment() {
  if (!has_joints_) {
    return;
  }
  const auto is_old = [&](const PlannedStream& turn) {
    const std::vector<Stream::Begun>& segments = shared(turn).segments();
    return segments.size() > 1 && shared(turn).drawn() - segments[1].drawn > kUsesKept;
  };
  while (bases_.size() > 1 && std::ranges::all_of(streams_, is_old)) {
    bases_.erase(bases_.begin());
    each_stream([](auto& stream) { stream.forget_segment(); });
  }
  fed_.parts = segments_.parts();
  bases_.push_back({.begin = fed_});
  each_stream([&](auto& stream) { stream.end_segment(epoch_ + fed_.passes, fed_.parts); });
}

bool Plan::end_input() {
  if (ended()) {
    return false;
  }
  count_pass();
  each_stream([](auto& stream) { stream.end_input(); });
  return true;
}

void Plan::count_pass() {
  std::vector<PassRun>& passes = bases_.back().passes;
  if (passes.empty() || passes.back().items != fed_.items) {
    passes.push_back({.passes = 0, .items = fed_.items});
  }
  ++passes.back().passes;
  fed_.alike = fed_.alike && fed_.items == extent_.items;
  ++fed_.passes;
  fed_.items = 0;
  next_fed_ = 0;
}

Outcome Plan::draw(std::span<Use> rows, std::uint32_t& drawn, bool awaited) {
  if (streams_.size() == 1) {
    const auto draw_from = [&](auto& stream) { return stream.draw_by(stream, rows, drawn, awaited); };
    const Outcome outcome = with(streams_[0], draw_from);
    if (forgets_) {
      const auto is_lost = [this](const Use& use) { return numbers_[use.slot] == kUnknown; };
      draws_lost_ = draws_lost_ || std::ranges::any_of(rows.first(drawn), is_lost);
    }
    return outcome;
  }
  for (drawn = 0; drawn < rows.size(); ++drawn) {
    PlannedStream& turn = streams_[turn_];
    if (turn.next == turn.ahead) {
      if (const Outcome outcome = draw_ahead(turn, rows.size() - drawn, awaited); turn.ahead == 0) {
        return outcome;
      }
    }
    rows[drawn] = turn.uses[turn.next++];
    last_ahead_ -= rows[drawn].last ? 1 : 0;
    turn_ = after(turn_);
  }
  return Outcome::kOk;
}

// Draws the part of one of several streams of so many rows.
Outcome Plan::draw_ahead(PlannedStream& turn, std::uint64_t rows, bool awaited) {
  // With unique_in_batch a pool that drains may end the batch early, and what was drawn for it would come too late.
  const std::uint64_t share = config_.unique_in_batch && ended() ? 1 : (rows - 1) / streams_.size() + 1;
  const std::span<Use> ahead = std::span(turn.uses).first(std::min<std::uint64_t>(share, turn.uses.size()));
  turn.next = 0;
  const auto draw_from = [&](auto& stream) { return stream.draw_by(stream, ahead, turn.ahead, awaited); };
  const Outcome outcome = with(turn, draw_from);
  for (Use& use : ahead.first(turn.ahead)) {
    use.source_index = use.source_index * streams_.size() + turn_;
    last_ahead_ += use.last ? 1 : 0;
  }
  return outcome;
}

void Plan::end_batch() noexcept {
  each_stream([](auto& stream) { stream.end_batch(); });
}

void Plan::next_iteration() noexcept {
  each_stream([](auto& stream) { stream.next_iteration(); });
}

PlanPosition Plan::position(std::uint64_t iterations, std::uint64_t rows) const {
  Segment segment;
  std::size_t base = bases_.size();
  do {
    if (base-- == 0) {
      throw std::logic_error("the consumer is farther back than the plan remembers");
    }
    segment = bases_[base].begin;
    for (const PlannedStream& turn : streams_) {
      if (const std::vector<Stream::Begun>& begun = shared(turn).segments(); base < begun.size()) {
        segment.streams.push_back(begun[base].at);
      }
    }
  } while (segment.streams.size() < streams_.size() || !begins_within(segment, iterations, rows));
  if (segment.passes == 0 && segment.parts == 0) {
    segment.streams.clear();
  }
  PlanPosition position{
      .epoch = epoch_, .extent = extent_, .segment = std::move(segment), .open_items = fed_.items, .ended = ended()};
  const auto append = [](auto& list, const auto& more) { list.insert(list.end(), more.begin(), more.end()); };
  for (std::size_t at = base; at < bases_.size(); ++at) {
    append(position.passes, bases_[at].passes);
  }
  for (std::size_t at = base; adaptive() != nullptr && at < adaptive()->logs().size(); ++at) {
    append(position.decisions, adaptive()->logs()[at].decisions);
  }
  return position;
}

Places Plan::items() const {
  Places items;
  each_item([&](std::uint32_t slot, std::uint64_t number) { items.emplace_back(number, slot); });
  std::ranges::sort(items);
  return items;
}

std::uint32_t Plan::resident() const noexcept {
  std::uint32_t items = last_ahead_;
  for (const PlannedStream& turn : streams_) {
    items += with(turn, [](const auto& stream) { return stream.resident(); });
  }
  return items;
}

}  // namespace pyecho
