// Every interleaving of small programs on IndexRing, and random ones of larger programs.
#include <gtest/gtest.h>

#include "model/ring_program.hpp"

namespace pyecho::model {
namespace {

// Stamps wrap to 0 after the first item.
void expect_no_failure(RingProgram description, const Limits& limits) {
  description.first_sequence = (std::uint64_t{description.capacity} << 31) - 1;
  const Report report = explore_all([&] { return make_ring_program(description); }, limits);
  EXPECT_TRUE(report.complete) << report.runs << " runs";
  EXPECT_EQ(report.failed_runs, 0U) << report.first_failure;
  EXPECT_GT(report.runs, 10U);
}

// Items per call, by thread.
using Groups = std::array<std::uint32_t, kMaxThreads>;
class IndexRingModel : public testing::TestWithParam<Groups> {};

INSTANTIATE_TEST_SUITE_P(Groups, IndexRingModel,
                         testing::Values(Groups{1, 1, 1, 1}, Groups{2, 2, 2, 2}, Groups{3, 1, 3, 1},
                                         Groups{1, 3, 1, 3}));

TEST_P(IndexRingModel, one_to_one_is_right_in_every_interleaving) {
  for (const std::uint32_t capacity : {1U, 2U}) {
    expect_no_failure({.capacity = capacity, .items = 3, .attempts = 3, .groups = GetParam()},
                      {.preemptions = 3, .stale_reads = 2});
  }
}

TEST_P(IndexRingModel, one_to_one_refuses_only_when_full_or_empty) {
  for (const std::uint32_t capacity : {1U, 2U}) {
    expect_no_failure({.capacity = capacity, .items = 3, .attempts = 3, .groups = GetParam(), .check_refusals = true},
                      {.preemptions = 5, .stale_reads = 0});
  }
}

TEST_P(IndexRingModel, two_pushers_share_a_ring) {
  for (const std::uint32_t capacity : {1U, 2U}) {
    RingProgram description{.capacity = capacity, .pushers = 2, .attempts = 2, .groups = GetParam()};
    expect_no_failure(description, {.preemptions = 2, .stale_reads = 1});
    description.check_refusals = true;
    expect_no_failure(description, {.preemptions = 3, .stale_reads = 0});
  }
}

TEST_P(IndexRingModel, two_poppers_share_a_ring) {
  for (const std::uint32_t capacity : {1U, 2U}) {
    RingProgram description{.capacity = capacity, .poppers = 2, .items = 3, .groups = GetParam()};
    expect_no_failure(description, {.preemptions = 2, .stale_reads = 1});
    description.check_refusals = true;
    expect_no_failure(description, {.preemptions = 3, .stale_reads = 0});
  }
}

TEST_P(IndexRingModel, two_pushers_and_two_poppers_share_a_ring) {
  expect_no_failure(
      {.capacity = 2, .pushers = 2, .poppers = 2, .items = GetParam()[0], .attempts = 1, .groups = GetParam()},
      {.preemptions = 2, .stale_reads = 1});
  expect_no_failure({.capacity = 1,
                     .pushers = 2,
                     .poppers = 2,
                     .items = GetParam()[0],
                     .attempts = 2,
                     .groups = GetParam(),
                     .check_refusals = true},
                    {.preemptions = 2, .stale_reads = 0});
}

TEST_P(IndexRingModel, larger_programs_are_right_in_random_interleavings) {
  for (const std::uint32_t capacity : {2U, 4U}) {
    const RingProgram description{
        .capacity = capacity, .pushers = 2, .poppers = 2, .items = 6, .attempts = 6, .groups = GetParam()};
    const Report report = explore_random([&] { return make_ring_program(description); }, 5000);
    EXPECT_EQ(report.failed_runs, 0U) << report.first_failure;
  }
}

}  // namespace
}  // namespace pyecho::model
