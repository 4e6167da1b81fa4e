#include "core/stage/consumer_driver.hpp"

namespace pyecho {

Outcome ConsumerDriver::try_acquire(Batch*& batch) {
  const Outcome outcome = executor_.plan(batch);
  if (outcome == Outcome::kOk) {
    executor_.copy(*batch);
  } else {
    slots_.announce_released();  // plan() may have copied rows and so released slots
  }
  if (outcome == Outcome::kClosed && executor_.finished() && !slots_.stopped()) {
    return Outcome::kEnd;
  }
  lacks_block_ = outcome == Outcome::kExhausted;
  return lacks_block_ && !batches_.exhausted() ? Outcome::kEmpty : outcome;
}

Outcome ConsumerDriver::acquire(Batch*& batch, Deadline deadline) {
  for (;;) {
    const std::uint64_t seen = batches_.returns();
    if (const Outcome outcome = try_acquire(batch); outcome != Outcome::kEmpty) {
      return outcome;
    }
    const Outcome waited = lacks_block_ ? batches_.await_return(seen, deadline, [this] { return slots_.stopped(); })
                                        : slots_.await_items(executor_.needed(), deadline);
    if (waited == Outcome::kTimeout) {
      const Outcome last = try_acquire(batch);
      return last == Outcome::kEmpty ? Outcome::kTimeout : last;
    }
  }
}

}  // namespace pyecho
