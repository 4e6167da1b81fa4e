// A single failed call, and one with all later calls: what arrives is right, and no source is let go of too early.
#include <gtest/gtest.h>

#include <functional>
#include <optional>

#include "failing_calls.hpp"
#include "transfer_fixture.hpp"

#ifdef __SANITIZE_THREAD__
// Hundreds of processes end here, and ThreadSanitizer would make each sleep for a second.
extern "C" const char* __tsan_default_options() { return "atexit_sleep_ms=0"; }
#endif

namespace pyecho::cuda {
namespace {

// The observable state of one transfer.
struct Attempt {
  std::vector<std::unique_ptr<Source>> sources;  // one a copy; all kept by the first one's holder
  std::vector<std::unique_ptr<Target>> targets;
  std::shared_ptr<const Transfer> transfer;
  std::string failed_call;  // "" if start() returned

  [[nodiscard]] bool arrived() const {
    for (std::size_t i = 0; i < sources.size(); ++i) {
      if (!targets[i]->has(*sources[i])) {
        return false;
      }
    }
    return true;
  }
  [[nodiscard]] bool kept() const { return sources.front()->times_let_go() == 0; }
  // True if start() issued a copy, or tried to.
  [[nodiscard]] bool issued() const {
    return failed_call.empty() || failed_call == "cuMemcpyHtoDAsync" || failed_call == "cuEventRecord";
  }
};

class Scenario : public FailingScenario {
 public:
  Scenario(const Failure& failure, int hold) : FailingScenario(failure), hold_(hold) {
    arm(hold);
    run();
  }

 private:
  static constexpr std::size_t kBytes = 3000;
  static constexpr std::size_t kPinnedCopies = 6;

  enum class Kind { kPinned, kPageable };

  Attempt& prepare(std::initializer_list<std::pair<Kind, std::size_t>> copies) {
    Attempt& attempt = attempts_.emplace_back();
    for (const auto& [kind, size_bytes] : copies) {
      std::span<std::byte> bytes;
      if (kind == Kind::kPinned) {
        bytes = {pinned_memory_.data() + pinned_used_++ * kBytes, size_bytes};
      } else {
        bytes = pageable_memory_.emplace_back(size_bytes);
      }
      attempt.sources.push_back(std::make_unique<Source>(bytes, ++last_key_));
      attempt.targets.push_back(std::make_unique<Target>(size_bytes));
    }
    return attempt;
  }

  void start(TransferEngine& engine, Attempt& attempt) {
    std::vector<Copy> copies;
    for (std::size_t i = 0; i < attempt.sources.size(); ++i) {
      copies.push_back(attempt.targets[i]->from(*attempt.sources[i]));
    }
    auto holds = std::make_shared<std::vector<std::shared_ptr<void>>>();
    for (const auto& source : attempt.sources) {
      holds->push_back(source->hold());
    }
    const std::size_t errors = errors_;
    act([&] { attempt.transfer = engine.start(copies, std::move(holds)); });
    attempt.failed_call = errors_ > errors ? last_failed_call_ : "";
  }

  // The only permitted exception is a CudaError for the failure.
  template <class Action>
  void act(const Action& action) {
    try {
      action();
    } catch (const CudaError& error) {
      ++errors_;
      last_failed_call_ = error.call();
      expect(error.code() == failure_.code, "an error has another code");
      expect(failure_.sticky || error.call() == failure_.call, "an error names another call");
    }
  }

