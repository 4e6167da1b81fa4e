// Every driver call of a whole scenario fails in turn: only once, or together with all later calls. In each case, no batch
// is given back before its copies are done, and none is lost forever.
//
// Each run is a process of its own, as in transfer_failures_test.cpp.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <optional>
#include <set>

#include "deferred_release_fixture.hpp"

namespace pyecho::cuda {
namespace {

struct Failure {
  std::string call;
  std::uint64_t nth;
  Result code;
  bool sticky;
};

class Scenario {
 public:
  Scenario(const Failure& failure, int hold) : failure_(failure) {
    for (std::size_t i = 0; i < kBatches; ++i) {
      batches_.push_back(std::make_unique<OwnBatch>(device_));
    }
    standin_restore();  // counts from here on
    standin_set_seed(failure.nth);
    standin_hold(hold);
    standin_fail_call(failure.call.c_str(), failure.nth, failure.code, failure.sticky ? 1 : 0);
    run();
  }

  // True if the scenario was long enough to reach the failure.
  [[nodiscard]] bool met() const { return met_; }
  [[nodiscard]] bool ok() const { return ok_; }

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

  [[nodiscard]] bool reached() const { return standin_calls_of(failure_.call.c_str()) >= failure_.nth; }

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

  void expect(bool fact, const char* otherwise) {
    if (!fact) {
      std::fprintf(stderr, "call %lu of %s, %s %d: %s\n", static_cast<unsigned long>(failure_.nth),
                   failure_.call.c_str(), failure_.sticky ? "and all later ones," : "only that one,", failure_.code,
                   otherwise);
      ok_ = false;
    }
  }

  const Failure failure_;
  const Device& device_ = Device::get(0);
  const StreamHandle first_ = new_stream(device_);
  const StreamHandle second_ = new_stream(device_);
  std::vector<std::unique_ptr<OwnBatch>> batches_;
  bool leased_[kBatches] = {};
  std::optional<DeferredRelease> retirement_;
  bool met_ = false;
  bool ok_ = true;
};

enum class Answer : int { kMet = 0, kNotMet = 1, kWrong = 2 };

// Runs the scenario in a process of its own, which must not hang.
Answer run_scenario(const Failure& failure, int hold) {
  constexpr unsigned kSeconds = 60;
  const int answer = in_forked_child([&] {
    alarm(kSeconds);
    const auto* const scenario = new Scenario(failure, hold);  // not destroyed: a fault leaves its batches registered
    return static_cast<int>(!scenario->ok() ? Answer::kWrong : scenario->met() ? Answer::kMet : Answer::kNotMet);
  });
  if (answer < 0 || answer > 1) {
    std::fprintf(stderr, "call %lu of %s, code %d, sticky %d: %s\n", static_cast<unsigned long>(failure.nth),
                 failure.call.c_str(), failure.code, static_cast<int>(failure.sticky),
                 answer == 2 ? "wrong" : "hung or crashed");
    return Answer::kWrong;
  }
  return static_cast<Answer>(answer);
}

// Exits with 0 on success, with 1 on failure, and with 2 if there were too few calls to fail.
void fail_every_call(Result code, bool sticky, int hold) {
  bool ok = true;
  std::uint64_t met = 0;
  for (const Symbol& symbol : kSymbols) {
    Answer answer = Answer::kMet;
    for (std::uint64_t nth = 1; answer == Answer::kMet; ++nth) {
      answer = run_scenario({.call = symbol.name, .nth = nth, .code = code, .sticky = sticky}, hold);
      ok = ok && answer != Answer::kWrong;
      met += answer != Answer::kNotMet ? 1 : 0;
    }
  }
  std::fprintf(stderr, "%lu calls failed\n", static_cast<unsigned long>(met));
  std::exit(!ok ? 1 : met < 60 ? 2 : 0);
}

TEST(DeferredReleaseFailuresDeathTest, any_single_call_may_fail) {
  EXPECT_EXIT(fail_every_call(kUnknown, false, STANDIN_STEP), testing::ExitedWithCode(0), "");
}

TEST(DeferredReleaseFailuresDeathTest, any_single_call_may_fail_while_the_streams_run) {
  EXPECT_EXIT(fail_every_call(kOutOfMemory, false, STANDIN_RUN), testing::ExitedWithCode(0), "");
}

TEST(DeferredReleaseFailuresDeathTest, the_context_may_break_at_any_call) {
  EXPECT_EXIT(fail_every_call(kIllegalAddress, true, STANDIN_STEP), testing::ExitedWithCode(0), "");
}

TEST(DeferredReleaseFailuresDeathTest, the_driver_may_end_at_any_call) {
  EXPECT_EXIT(fail_every_call(kDeinitialized, true, STANDIN_STEP), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace pyecho::cuda
