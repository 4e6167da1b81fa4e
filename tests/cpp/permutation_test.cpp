#include "core/plan/permutation.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <vector>

namespace pyecho::test {
namespace {

std::vector<std::uint64_t> places_of(std::uint64_t size, std::uint64_t seed, std::uint64_t epoch) {
  const Permutation permutation(size, seed, epoch);
  std::vector<std::uint64_t> places(size);
  for (std::uint64_t i = 0; i < size; ++i) {
    places[i] = permutation(i);
  }
  return places;
}

TEST(Permutation, has_every_place_once_for_any_size) {
  for (std::uint64_t size = 1; size < 700; ++size) {
    std::vector<std::uint64_t> places = places_of(size, 3, size);
    std::ranges::sort(places);
    for (std::uint64_t i = 0; i < size; ++i) {
      ASSERT_EQ(places[i], i) << size;
    }
  }
}

TEST(Permutation, differs_by_seed_and_epoch_and_stays_the_same_on_every_platform) {
  const std::set<std::vector<std::uint64_t>> different{places_of(20, 0, 0), places_of(20, 0, 1), places_of(20, 1, 0)};
  EXPECT_EQ(different.size(), 3U);
  EXPECT_EQ(places_of(10, 1, 2), (std::vector<std::uint64_t>{8, 5, 2, 9, 3, 6, 7, 0, 4, 1}));
}

TEST(Permutation, the_largest_size_stays_within_its_places) {
  const Permutation permutation(Permutation::kMaxSize, 1, 0);
  std::set<std::uint64_t> places;
  for (const std::uint64_t place : {std::uint64_t{0}, std::uint64_t{1}, Permutation::kMaxSize - 1}) {
    places.insert(permutation(place));
    EXPECT_LT(permutation(place), Permutation::kMaxSize);
  }
  EXPECT_EQ(places.size(), 3U);
}

}  // namespace
}  // namespace pyecho::test
