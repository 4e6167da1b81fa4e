// Every driver call of a whole scenario fails in turn: only once, or together with all later calls, as after a fault of
// the context.
//
// Each run is a process of its own, forked before the stand-in is initialised, so that leftovers of a failed call (for
// example, a registration) do not affect other runs.
#pragma once

#include <cstdio>
#include <string>

#include "fixture.hpp"

namespace pyecho::cuda {

struct Failure {
  std::string call;
  std::uint64_t nth;
  Result code;
  bool sticky;
};

// What all scenarios have in common. A scenario is run by its constructor, which takes a Failure and a mode of the
// stand-in's streams.
class FailingScenario {
 public:
  explicit FailingScenario(const Failure& failure) : failure_(failure) {}

  // True if the scenario was long enough to reach the failure.
  [[nodiscard]] bool met() const { return met_; }
  [[nodiscard]] bool ok() const { return ok_; }
  static void report(const Failure& failure, const char* what) {
    std::fprintf(stderr, "call %lu of %s, %s %d: %s\n", static_cast<unsigned long>(failure.nth), failure.call.c_str(),
                 failure.sticky ? "and all later ones," : "only that one,", failure.code, what);
  }

 protected:
  void arm(int hold) const {
    standin_restore();  // counts from here on
    standin_set_seed(failure_.nth);
    standin_hold(hold);
    standin_fail_call(failure_.call.c_str(), failure_.nth, failure_.code, failure_.sticky ? 1 : 0);
  }
  [[nodiscard]] bool reached() const { return standin_calls_of(failure_.call.c_str()) >= failure_.nth; }
  void expect(bool fact, const char* otherwise) {
    if (!fact) {
      report(failure_, otherwise);
      ok_ = false;
    }
  }

  const Failure failure_;
  bool met_ = false;
  bool ok_ = true;
};

inline constexpr int kMet = 0;
inline constexpr int kNotMet = 1;
inline constexpr int kWrong = 2;

// Runs the scenario in a process of its own, which must not hang.
template <class Scenario>
int run_scenario(const Failure& failure, int hold) {
  constexpr unsigned kSeconds = 60;
  const int answer = in_forked_child([&] {
    alarm(kSeconds);
    // Never destroyed, because leftovers of a fault refer to it. The process ends at once, so no leak is reported.
    const auto* const scenario = new Scenario(failure, hold);
    return !scenario->ok() ? kWrong : scenario->met() ? kMet : kNotMet;
  });
  if (answer < kMet || answer > kNotMet) {
    FailingScenario::report(failure, answer == kWrong ? "wrong" : "hung or crashed");
    return kWrong;
  }
  return answer;
}

// Exits with 0 on success, with 1 on failure, and with 2 if there were fewer than `least` calls to fail.
template <class Scenario>
void fail_every_call(Result code, bool sticky, int hold, std::uint64_t least) {
  bool ok = true;
  std::uint64_t met = 0;
  for (const Symbol& symbol : kSymbols) {
    int answer = kMet;
    for (std::uint64_t nth = 1; answer == kMet; ++nth) {
      answer = run_scenario<Scenario>({.call = symbol.name, .nth = nth, .code = code, .sticky = sticky}, hold);
      ok = ok && answer != kWrong;
      met += answer != kNotMet ? 1 : 0;
    }
  }
  std::fprintf(stderr, "%lu calls failed\n", static_cast<unsigned long>(met));
  std::exit(!ok ? 1 : met < least ? 2 : 0);
}

}  // namespace pyecho::cuda
