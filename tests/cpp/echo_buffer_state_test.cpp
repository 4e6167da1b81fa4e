// An EchoBuffer is halted at any moment, inspected, and goes on; and another one goes on from there.
#include <gtest/gtest.h>

#include <map>
#include <thread>
#include <vector>

#include "core/memory/checksum.hpp"
#include "core/plan/replay.hpp"
#include "support/run_buffer.hpp"

namespace pyecho::test {
namespace {

EchoBufferConfig config_of(std::uint32_t threads) {
  return {.leaf_bytes = kItemLeaves, .batch_rows = 4, .capacity = 9, .factor = 2.5, .threads = threads};
}

void put(EchoBuffer& buffer, std::uint64_t first, std::uint64_t end) {
  for (std::uint64_t item = first; item < end; ++item) {
    Reservation place{};
    Outcome outcome = Outcome::kTimeout;
    while (outcome == Outcome::kTimeout) {  // while halted
      outcome = buffer.reserve(place, kNever);
    }
    ASSERT_EQ(outcome, Outcome::kOk);
    fill_item(buffer.layout(), buffer.slot_data(place.slot), item, buffer.stream_slots());
    buffer.commit(place);
  }
  buffer.close();
}

std::vector<std::uint64_t> take(EchoBuffer& buffer, std::uint64_t batches) {
  std::vector<std::uint64_t> items;
  Lease lease;
  for (; batches > 0 && buffer.acquire(lease, kNever) == Outcome::kOk; --batches) {
    for (std::uint32_t row = 0; row < lease.rows(); ++row) {
      items.push_back(item_in(buffer.layout(), lease.data(), row));
    }
  }
  return items;
}

constexpr std::uint64_t kItems = 200;
constexpr std::uint64_t kAll = 1000;

std::vector<std::uint64_t> whole_stream() {
  EchoBuffer buffer(config_of(0));
  std::thread producer(put, std::ref(buffer), 0, kItems);
  std::vector<std::uint64_t> items = take(buffer, kAll);
  producer.join();
  return items;
}

TEST(EchoBufferState, halting_loses_nothing_and_what_it_shows_is_enough_to_go_on) {
  const std::vector<std::uint64_t> whole = whole_stream();
  for (std::uint64_t batches = 0; batches < 125; batches += 7) {
    const auto threads = static_cast<std::uint32_t>(batches % 4);
    EchoBuffer buffer(config_of(threads));
    std::thread producer(put, std::ref(buffer), 0, kItems);
    std::vector<std::uint64_t> taken = take(buffer, batches);

    buffer.set_halted(true);
    std::vector<Unspent> unspent;
    const BatchPlan& plan = buffer.inspect(unspent, {});
    PlanPosition position{.passes = plan.passes(), .ended = plan.ended(), .feed_all = true, .batches = batches};
    position.open_items = plan.open_items();
    const std::uint64_t fed = position.ended ? kItems : plan.open_items();
    const std::vector<SlotLayout::Leaf>& leaves = buffer.layout().leaves();
    std::vector<std::vector<std::byte>> columns;
    std::vector<std::byte*> memory;
    for (const SlotLayout::Leaf& leaf : leaves) {
      memory.push_back(columns.emplace_back(unspent.size() * leaf.size_bytes).data());
    }
    std::uint64_t sum = buffer.copy_items(unspent, memory);
    buffer.set_halted(false);

    const std::vector<std::uint64_t> rest = take(buffer, kAll);
    producer.join();
    taken.insert(taken.end(), rest.begin(), rest.end());
    ASSERT_EQ(taken, whole) << batches;

    std::map<std::uint64_t, std::size_t> place;
    for (std::size_t i = 0; i < unspent.size(); ++i) {
      EXPECT_TRUE(place.emplace(unspent[i].number, i).second) << "saved twice";
      for (std::size_t leaf = 0; leaf < leaves.size(); ++leaf) {
        const std::span row(memory[leaf] + i * leaves[leaf].size_bytes, leaves[leaf].size_bytes);
        sum -= checksum(row, row_seed(unspent[i].number, leaf));
      }
    }
    EXPECT_EQ(sum, 0U);

    EchoBufferConfig other = config_of((threads + 1) % 4);
    other.burst = static_cast<std::uint32_t>(unspent.size()) + 1;
    EchoBuffer resumed(other);
    Replay replay = resumed.begin_at(position);
    ASSERT_EQ(replay.advance(1'000'000), Outcome::kOk);
    resumed.resume(replay);
    std::size_t items = 0;
    replay.plan().each_item([&](std::uint32_t slot, std::uint64_t number) {
      for (std::size_t leaf = 0; leaf < leaves.size(); ++leaf) {
        std::memcpy(resumed.slot_data(slot) + leaves[leaf].slot_offset,
                    memory[leaf] + place.at(number) * leaves[leaf].size_bytes, leaves[leaf].size_bytes);
      }
      ++items;
    });
    ASSERT_EQ(items, place.size());
    resumed.set_halted(false);
    std::thread other_producer(put, std::ref(resumed), fed, kItems);
    ASSERT_EQ(take(resumed, kAll), rest) << batches;
    other_producer.join();
  }
}

TEST(EchoBufferState, a_buffer_is_halted_again_and_again_while_it_works) {
  const std::vector<std::uint64_t> whole = whole_stream();
  for (std::uint32_t threads = 0; threads < 4; ++threads) {
    EchoBuffer buffer(config_of(threads));
    std::thread producer(put, std::ref(buffer), 0, kItems);
    std::vector<std::uint64_t> taken;
    for (std::vector<std::uint64_t> more(1); !more.empty();) {
      buffer.set_halted(true);
      buffer.set_halted(true);
      std::vector<Unspent> unspent;
      buffer.inspect(unspent, {});
      buffer.set_halted(false);
      more = take(buffer, 1);
      taken.insert(taken.end(), more.begin(), more.end());
    }
    producer.join();
    EXPECT_EQ(taken, whole);
  }
}

TEST(EchoBufferState, a_halted_buffer_can_be_stopped_begun_and_destroyed) {
  for (const std::uint32_t threads : {0U, 2U}) {
    EchoBuffer buffer(config_of(threads));
    buffer.set_halted(true);
    buffer.stop();
    ASSERT_EQ(buffer.begin(0, {}), Outcome::kOk);
    std::thread producer(put, std::ref(buffer), 0, kItems);
    EXPECT_EQ(take(buffer, kAll).size(), kItems * 5 / 2);
    producer.join();
    buffer.set_halted(true);
  }
}

}  // namespace
}  // namespace pyecho::test
