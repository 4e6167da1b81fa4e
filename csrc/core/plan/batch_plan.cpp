#include "core/plan/batch_plan.hpp"

#include <algorithm>
#include <numeric>
#include <stdexcept>

namespace pyecho {
namespace {

constexpr std::size_t kPassRuns = 16;  // more are allocated on demand

// Returns the part of a number of uses that belongs to each stream.
std::uint64_t share(std::uint64_t uses, std::uint64_t streams) {
  if (uses != kUnknown && uses % streams != 0) {
    throw std::invalid_argument("streams have equally many uses");
  }
  return uses == kUnknown ? kUnknown : uses / streams;
}

// Returns the configuration of one stream. Stream 0 of a run draws as a run without streams does.
PlanConfig of_stream(PlanConfig config, std::uint64_t stream) {
  const std::uint32_t streams = config.streams;
  if (streams < 1 || streams > config.capacity) {
    throw std::invalid_argument("a plan has at least one stream, and for each a place in its pool");
  }
  const std::uint64_t number = config.first_stream + stream * config.stream_step;
  config.capacity /= streams;
  config.seed = number == 0 ? config.seed : mix64(config.seed + number * kGoldenGamma);
  config.iteration_uses = share(config.iteration_uses, streams);
  config.batch_rows = (config.batch_rows - 1) / streams + 1;
  if (streams > 1 && config.adaptive()) {
    throw std::invalid_argument("an adaptive factor has one stream");
  }
  if (config.unique_in_batch && config.capacity < config.batch_rows) {
    throw std::invalid_argument("unique_in_batch needs a pool of as many items as a batch has rows, for each stream");
  }
  return config;
}

}  // namespace

BatchPlan::BatchPlan(const PlanConfig& config) : config_(config) {
  for (std::uint32_t stream = 0; stream < std::max(1U, config.streams); ++stream) {
    streams_.emplace_back(of_stream(config, stream));
  }
  numbers_.resize(config.slots);  // not before the configuration is checked
  passes_.reserve(kPassRuns);
}

std::size_t BatchPlan::size_bytes(const PlanConfig& config) {
  return config.slots * sizeof(std::uint64_t) + config.streams * StreamPlan::size_bytes(of_stream(config, 0));
}

void BatchPlan::begin(std::uint64_t epoch, const Extent& extent) {
  const std::uint64_t streams = streams_.size();
  const std::uint64_t uses = share(extent.uses, streams);
  fed_ = pass_fed_ = 0;
  passes_.clear();
  turn_ = 0;
  for (std::uint64_t stream = 0; stream < streams; ++stream) {
    const std::uint64_t items = extent.items == kUnknown ? kUnknown : (extent.items + streams - 1 - stream) / streams;
    streams_[stream].begin(epoch, {.items = items, .uses = uses});
  }
}

void BatchPlan::end_pass() {
  count_pass();
  for (StreamPlan& stream : streams_) {
    stream.end_pass();
  }
}

bool BatchPlan::end_input() {
  if (ended()) {
    return false;
  }
  count_pass();
  for (StreamPlan& stream : streams_) {
    stream.end_input();
  }
  return true;
}

void BatchPlan::count_pass() {
  if (passes_.empty() || passes_.back().items != open_items()) {
    passes_.push_back({.passes = 0, .items = open_items()});
  }
  ++passes_.back().passes;
  pass_fed_ = fed_;
}

Outcome BatchPlan::draw(std::span<Use> rows, std::uint32_t& drawn) noexcept {
  if (streams_.size() == 1) {
    return streams_[0].draw(rows, drawn);
  }
  for (drawn = 0; drawn < rows.size(); ++drawn) {
    std::uint32_t one = 0;
    if (const Outcome outcome = streams_[turn_].draw(rows.subspan(drawn, 1), one); outcome != Outcome::kOk) {
      return outcome;
    }
    rows[drawn].source_index = rows[drawn].source_index * streams_.size() + turn_;
    turn_ = turn_ + 1 == streams_.size() ? 0 : turn_ + 1;
  }
  return Outcome::kOk;
}

void BatchPlan::end_batch() noexcept {
  for (StreamPlan& stream : streams_) {
    stream.end_batch();
  }
}

void BatchPlan::next_iteration() noexcept {
  for (StreamPlan& stream : streams_) {
    stream.next_iteration();
  }
}

bool BatchPlan::finished() const noexcept { return std::ranges::any_of(streams_, &StreamPlan::finished); }

std::uint32_t BatchPlan::resident() const noexcept {
  return std::transform_reduce(streams_.begin(), streams_.end(), 0U, std::plus<>(),
                               [](const StreamPlan& stream) { return stream.resident(); });
}

}  // namespace pyecho
