// A single failed call: no batch is given back before its copies are done, and none is lost forever. Also if all later calls
// fail, because the context is broken or the driver has ended.
#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <set>

#include "deferred_release_fixture.hpp"
#include "failing_calls.hpp"

namespace pyecho::cuda {
namespace {

class Scenario : public FailingScenario {
 public:
  Scenario(const Failure& failure, int hold) : FailingScenario(failure) {
    for (std::size_t i = 0; i < kBatches; ++i) {
      batches_.push_back(std::make_unique<OwnBatch>(device_));
    }
    arm(hold);
    run();
  }

 private:
  static constexpr std::size_t kBatches = 7;
  const std::set<std::size_t> captured_{2, 5};

  void run() {
    const std::uint64_t events = standin_live_events();
    retirement_.emplace(device_);
    retirement_->watch(device_, std::array{first_, second_});
    copy_and_drop(0, first_);
    look();
    copy_and_drop(1, second_);
    step(3);
    look();
    standin_begin_capture_of(first_);
    copy_and_drop(2, first_);
    look();
    look();
    standin_end_capture();
    copy_and_drop(3, nullptr);
    look();
    step(4);
    look();
    standin_drain();
    for (int looks = 0; looks < 4; ++looks) {
      look();
      standin_drain();
    }
    // By now a single failure has been recovered from.
    look();
    expect(failure_.sticky || retirement_->waiting() == 0, "a batch was forgotten");
    for (std::size_t i = 0; i < kBatches; ++i) {
      expect(failure_.sticky || batches_[i]->ended(), "a lease was lost");
    }
    look();
    if (failure_.sticky && reached()) {
      expect(retirement_->waiting() == 0, "the consumer would wait for ever");
    }
    copy_and_drop(4, first_);
    standin_begin_capture_of(second_);
    copy_and_drop(5, second_);
    standin_end_capture();
    copy_and_drop(6, second_);
    retirement_.reset();
    met_ = reached();
    sweep();
    for (const auto& batch : batches_) {
      expect(batch->ended(), "a lease was lost at the end");
    }
    check_events(standin_live_events() - events);
    standin_drain();
    standin_fail_call(nullptr, 0, 0, 0);
    expect(standin_violations() == 0, standin_last_violation());
  }

  // Batches copied on the second stream are dropped while the first one is current.
  void copy_and_drop(std::size_t index, StreamHandle stream) {
    OwnBatch& batch = *batches_[index];
    batch.take(index + 1);
    try {
      batch.copy(stream);
    } catch (const CudaError&) {
      // The consumer is told that there is no copy.
    }
    leased_[index] = true;
    batch.drop(*retirement_, stream == second_ ? first_ : stream);
    sweep();
  }

  void look() {
    retirement_->poll();
    sweep();
  }

  void step(int steps) {
    for (; steps > 0; --steps) {
      standin_step();
    }
    sweep();
  }

  // Batches that were given back must have been copied, except for captured copies. Without a device nothing is copied.
  void sweep() {
    for (std::size_t i = 0; i < kBatches; ++i) {
      if (leased_[i] && batches_[i]->ended()) {
        leased_[i] = false;
        const bool copied = batches_[i]->arrived() || batches_[i]->copies() == 0 || captured_.contains(i);
        expect(copied || (failure_.sticky && reached()), "a batch was given back before its copy was done");
        batches_[i]->overwrite();
      }
    }
  }

  void check_events(std::uint64_t left) {
    const bool entering = failure_.call == "cuCtxPushCurrent" || failure_.call == "cuThreadExchangeStreamCaptureMode";
    const bool may_leave = failure_.sticky || entering || failure_.call == "cuEventDestroy";
    expect(left == 0 || (met_ && may_leave), "events were left behind");
    expect(left <= 1 || failure_.sticky || entering, "more events than one were left behind");
  }

  const Device& device_ = Device::get(0);
  const StreamHandle first_ = new_stream(device_);
  const StreamHandle second_ = new_stream(device_);
  std::vector<std::unique_ptr<OwnBatch>> batches_;
  bool leased_[kBatches] = {};
  std::optional<DeferredRelease> retirement_;
};

TEST(DeferredReleaseFailuresDeathTest, any_single_call_may_fail) {
  EXPECT_EXIT(fail_every_call<Scenario>(kUnknown, false, STANDIN_STEP, 60), testing::ExitedWithCode(0), "");
}

TEST(DeferredReleaseFailuresDeathTest, any_single_call_may_fail_while_the_streams_run) {
  EXPECT_EXIT(fail_every_call<Scenario>(kOutOfMemory, false, STANDIN_RUN, 60), testing::ExitedWithCode(0), "");
}

TEST(DeferredReleaseFailuresDeathTest, the_context_may_break_at_any_call) {
  EXPECT_EXIT(fail_every_call<Scenario>(kIllegalAddress, true, STANDIN_STEP, 60), testing::ExitedWithCode(0), "");
}

TEST(DeferredReleaseFailuresDeathTest, the_driver_may_end_at_any_call) {
  EXPECT_EXIT(fail_every_call<Scenario>(kDeinitialized, true, STANDIN_STEP, 60), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace pyecho::cuda
