// Runs an EchoBuffer with a producer thread over several passes, and checks each row that comes out.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "core/memory/stream_copy.hpp"
#include "core/stage/buffer_sizes.hpp"
#include "core/stage/echo_buffer.hpp"
#include "perturb.hpp"
#include "plan_output.hpp"

namespace pyecho::test {

// The leaves of a test item: its number, and bytes computed from it.
inline const std::vector<LeafFormat> kItemLeaves{8, 24, 3};
// Large enough that a waiting consumer makes batches itself.
inline const std::vector<LeafFormat> kLongItemLeaves{8, 530, 3};

// Has leaf 1 go through an operation that changes nothing. So slots stay filled until their batch is taken.
inline void keep_items(EchoConfig& config) {
  const ops::ArrayType item{.element = ops::Element::kUint8, .shape = {config.leaves[1].slot_bytes}};
  const ops::Operation flip{.kind = ops::Kind::kFlip, .axes = {0}, .numbers = {0}};
  set_program(config, 1, std::make_shared<const ops::Program>(item, std::vector{flip}));
}

inline std::byte byte_of(std::uint64_t item, std::size_t leaf, std::size_t i) {
  return static_cast<std::byte>(mix64(item * 1000 + leaf * 40 + i));
}

inline void fill_item(const SlotLayout& layout, std::byte* slot, std::uint64_t item, bool stream = false) {
  const auto& leaves = layout.leaves();
  std::memcpy(slot + leaves[0].slot_offset, &item, sizeof(item));
  std::vector<std::byte> bytes(1);  // memcpy takes no null pointer, not even for a leaf without bytes
  for (std::size_t leaf = 1; leaf < leaves.size(); ++leaf) {
    bytes.resize(leaves[leaf].size_bytes);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = byte_of(item, leaf, i);
    }
    copy_bytes(slot + leaves[leaf].slot_offset, bytes.data(), bytes.size(), stream);
  }
}

// Returns the number of the item in a row, after checking its other bytes.
inline std::uint64_t item_in(const SlotLayout& layout, const std::byte* block, std::uint32_t row) {
  const auto& leaves = layout.leaves();
  std::uint64_t item = 0;
  std::memcpy(&item, block + leaves[0].batch_offset + row * sizeof(item), sizeof(item));
  for (std::size_t leaf = 1; leaf < leaves.size(); ++leaf) {
    const std::byte* const bytes = block + leaves[leaf].batch_offset + row * leaves[leaf].size_bytes;
    for (std::size_t i = 0; i < leaves[leaf].size_bytes; ++i) {
      if (bytes[i] != byte_of(item, leaf, i)) {
        ADD_FAILURE() << "item " << item << ", leaf " << leaf << ", byte " << i;
        return item;
      }
    }
  }
  return item;
}

// Returns the uses in the rows of a batch, after checking that its uses and its info agree.
inline std::vector<Emission> rows_of(const SlotLayout& layout, const std::byte* block, std::span<const Use> uses) {
  std::vector<Emission> rows;
  for (std::uint32_t row = 0; row < uses.size(); ++row) {
    if (layout.with_info()) {
      std::int64_t index = 0;
      std::int32_t ordinal = 0;
      std::memcpy(&index, block + layout.source_index_offset() + row * sizeof(index), sizeof(index));
      std::memcpy(&ordinal, block + layout.use_offset() + row * sizeof(ordinal), sizeof(ordinal));
      EXPECT_EQ(static_cast<std::uint64_t>(index), uses[row].source_index);
      EXPECT_EQ(static_cast<std::uint32_t>(ordinal), uses[row].ordinal);
    }
    rows.push_back({item_in(layout, block, row), uses[row].ordinal});
  }
  return rows;
}
inline std::vector<Emission> rows_of(const Lease& lease) { return rows_of(lease.layout(), lease.data(), lease.uses()); }

// Commits item number `item` in a slot that was reserved for it.
inline void put_item(EchoBuffer& buffer, Reservation reservation, std::uint64_t item) {
  fill_item(buffer.layout(), buffer.slot_data(reservation.slot), item, buffer.input().stream_slots());
  buffer.input().commit(reservation);
}

