// Runs an EchoBuffer over an epoch with a producer thread, and checks each row that comes out.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "core/memory/stream_copy.hpp"
#include "core/stage/echo_buffer.hpp"
#include "perturb.hpp"
#include "reference_planner.hpp"

namespace pyecho::test {

// The leaves of a test item: its number, and bytes that are a function of it.
inline const std::vector<std::size_t> kItemLeaves{8, 24, 3};
// Of these a waiting consumer makes batches itself.
inline const std::vector<std::size_t> kLongItemLeaves{8, 530, 3};

inline std::byte byte_of(std::uint64_t item, std::size_t leaf, std::size_t i) {
  return static_cast<std::byte>(mix64(item * 1000 + leaf * 40 + i));
}

inline void fill_item(EchoBuffer& buffer, std::uint32_t slot, std::uint64_t item) {
  std::byte* const data = buffer.slot_data(slot);
  const auto& leaves = buffer.layout().leaves();
  std::memcpy(data + leaves[0].slot_offset, &item, sizeof(item));
  std::vector<std::byte> bytes;
  for (std::size_t leaf = 1; leaf < leaves.size(); ++leaf) {
    bytes.resize(leaves[leaf].size_bytes);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = byte_of(item, leaf, i);
    }
    copy_bytes(data + leaves[leaf].slot_offset, bytes.data(), bytes.size(), buffer.stream_slots());
  }
}

// The number of the item in a row, after a look at its other bytes.
inline std::uint64_t item_in(const Lease& lease, std::uint32_t row) {
  const auto& leaves = lease.layout().leaves();
  std::uint64_t item = 0;
  std::memcpy(&item, lease.data() + leaves[0].batch_offset + row * sizeof(item), sizeof(item));
  for (std::size_t leaf = 1; leaf < leaves.size(); ++leaf) {
    for (std::size_t i = 0; i < leaves[leaf].size_bytes; ++i) {
      const std::size_t at = leaves[leaf].batch_offset + row * leaves[leaf].size_bytes + i;
      if (lease.data()[at] != byte_of(item, leaf, i)) {
        ADD_FAILURE() << "item " << item << ", leaf " << leaf << ", byte " << i;
        return item;
      }
    }
  }
  return item;
}

// Item and use of each row; use is 0 without info.
inline std::vector<Emission> rows_of(const Lease& lease) {
  std::vector<Emission> rows;
  for (std::uint32_t row = 0; row < lease.rows(); ++row) {
    Emission emission{item_in(lease, row), 0};
    if (lease.layout().with_info()) {
      std::int64_t index = 0;
      std::int32_t use = 0;
      std::memcpy(&index, lease.data() + lease.layout().source_index_offset() + row * 8, 8);
      std::memcpy(&use, lease.data() + lease.layout().use_offset() + row * 4, 4);
      EXPECT_EQ(static_cast<std::uint64_t>(index), emission.item);
      emission.use = static_cast<std::uint32_t>(use);
    }
    rows.push_back(emission);
  }
  return rows;
}

// Puts items [begin, end) and leaves the input open.
inline void put_items(EchoBuffer& buffer, std::uint64_t begin, std::uint64_t end, std::uint32_t delays = 0) {
  Perturb perturb(begin + delays, delays);
  for (std::uint64_t item = begin; item < end; ++item) {
    Reservation reservation{};
    ASSERT_EQ(buffer.reserve(reservation, kNever), Outcome::kOk);
    perturb();
    fill_item(buffer, reservation.slot, item);
    buffer.commit(reservation);
  }
}

// All batches of an epoch of `items` items.
inline Batches run_buffer(const EchoBufferConfig& config, std::uint64_t items, std::uint32_t delays = 0) {
  EchoBuffer buffer(config);
  std::thread producer([&] {
    put_items(buffer, 0, items, delays);
    buffer.close();
  });
  Batches batches;
  Perturb perturb(items + 1, delays);
  Lease lease;
  Outcome outcome = Outcome::kOk;
  while ((outcome = buffer.acquire(lease, kNever)) == Outcome::kOk) {
    perturb();
    batches.push_back(rows_of(lease));
  }
  EXPECT_EQ(outcome, Outcome::kEnd);
  producer.join();
  EXPECT_EQ(buffer.stats().grown_blocks, 0U);
  EXPECT_EQ(buffer.stats().batches, batches.size());
  EXPECT_EQ(buffer.stats().fresh, items);
  return batches;
}

}  // namespace pyecho::test
