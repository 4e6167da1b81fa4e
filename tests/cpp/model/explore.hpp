// Explores the runs of a small concurrent program: all of them within limits, or a random sample.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/random.hpp"
#include "scheduler.hpp"

namespace pyecho::model {

// One run: fresh state, held by the functions.
struct Program {
  std::vector<std::function<void()>> threads;
  std::function<void()> afterwards = [] {};  // runs when all threads are done; sees all their steps
};

struct Report {
  std::uint64_t runs = 0;
  std::uint64_t failed_runs = 0;
  bool complete = false;  // every run within the limits was made
  std::string first_failure;
};

// Depth-first over the tree of choices. Each run repeats a prefix of the last one and then differs.
class Exhaustive : public Chooser {
 public:
  std::uint32_t choose(std::uint32_t options) override {
    if (options < 2) {
      return 0;
    }
    if (depth_ == trail_.size()) {
      trail_.push_back({0, options});
    }
    return trail_[depth_++].choice;
  }
  // Proceeds to the next run. Returns false if there is none.
  bool advance() {
    depth_ = 0;
    while (!trail_.empty() && trail_.back().choice + 1 == trail_.back().options) {
      trail_.pop_back();
    }
    if (trail_.empty()) {
      return false;
    }
    ++trail_.back().choice;
    return true;
  }

 private:
  struct Branch {
    std::uint32_t choice;
    std::uint32_t options;
  };
  std::vector<Branch> trail_;
  std::size_t depth_ = 0;
};

class Random : public Chooser {
 public:
  explicit Random(std::uint64_t seed) : random_(seed) {}
  // Makes the default choice half of the time, so that threads also progress.
  std::uint32_t choose(std::uint32_t options) override {
    return options < 2 || random_.below(2) == 0 ? 0 : random_.below(options);
  }

 private:
  Xoshiro256 random_;
};

inline void run_once(Scheduler& scheduler, Chooser& chooser, const Program& program, Report& report) {
  const auto& failures = scheduler.run(program.threads, chooser);
  program.afterwards();
  ++report.runs;
  if (!failures.empty()) {
    report.first_failure = report.failed_runs == 0 ? failures.front() : report.first_failure;
    ++report.failed_runs;
  }
}

// Explores all runs within `limits`, at most `max_runs`.
inline Report explore_all(const std::function<Program()>& make, const Limits& limits,
                          std::uint64_t max_runs = 400'000) {
  Report report;
  Scheduler scheduler(limits);
  Exhaustive chooser;
  do {
    run_once(scheduler, chooser, make(), report);
    if (report.runs == max_runs) {
      return report;
    }
  } while (chooser.advance());
  report.complete = true;
  return report;
}

// Makes `runs` random runs, without a limit on switches and stale reads.
inline Report explore_random(const std::function<Program()>& make, std::uint64_t runs, Limits limits = {}) {
  Report report;
  limits.preemptions = limits.stale_reads = 1'000'000;
  Scheduler scheduler(limits);
  for (std::uint64_t run = 0; run < runs; ++run) {
    Random chooser(run);
    run_once(scheduler, chooser, make(), report);
  }
  return report;
}

}  // namespace pyecho::model
