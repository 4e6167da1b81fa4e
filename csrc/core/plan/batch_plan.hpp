// The batches of an epoch as slot numbers, for an executor that keeps the examples elsewhere (on a device): which
// examples to store into which slots, and then which slots make up the batch. Pure arithmetic.
//
// The batches are those of an EchoBuffer with the same configuration, use by use. A slot whose last use is in a batch is
// not stored to before that batch is taken, so all stores of a batch may be done at once, before all of its reads.
//
//     BatchPlan plan(config, batch_rows, drop_last);
//     for (;;) {
//       switch (plan.advance()) {
//         case Outcome::kEmpty: plan.offer(number of examples that have come);  or  plan.end_of_source();  break;
//         case Outcome::kOk:    store to plan.admitted(); read plan.uses(); plan.take();  break;
//         default:              return;  // kEnd
//       }
//     }
//
// Not thread-safe: one thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/plan/planner.hpp"
#include "core/sync/outcome.hpp"

namespace pyecho {

class BatchPlan {
 public:
  // config.slots is not read: slots_for() says how many there are.
  BatchPlan(PlannerConfig config, std::uint32_t batch_rows, bool drop_last);

  // Slots that batches of this size need beside a pool of this capacity.
  [[nodiscard]] static std::uint32_t slots_for(std::uint32_t capacity, std::uint32_t batch_rows) noexcept {
    return capacity + batch_rows;
  }

  // Plans on: kOk when a batch is complete, kEmpty when an example is needed first, kEnd when there is no other batch.
  Outcome advance();
  // So many more examples can be admitted.
  void offer(std::uint64_t examples) noexcept { offered_ += examples; }
  // None will follow those that were offered.
  void end_of_source() noexcept { ended_ = true; }
  // Goes on to the next batch.
  void take();

  [[nodiscard]] std::uint32_t resident() const noexcept { return planner_.resident(); }

  // Where to store the examples that the batch needs and that were not admitted before, in source order.
  [[nodiscard]] std::span<const std::uint32_t> admitted() const noexcept { return admitted_; }
  // The rows of the batch.
  [[nodiscard]] std::span<const Use> uses() const noexcept { return uses_; }

 private:
  bool admit();

  Planner planner_;
  const std::uint32_t batch_rows_;
  const bool drop_last_;
  bool ended_ = false;
  bool begun_ = false;
  std::uint64_t offered_ = 0;         // and not admitted
  std::vector<std::uint32_t> free_;   // slots without an example
  std::vector<std::uint32_t> spent_;  // slots whose last use is in this batch
  std::vector<std::uint32_t> admitted_;
  std::vector<Use> uses_;
};

}  // namespace pyecho
