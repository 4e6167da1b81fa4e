// BatchRing: each item is claimed once, and the consumer gets the items whole and in the order of planning. Each run
// executes core/stage/batch_ring.hpp itself.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>

#include "core/stage/batch_ring.hpp"
#include "model/atom.hpp"
#include "model/blocking.hpp"
#include "model/explore.hpp"

namespace pyecho::model {
namespace {

struct Item {
  Plain<int> rows;    // written by the planner
  Plain<int> copied;  // by the thread that has claimed it
};

// A planner that also copies, as workers do, another thread that copies, and a consumer.
struct Making {
  using Ring = BatchRing<Item, Atom, BasicEventCount<Atom, Mutex, Condition>>;

  Ring ring;
  std::array<Item, 3> items;
  std::uint64_t left;
  std::uint64_t next = 0;

  Making(std::uint32_t depth, std::uint64_t batches) : ring(depth), left(batches) {}

  static void check(bool holds, const char* what) { Scheduler::current()->check(holds, what); }
  // Items come round, as blocks do once the consumer has given them back.
  void plan_some() {
    for (; left > 0 && !ring.full(); --left) {
      Item& item = items[next % items.size()];
      item.rows.write(static_cast<int>(next));
      item.copied.write(-1);
      ring.plan(&item);
      ++next;
    }
  }
  bool copy() {
    Ring::Claim claim;
    if (!ring.claim(claim)) {
      return false;
    }
    check(claim.item->rows.read() == static_cast<int>(claim.number), "a batch that is planned");
    check(claim.item->copied.read() == -1, "claimed once");
    claim.item->copied.write(static_cast<int>(claim.number));
    ring.publish(claim);
    return true;
  }
  void sleep_until(auto& count, std::uint64_t target) {
    static_cast<void>(count.await(target, kNever, WaitStrategy::sleep(), [] { return false; }));
  }
};

Program making(std::uint32_t depth, std::uint64_t batches) {
  auto state = std::make_shared<Making>(depth, batches);
  Program program;
  program.threads.emplace_back([=] {
    while (state->left > 0) {
      state->plan_some();
      while (state->copy()) {
      }
      if (state->left > 0) {
        state->sleep_until(state->ring.taken(), state->ring.planned() - depth + 1);
      }
    }
  });
  program.threads.emplace_back([=] {
    for (std::uint64_t attempt = 0; attempt < batches; ++attempt) {
      state->copy();
    }
  });
  program.threads.emplace_back([=] {
    for (std::uint64_t number = 0; number < batches; ++number) {
      for (;;) {
        const std::uint64_t seen = state->ring.ready().read();
        if (Item* const item = state->ring.front(); item != nullptr) {
          Making::check(item->copied.read() == static_cast<int>(number), "whole, in order");
          state->ring.take();
          break;
        }
        state->sleep_until(state->ring.ready(), std::max(seen, number) + 1);
      }
    }
  });
  program.afterwards = [=] { Making::check(state->ring.untaken() == 0, "all are taken"); };
  return program;
}

TEST(BatchRingModel, batches_leave_whole_and_in_order_in_every_interleaving) {
  for (const std::uint32_t depth : {1U, 2U}) {
    const Report report = explore_all([&] { return making(depth, 2); }, {.preemptions = 1, .stale_reads = 1});
    EXPECT_TRUE(report.complete) << report.runs;
    EXPECT_EQ(report.failed_runs, 0U) << report.first_failure;
  }
  const Report random = explore_random([] { return making(3, 6); }, 3000);
  EXPECT_EQ(random.failed_runs, 0U) << random.first_failure;
}

}  // namespace
}  // namespace pyecho::model
