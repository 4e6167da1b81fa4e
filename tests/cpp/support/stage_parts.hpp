// The parts of an echo stage without a driver and without threads: slots, batches, executor.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "core/stage/executor.hpp"
#include "run_buffer.hpp"

namespace pyecho::test {

struct StageParts {
  StageParts(const PlanConfig& plan, std::uint32_t rows, std::uint32_t most_blocks = 5,
             const std::vector<std::size_t>& leaves = kItemLeaves, bool stream = false)
      : layout(leaves, rows, true),
        slots(plan.slots * layout.slot_bytes()),
        pool(plan.slots, 1),
        batches(std::make_shared<BatchPool>(layout, 1, most_blocks * BatchPool::block_bytes(layout))),
        executor(pool, *batches, plan, slots.data(), 3, stream) {
    static_cast<void>(executor.begin({}));
  }

  [[nodiscard]] std::byte* slot_data(std::uint32_t slot) { return slots.data() + slot * layout.slot_bytes(); }
  [[nodiscard]] Reservation reserve() {
    Reservation reservation{};
    EXPECT_EQ(pool.try_reserve(reservation), Outcome::kOk);
    return reservation;
  }
  void commit(Reservation reservation, std::uint64_t item) {
    fill_item(layout, slot_data(reservation.slot), item);
    pool.commit(reservation);
  }
  void put(std::uint64_t begin, std::uint64_t end) {
    for (std::uint64_t item = begin; item < end; ++item) {
      commit(reserve(), item);
    }
  }
  // Reserves all free slots and returns their number.
  [[nodiscard]] std::uint32_t reserve_all() {
    std::vector<Reservation> all(pool.slots());
    std::uint32_t count = 0;
    static_cast<void>(pool.try_reserve(all, count));
    return count;
  }
  [[nodiscard]] std::vector<Emission> rows_of(Batch& batch) {
    EXPECT_EQ(batch.copied, batch.rows);
    return test::rows_of(layout, batch.memory.data(), std::span(batch.uses).first(batch.rows));
  }

  SlotLayout layout;
  std::vector<std::byte> slots;
  SlotPool pool;
  std::shared_ptr<BatchPool> batches;
  Executor executor;
};

}  // namespace pyecho::test
