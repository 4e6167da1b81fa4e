// The driver without threads: the consumer makes each batch when it requests it. See driver.hpp.
#pragma once

#include "core/memory/batch_pool.hpp"
#include "core/memory/slot_pool.hpp"
#include "core/stage/driver.hpp"
#include "core/stage/executor.hpp"

namespace pyecho {

class ConsumerDriver final : public Driver {
 public:
  // All arguments outlive the driver.
  ConsumerDriver(Executor& executor, SlotPool& slots, BatchPool& batches)
      : executor_(executor), slots_(slots), batches_(batches) {}

  Outcome try_acquire(Batch*& batch) override;
  Outcome acquire(Batch*& batch, Deadline deadline) override;
  [[nodiscard]] bool at_end() const override { return executor_.finished(); }
  [[nodiscard]] std::uint64_t needed() const override { return lacks_block_ ? 0 : executor_.needed(); }
  void alert() override { batches_.alert(); }
  void park() override {}
  void resume() override {}
  void abandon_threads() noexcept override {}

 private:
  Executor& executor_;
  SlotPool& slots_;
  BatchPool& batches_;
  bool lacks_block_ = false;  // true if the last try_acquire() got no block
};

}  // namespace pyecho