  void run() {
    const std::uint64_t events = standin_live_events();
    const std::uint64_t ranges = standin_registered_ranges();
    std::optional<TransferEngine> engine;
    act([&] { engine.emplace(device_, 2, 1); });
    if (!engine) {
      met_ = true;
      expect(errors_ == 1, "there is no engine, and no reason");
      expect(failure_.sticky || standin_live_events() == events, "events were left behind");
      return;
    }

    Attempt& first = prepare({{Kind::kPinned, kBytes}, {Kind::kPageable, 1000}, {Kind::kPinned, 0}});
    Attempt& second = prepare({{Kind::kPageable, kBytes}, {Kind::kPageable, 1}});
    Attempt& third = prepare({{Kind::kPinned, 100}, {Kind::kPinned, kBytes}});
    Attempt& fourth = prepare({{Kind::kPageable, 10}, {Kind::kPageable, 0}});
    Attempt& fifth = prepare({{Kind::kPageable, 20'000}});
    Attempt& sixth = prepare({{Kind::kPinned, 2000}});

    start(*engine, first);
    wait_on(first);
    act([&] { engine->poll(); });
    start(*engine, second);
    act([&] { engine->mark()->wait_on(stream_); });
    start(*engine, third);  // has to wait
    wait_on(second);
    for (int step = 0; step < 3; ++step) {
      standin_step();
    }
    act([&] { engine->poll(); });
    act([&] { engine->drain(); });
    wait_on(third);
    first.transfer.reset();
    start(*engine, fourth);
    standin_drain();
    act([&] { engine->poll(); });
    start(*engine, fifth);  // needs a larger block
    start(*engine, sixth);
    wait_on(sixth);

    const std::uint64_t calls_before = standin_calls_of(failure_.call.c_str());
    const auto kept_before = static_cast<std::size_t>(kept());
    for (Attempt& attempt : attempts_) {
      attempt.transfer.reset();
    }
    engine.reset();
    met_ = reached();
    const bool in_destructor = met_ && failure_.nth > calls_before;
    // A source that was not released may still be read: after a fault, by a copy that had begun.
    standin_drain();
    standin_hold(STANDIN_HOLD);
    check_data();
    if (!met_ || !failure_.sticky) {
      check_after_one_failure(in_destructor, in_destructor ? failure_.nth - calls_before : 0, kept_before,
                              standin_live_events() - events, standin_registered_ranges() - ranges);
    } else {
      // At the end of the last scope before the destructor, because the destructor does not report failures.
      const bool in_last_scope = failure_.nth == calls_before && (failure_.call == "cuCtxPopCurrent" ||
                                                                  failure_.call == "cuThreadExchangeStreamCaptureMode");
      check_after_a_fault(in_destructor || in_last_scope);
    }
    expect(standin_violations() == 0, standin_last_violation());
    standin_fail_call(nullptr, 0, 0, 0);
  }

  void wait_on(const Attempt& attempt) {
    if (attempt.transfer != nullptr) {
      act([&] { attempt.transfer->wait_on(stream_); });
    }
  }

  [[nodiscard]] std::ptrdiff_t kept() const {
    return std::count_if(attempts_.begin(), attempts_.end(), [](const Attempt& attempt) { return attempt.kept(); });
  }

  void check_data() {
    for (const Attempt& attempt : attempts_) {
      for (std::size_t i = 0; i < attempt.sources.size(); ++i) {
        const Source& source = *attempt.sources[i];
        const Target& target = *attempt.targets[i];
        expect(target.has(source) || target.untouched(), "what arrived is wrong");
        expect(source.times_let_go() <= 1, "a source was let go of twice");
        expect(source.times_let_go() == attempt.sources[0]->times_let_go(), "sources of a transfer were separated");
      }
    }
  }

  void check_after_one_failure(bool in_destructor, std::uint64_t nth_in_destructor, std::size_t kept_before,
                               std::uint64_t new_events, std::uint64_t new_ranges) {
    for (const Attempt& attempt : attempts_) {
      expect(attempt.arrived() || !attempt.failed_call.empty(), "a transfer that was started did not arrive");
    }
    expect(errors_ <= 1, "one failure made several errors");
    const bool entering = failure_.call == "cuCtxPushCurrent" || failure_.call == "cuThreadExchangeStreamCaptureMode";
    const bool swallowed = met_ && errors_ == 0;
    // Sources are lost only if the destructor cannot make a context current in order to wait: either all that were under
    // way, or all but the first.
    if (met_ && in_destructor && entering) {
      expect(nth_in_destructor > 1 || kept() == static_cast<std::ptrdiff_t>(kept_before), "some were let go of");
      expect(hold_ == STANDIN_RUN || nth_in_destructor > 1 || kept_before == 2, "the end should find two under way");
    } else {
      expect(kept() == 0, "a source was not let go of");
    }
    // A failure that could not be reported leaves its own object behind. If it failed to enter a context in a destructor,
    // it leaves all objects of that destructor behind.
    const bool may_leave_any = swallowed && entering;
    expect(new_events == 0 || may_leave_any || (swallowed && failure_.call == "cuEventDestroy" && new_events == 1),
           "events were left behind");
    expect(new_ranges == 0 || may_leave_any || (swallowed && failure_.call == "cuMemHostUnregister" && new_ranges == 1),
           "registrations were left behind");
    for (const char* const harmless :
         {"cuCtxPushCurrent", "cuThreadExchangeStreamCaptureMode", "cuCtxPopCurrent", "cuEventDestroy",
          "cuMemHostRegister", "cuMemHostUnregister", "cuPointerGetAttribute", "cuDeviceGetAttribute"}) {
      if (failure_.call == harmless) {
        return;
      }
    }
    expect(!swallowed || in_destructor, "a failure did not surface");
  }

  void check_after_a_fault(bool nobody_was_told) {
    expect(errors_ > 0 || nobody_was_told, "a fault did not surface");
    for (const Attempt& attempt : attempts_) {
      if (torn_down(failure_.code)) {
        expect(!attempt.kept(), "a source was not let go of, though there is no device any more");
      } else if (attempt.issued()) {
        // Leaked if the fault came first.
        expect(attempt.kept() || attempt.arrived(), "a source was let go of before its copies were done");
      } else {
        expect(!attempt.kept(), "a source was kept of which no copy was issued");
      }
    }
  }

  const int hold_;
  const Device& device_ = Device::get(0);
  const StreamHandle stream_ = new_stream(device_);
  PinnedBuffer pinned_memory_{device_, kPinnedCopies * kBytes};
  std::deque<std::vector<std::byte>> pageable_memory_;
  std::size_t pinned_used_ = 0;
  std::uint64_t last_key_ = 0;
  std::deque<Attempt> attempts_;
  std::size_t errors_ = 0;
  std::string last_failed_call_;
};

TEST(TransferFailuresDeathTest, any_single_call_may_fail) {
  EXPECT_EXIT(fail_every_call<Scenario>(kUnknown, false, STANDIN_STEP, 100), testing::ExitedWithCode(0), "");
}

TEST(TransferFailuresDeathTest, any_single_call_may_fail_while_the_streams_run) {
  EXPECT_EXIT(fail_every_call<Scenario>(kOutOfMemory, false, STANDIN_RUN, 100), testing::ExitedWithCode(0), "");
}

TEST(TransferFailuresDeathTest, the_context_may_break_at_any_call) {
  EXPECT_EXIT(fail_every_call<Scenario>(kIllegalAddress, true, STANDIN_STEP, 100), testing::ExitedWithCode(0), "");
}

TEST(TransferFailuresDeathTest, the_context_may_break_at_any_call_while_the_streams_run) {
  EXPECT_EXIT(fail_every_call<Scenario>(kIllegalAddress, true, STANDIN_RUN, 100), testing::ExitedWithCode(0), "");
}

TEST(TransferFailuresDeathTest, the_driver_may_end_at_any_call) {
  EXPECT_EXIT(fail_every_call<Scenario>(kDeinitialized, true, STANDIN_STEP, 100), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace pyecho::cuda