// Commits so many items as the slots happen to be.
inline void put_blank(EchoBuffer& buffer, std::uint32_t count) {
  for (Reservation reservation{}; count > 0; --count) {
    ASSERT_EQ(buffer.input().reserve(reservation, kNever), Outcome::kOk);
    buffer.input().commit(reservation);
  }
}

// Puts items [begin, end) and leaves the input open. Returns false if it was stopped or closed meanwhile.
inline bool put_items(EchoBuffer& buffer, std::uint64_t begin, std::uint64_t end, std::uint32_t delays = 0) {
  Perturb perturb(begin + delays, delays);
  for (std::uint64_t item = begin; item < end; ++item) {
    Reservation reservation{};
    if (buffer.input().reserve(reservation, kNever) != Outcome::kOk) {
      return false;
    }
    perturb();
    put_item(buffer, reservation, item);
  }
  return true;
}

// Puts the items of these passes, numbered over all of them, and closes the input.
inline void put_passes(EchoBuffer& buffer, const Passes& passes, std::uint32_t delays = 0) {
  std::uint64_t item = 0;
  for (std::size_t pass = 0; pass < passes.size(); item += passes[pass++]) {
    Reservation mark{};
    if (pass > 0) {
      if (buffer.input().reserve(mark, kNever) != Outcome::kOk) {
        return;
      }
      buffer.input().end_pass(mark);
    }
    if (!put_items(buffer, item, item + passes[pass], delays)) {
      return;
    }
  }
  buffer.input().close();
}

// Returns the output of this many iterations. With `delays`, the consumer is slow, and impatient, at random.
inline Iterations take_iterations(EchoBuffer& buffer, std::size_t iterations, std::uint32_t delays = 0) {
  Perturb perturb(delays + 1, delays);
  Xoshiro256 random(delays);
  Iterations all(iterations);
  for (Batches& batches : all) {
    Outcome outcome = Outcome::kOk;
    do {
      Lease lease;
      const bool patient = delays == 0 || random.below(4) > 0;
      outcome = buffer.acquire(lease, patient ? kNever : Clock::now() + std::chrono::microseconds(random.below(100)));
      if (outcome == Outcome::kOk) {
        perturb();
        batches.push_back(rows_of(lease));
      }
    } while (outcome == Outcome::kOk || outcome == Outcome::kTimeout);
    EXPECT_EQ(outcome, Outcome::kEnd);
    EXPECT_EQ(buffer.at_end(), &batches == &all.back());
  }
  return all;
}

// Returns the output of a newly begun buffer.
inline Iterations run_buffer(EchoBuffer& buffer, const Passes& passes, std::size_t iterations,
                             std::uint32_t delays = 0) {
  std::thread producer([&] { put_passes(buffer, passes, delays); });
  Iterations all = take_iterations(buffer, iterations, delays);
  producer.join();
  Lease lease;
  EXPECT_EQ(buffer.acquire(lease, kNever), Outcome::kEnd);
  return all;
}
inline Iterations run_buffer(const EchoConfig& config, const Passes& passes, std::uint32_t delays = 0) {
  EchoBuffer buffer(config);
  return run_buffer(buffer, passes, passes.size(), delays);
}

// Returns the required output of a buffer in epoch `epoch`: its plan.
inline Iterations plan_output(const EchoConfig& config, std::uint64_t epoch, const Passes& passes) {
  const PlanConfig plan_config{.capacity = config.plan.capacity,
                               .slots = config.plan.capacity + config.plan.batch_size,
                               .factor = config.plan.factor,
                               .seed = config.plan.seed,
                               .unique_in_batch = config.plan.unique_in_batch,
                               .iteration_uses = config.steps * config.plan.batch_size,
                               .segment_uses = config.plan.segment_uses};
  Plan plan(plan_config);
  plan.begin(epoch, {.items = config.items});
  return run_plan(plan, plan_config, passes, config.plan.batch_size);
}
inline Iterations plan_output(const EchoConfig& config, const Passes& passes) {
  return plan_output(config, config.epoch, passes);
}

}  // namespace pyecho::test
