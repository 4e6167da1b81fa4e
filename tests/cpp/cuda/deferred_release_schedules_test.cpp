// Random schedules: a consumer copies batches on several streams, captures some of the streams, and drops the batches. The
// stand-in draws which stream proceeds when. Batches are overwritten as soon as they are given back, yet the data that
// arrives must always be right.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>

#include "deferred_release_fixture.hpp"

namespace pyecho::cuda {
namespace {

#ifdef __SANITIZE_THREAD__
constexpr std::uint64_t kSchedules = 500;  // fewer, because a single thread has no races for the sanitizer to find
#else
constexpr std::uint64_t kSchedules = 5'000;
#endif

class DeferredReleaseSchedules : public DeferredReleaseTest {
 protected:
  static constexpr std::size_t kBatches = 5;
  static constexpr int kActions = 60;

  StreamHandle any_stream(Xoshiro256& random) { return streams_[random.below(kStreams)]; }

  // Copies on the current stream (any stream if watched_) or the default one, and drops. The current stream is random.
  void copy_and_drop(std::size_t index, DeferredRelease& retirement, Xoshiro256& random) {
    OwnBatch& own = *batches_[index];
    own.take(random.next());
    const StreamHandle current = any_stream(random);
    const StreamHandle used = watched_ ? any_stream(random) : current;
    if (used == nullptr || used != captured_) {
      own.copy(random.below(4) == 0 ? nullptr : used);
    }
    own.drop(retirement, current);
    dropped_[index] = true;
  }

  // True if every batch that was given back had been copied.
  bool sweep() {
    bool right = true;
    for (std::size_t i = 0; i < kBatches; ++i) {
      if (dropped_[i] && batches_[i]->ended()) {
        dropped_[i] = false;
        right = right && (batches_[i]->copies() == 0 || batches_[i]->arrived());
        batches_[i]->overwrite();
      }
    }
    return right;
  }

  void begin_or_end_capture(Xoshiro256& random) {
    if (captured_ != nullptr) {
      undisturbed_ = standin_end_capture() == kSuccess && undisturbed_;
      captured_ = nullptr;
    } else if (const StreamHandle chosen = any_stream(random); standin_begin_capture_of(chosen) == kSuccess) {
      captured_ = chosen;
    }
  }

  bool run(std::uint64_t seed);

  static constexpr std::uint32_t kStreams = 4;
  std::array<StreamHandle, kStreams> streams_{stream, new_stream(device), new_stream(device), nullptr};
  std::vector<std::unique_ptr<OwnBatch>> batches_ = batches(kBatches);
  std::array<bool, kBatches> dropped_{};
  StreamHandle captured_ = nullptr;
  bool watched_ = false;     // copies are made on any of the streams, and not only on the current one
  bool undisturbed_ = true;  // no capture was invalidated
};

// True on success.
bool DeferredReleaseSchedules::run(std::uint64_t seed) {
  Xoshiro256 random(seed);
  standin_set_seed(seed);
  DeferredRelease retirement(device);
  bool right = true;
  watched_ = seed % 2 == 1;
  if (watched_) {
    retirement.watch(device, std::span(streams_).first(3));
  }
  for (int action = 0; action < kActions; ++action) {
    const std::size_t index = random.below(kBatches);
    switch (random.below(8)) {
      case 0:
      case 1:
      case 2:
        if (!dropped_[index]) {
          copy_and_drop(index, retirement, random);
        }
        break;
      case 3:
        begin_or_end_capture(random);
        break;
      case 4:
      case 5:
        for (std::uint32_t steps = random.below(6); steps > 0; --steps) {
          standin_step();
        }
        break;
      default:
        retirement.poll();
        break;
    }
    right = right && sweep();
  }
  if (captured_ != nullptr) {
    begin_or_end_capture(random);
  }
  if (random.below(2) == 0) {
    for (int looks = 0; retirement.waiting() > 0 && looks < 20; ++looks) {
      standin_drain();
      retirement.poll();
    }
    right = right && sweep() && retirement.waiting() == 0;
  }
  return right && undisturbed_;  // and the retirement waits for the rest
}

TEST_F(DeferredReleaseSchedules, no_batch_is_given_back_before_its_copy_is_done) {
  standin_hold(STANDIN_STEP);
  for (std::uint64_t seed = 0; seed < kSchedules; ++seed) {
    ASSERT_TRUE(run(seed)) << "seed " << seed;
    ASSERT_TRUE(sweep()) << "at the end, seed " << seed;
    ASSERT_FALSE(std::ranges::any_of(dropped_, std::identity{})) << "at the end a lease was lost, seed " << seed;
    ASSERT_EQ(new_live_events(), 0);
  }
  EXPECT_EQ(standin_unpinned_copies(), 0U);
}

TEST_F(DeferredReleaseSchedules, streams_that_run_by_themselves) {
  standin_set_max_delay_us(20);
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    ASSERT_TRUE(run(seed)) << "seed " << seed;
    ASSERT_TRUE(sweep()) << "at the end, seed " << seed;
    ASSERT_FALSE(std::ranges::any_of(dropped_, std::identity{})) << "at the end a lease was lost, seed " << seed;
  }
}

}  // namespace
}  // namespace pyecho::cuda
