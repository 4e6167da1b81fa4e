// A fixed factor draws what its definition says, in pools small and large: the large ones fetch ahead.
#include "core/plan/fixed_stream.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "core/plan/plan.hpp"

namespace pyecho::test {
namespace {

// The definition, in the plainest way: one entry for each use that is left, of which a random one is drawn.
class Entries {
 public:
  Entries(std::uint32_t items, std::uint32_t uses, bool unique) : unique_(unique) {
    for (std::uint32_t slot = 0; slot < items; ++slot) {
      left_.insert(left_.end(), uses, slot);
    }
  }

  std::vector<std::uint32_t> batch(std::uint32_t rows, Xoshiro256& random) {
    std::vector<std::uint32_t> drawn;
    std::vector<std::uint32_t> deferred;
    while (drawn.size() < rows && !left_.empty()) {
      std::uint32_t& entry = left_[random.below(static_cast<std::uint32_t>(left_.size()))];
      const bool again = unique_ && std::ranges::find(drawn, entry) != drawn.end();
      (again ? deferred : drawn).push_back(entry);
      entry = left_.back();
      left_.pop_back();
    }
    left_.insert(left_.end(), deferred.begin(), deferred.end());
    return drawn;
  }

 private:
  const bool unique_;
  std::vector<std::uint32_t> left_;
};

class FixedStreamDraws : public testing::TestWithParam<std::tuple<std::uint32_t, std::uint32_t, bool, int>> {};

TEST_P(FixedStreamDraws, are_those_of_its_definition) {
  const auto [items, uses, unique, batches] = GetParam();
  constexpr std::uint32_t kRows = 50;
  constexpr std::uint64_t kSeed = 7;
  Plan plan({.capacity = items,
             .slots = items,
             .factor = static_cast<double>(uses),
             .seed = kSeed,
             .unique_in_batch = unique});
  for (std::uint32_t slot = 0; slot < items; ++slot) {
    plan.feed(slot);
  }
  ASSERT_TRUE(plan.end_input());
  Entries entries(items, uses, unique);
  Xoshiro256 random(stream_key(kSeed, 0, Draws::kDraw));
  for (int batch = 0; batch < batches; ++batch) {
    std::vector<Use> rows(kRows);
    std::uint32_t drawn = 0;
    static_cast<void>(plan.draw(rows, drawn));
    plan.end_batch();
    rows.resize(drawn);
    ASSERT_TRUE(std::ranges::equal(rows, entries.batch(kRows, random), {}, &Use::slot)) << "batch " << batch;
  }
}

// All but the last draw until nothing is left; the last looks at every use that is left for each batch of two rows.
INSTANTIATE_TEST_SUITE_P(Pools, FixedStreamDraws,
                         testing::Values(std::tuple(60U, 5U, false, 10), std::tuple(60U, 5U, true, 20),
                                         std::tuple(1U, 200U, false, 5), std::tuple(200'000U, 3U, false, 12'001),
                                         std::tuple(2U, 200'000U, true, 10)));

TEST(FixedStream, one_item_needs_no_memory_for_its_uses) {
  EXPECT_LT(Plan::size_bytes({.factor = 0x1.0p31}), 100U);
  EXPECT_NO_THROW(Plan({.factor = 0x1.0p31}));
}

}  // namespace
}  // namespace pyecho::test
