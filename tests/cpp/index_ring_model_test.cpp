// Every interleaving of small programs on IndexRing, and random ones of larger programs.
#include <gtest/gtest.h>

#include "model/ring_program.hpp"

namespace pyecho::model {
namespace {

constexpr Threads kOne = Threads::kOne;
constexpr Threads kMany = Threads::kMany;

template <Threads kPushing, Threads kPopping>
void expect_no_failure(const RingProgram& description, const Limits& limits) {
  const auto make = [&] { return make_ring_program<kPushing, kPopping>(description); };
  const Report report = explore_all(make, limits);
  EXPECT_TRUE(report.complete) << report.runs << " runs";
  EXPECT_EQ(report.failed_runs, 0U) << report.first_failure;
  EXPECT_GT(report.runs, 10U);
}

TEST(IndexRingModel, one_to_one_is_right_in_every_interleaving) {
  for (const std::uint32_t capacity : {1U, 2U}) {
    expect_no_failure<kOne, kOne>({.capacity = capacity, .items = 3, .attempts = 3},
                                  {.preemptions = 3, .stale_reads = 2});
  }
}

TEST(IndexRingModel, one_to_one_refuses_only_when_full_or_empty) {
  for (const std::uint32_t capacity : {1U, 2U}) {
    expect_no_failure<kOne, kOne>({.capacity = capacity, .items = 3, .attempts = 3, .check_refusals = true},
                                  {.preemptions = 5, .stale_reads = 0});
  }
}

TEST(IndexRingModel, stamps_may_wrap_meanwhile) {
  expect_no_failure<kOne, kOne>(
      {.items = 3, .attempts = 3, .first_sequence = (std::uint64_t{1} << 31) - 1, .check_refusals = true},
      {.preemptions = 3, .stale_reads = 0});
}

TEST(IndexRingModel, two_pushers_share_a_ring) {
  for (const std::uint32_t capacity : {1U, 2U}) {
    expect_no_failure<kMany, kOne>({.capacity = capacity, .pushers = 2, .attempts = 2},
                                   {.preemptions = 2, .stale_reads = 1});
    expect_no_failure<kMany, kOne>({.capacity = capacity, .pushers = 2, .attempts = 2, .check_refusals = true},
                                   {.preemptions = 3, .stale_reads = 0});
  }
}

TEST(IndexRingModel, two_poppers_share_a_ring) {
  for (const std::uint32_t capacity : {1U, 2U}) {
    expect_no_failure<kOne, kMany>({.capacity = capacity, .poppers = 2, .items = 3},
                                   {.preemptions = 2, .stale_reads = 1});
    expect_no_failure<kOne, kMany>({.capacity = capacity, .poppers = 2, .items = 3, .check_refusals = true},
                                   {.preemptions = 3, .stale_reads = 0});
  }
}

TEST(IndexRingModel, two_pushers_and_two_poppers_share_a_ring) {
  expect_no_failure<kMany, kMany>({.capacity = 2, .pushers = 2, .poppers = 2, .items = 1, .attempts = 1},
                                  {.preemptions = 2, .stale_reads = 1});
  expect_no_failure<kMany, kMany>(
      {.capacity = 1, .pushers = 2, .poppers = 2, .items = 1, .attempts = 2, .check_refusals = true},
      {.preemptions = 2, .stale_reads = 0});
}

TEST(IndexRingModel, larger_programs_are_right_in_random_interleavings) {
  const RingProgram description{.capacity = 2, .pushers = 2, .poppers = 2, .items = 6, .attempts = 6};
  const Report report = explore_random([&] { return make_ring_program<kMany, kMany>(description); }, 5000);
  EXPECT_EQ(report.failed_runs, 0U) << report.first_failure;
}

// The orders in the table of index_ring.hpp are needed, each of them. Thread 0 pushes, thread 1
// pops.
Report explore_weakened(int thread, Access access) {
  const RingProgram description{.capacity = 1, .items = 2, .attempts = 2};
  const Limits limits{.weakened = [=](int t, Access a) { return t == thread && a == access; }};
  return explore_all([&] { return make_ring_program<kOne, kOne>(description); }, limits);
}

TEST(IndexRingModel, the_unweakened_program_has_no_race) {
  EXPECT_EQ(explore_weakened(kNoThread, Access::kLoad).failed_runs, 0U);
}

TEST(IndexRingModel, a_relaxed_w1_would_race) {
  EXPECT_EQ(explore_weakened(0, Access::kStore).first_failure, "data race");
}

TEST(IndexRingModel, a_relaxed_r1_would_race) {
  EXPECT_EQ(explore_weakened(1, Access::kLoad).first_failure, "data race");
}

TEST(IndexRingModel, a_relaxed_r2_would_race) {
  EXPECT_EQ(explore_weakened(1, Access::kStore).first_failure, "data race");
}

TEST(IndexRingModel, a_relaxed_w2_would_race) {
  EXPECT_EQ(explore_weakened(0, Access::kLoad).first_failure, "data race");
}

}  // namespace
}  // namespace pyecho::model
