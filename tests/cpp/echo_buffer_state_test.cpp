// An EchoBuffer is halted at any moment, inspected, and goes on; and another one goes on from there.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "core/memory/checksum.hpp"
#include "core/plan/replay.hpp"
#include "support/run_buffer.hpp"

namespace pyecho::test {
namespace {

EchoConfig state_config(std::uint32_t threads) {
  return {.plan = {.capacity = 9, .factor = 2.5, .batch_rows = 4}, .leaf_bytes = kItemLeaves, .threads = threads};
}

void put(EchoBuffer& buffer, std::uint64_t first, std::uint64_t end) {
  for (std::uint64_t item = first; item < end; ++item) {
    Reservation place{};
    Outcome outcome = Outcome::kHalted;
    while (outcome == Outcome::kHalted) {
      buffer.await_resumed(kNever);
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

constexpr std::uint64_t kStateItems = 200;
constexpr std::uint64_t kAll = 1000;

std::vector<std::uint64_t> whole_stream() {
  EchoBuffer buffer(state_config(0));
  std::thread producer(put, std::ref(buffer), 0, kStateItems);
  std::vector<std::uint64_t> items = take(buffer, kAll);
  producer.join();
  return items;
}

// A state: a position, the number of the next item to put, and the rows of each unspent item by its number.
struct Saved {
  PlanPosition position;
  std::uint64_t fed;
  std::map<std::uint64_t, std::vector<std::byte>> items;
};

// `batches`: taken since the beginning.
Saved save(EchoBuffer& buffer, std::uint64_t batches) {
  buffer.set_halted(true);
  std::vector<Unspent> unspent;
  const Plan& plan = buffer.inspect(unspent, {});
  Saved saved{.position = plan.position(), .fed = plan.ended() ? kStateItems : plan.open_items(), .items = {}};
  saved.position.feed_all = true;
  saved.position.batches = batches;
  const std::vector<SlotLayout::Leaf>& leaves = buffer.layout().leaves();
  std::vector<std::vector<std::byte>> columns;
  std::vector<std::byte*> memory;
  for (const SlotLayout::Leaf& leaf : leaves) {
    memory.push_back(columns.emplace_back(unspent.size() * leaf.size_bytes).data());
  }
  std::uint64_t sum = buffer.copy_items(unspent, memory);
  for (std::size_t i = 0; i < unspent.size(); ++i) {
    std::vector<std::byte> item;
    for (std::size_t leaf = 0; leaf < leaves.size(); ++leaf) {
      const std::span row(memory[leaf] + i * leaves[leaf].size_bytes, leaves[leaf].size_bytes);
      sum -= checksum(row, row_seed(unspent[i].number, leaf));
      item.insert(item.end(), row.begin(), row.end());
    }
    EXPECT_TRUE(saved.items.emplace(unspent[i].number, std::move(item)).second) << "saved twice";
  }
  EXPECT_EQ(sum, 0U);
  buffer.set_halted(false);
  return saved;
}

// Returns a buffer that goes on from there.
std::shared_ptr<EchoBuffer> resumed(const EchoConfig& config, const Saved& saved) {
  auto buffer = std::make_shared<EchoBuffer>(config);
  if (auto larger = buffer->with_room_for(saved.items.size())) {
    buffer = std::move(larger);
  }
  Replay replay = buffer->begin_at(saved.position);
  EXPECT_TRUE(replay.advance());
  buffer->resume(replay);
  std::size_t held = 0;
  replay.plan().each_item([&](std::uint32_t slot, std::uint64_t number) {
    const std::byte* row = saved.items.at(number).data();
    for (const SlotLayout::Leaf& leaf : buffer->layout().leaves()) {
      std::memcpy(buffer->slot_data(slot) + leaf.slot_offset, row, leaf.size_bytes);
      row += leaf.size_bytes;
    }
    ++held;
  });
  EXPECT_EQ(held, saved.items.size());
  buffer->set_halted(false);
  return buffer;
}

TEST(EchoBufferState, halting_loses_nothing_and_what_it_shows_is_enough_to_go_on) {
  const std::vector<std::uint64_t> whole = whole_stream();
  for (std::uint64_t batches = 0; batches < 125; batches += 7) {
    const auto threads = static_cast<std::uint32_t>(batches % 4);
    EchoBuffer buffer(state_config(threads));
    std::thread producer(put, std::ref(buffer), 0, kStateItems);
    std::vector<std::uint64_t> taken = take(buffer, batches);
    const Saved saved = save(buffer, batches);
    const std::vector<std::uint64_t> rest = take(buffer, kAll);
    producer.join();
    taken.insert(taken.end(), rest.begin(), rest.end());
    ASSERT_EQ(taken, whole) << batches;

    const std::shared_ptr<EchoBuffer> other = resumed(state_config((threads + 1) % 4), saved);
    std::thread other_producer(put, std::ref(*other), saved.fed, kStateItems);
    ASSERT_EQ(take(*other, kAll), rest) << batches;
    other_producer.join();
  }
}

// A producer that always finds room fills as many slots as it can, and batches ahead hold as many items as they can.
TEST(EchoBufferState, the_states_of_resumed_runs_fit_into_max_bytes_like_the_first_one) {
  const std::vector<std::uint64_t> whole = whole_stream();
  for (std::uint32_t threads = 0; threads < 4; ++threads) {
    EchoConfig config = state_config(threads);
    config.prefetch = 3;
    config.max_bytes = EchoBuffer::min_bytes(config);
    std::vector<std::uint64_t> taken;
    Saved saved{.position = {.feed_all = true}, .fed = 0, .items = {}};
    for (std::uint64_t batches = 0; batches < 125; batches += 3) {
      const std::shared_ptr<EchoBuffer> buffer = resumed(config, saved);
      ASSERT_FALSE(buffer->with_room_for(saved.items.size()));
      std::thread producer([&, item = saved.fed]() mutable {
        for (Reservation place{}; item < kStateItems; ++item) {
          Outcome outcome = Outcome::kTimeout;
          while (outcome == Outcome::kTimeout) {
            outcome = buffer->reserve(place, kNever);
          }
          if (outcome != Outcome::kOk) {
            return;  // the buffer was stopped
          }
          fill_item(buffer->layout(), buffer->slot_data(place.slot), item, buffer->stream_slots());
          buffer->commit(place);
        }
        buffer->close();
      });
      const std::vector<std::uint64_t> more = take(*buffer, 3);
      taken.insert(taken.end(), more.begin(), more.end());
      saved = save(*buffer, batches + 3);
      buffer->stop();
      producer.join();
    }
    ASSERT_EQ(taken, whole);
  }
}

TEST(EchoBufferState, a_buffer_is_halted_again_and_again_while_it_works) {
  const std::vector<std::uint64_t> whole = whole_stream();
  for (std::uint32_t threads = 0; threads < 4; ++threads) {
    EchoBuffer buffer(state_config(threads));
    std::thread producer(put, std::ref(buffer), 0, kStateItems);
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

TEST(EchoBufferState, a_producer_without_a_slot_sleeps_while_the_buffer_is_halted) {
  EchoBuffer buffer(state_config(1));
  Reservation place{};
  while (buffer.reserve(place, Deadline::min()) == Outcome::kOk) {  // until no slot is left
    fill_item(buffer.layout(), buffer.slot_data(place.slot), 0, buffer.stream_slots());
    buffer.commit(place);
  }
  buffer.set_halted(true);
  EXPECT_EQ(buffer.reserve(place, kNever), Outcome::kHalted);
  std::thread producer(put, std::ref(buffer), 0, 1);
  buffer.set_halted(false);
  EXPECT_FALSE(take(buffer, kAll).empty());
  producer.join();
}

TEST(EchoBufferState, a_halted_buffer_can_be_stopped_begun_and_destroyed) {
  for (const std::uint32_t threads : {0U, 2U}) {
    EchoBuffer buffer(state_config(threads));
    buffer.set_halted(true);
    buffer.stop();
    ASSERT_EQ(buffer.begin(0, {}), Outcome::kOk);
    std::thread producer(put, std::ref(buffer), 0, kStateItems);
    EXPECT_EQ(take(buffer, kAll).size(), kStateItems * 5 / 2);
    producer.join();
    buffer.set_halted(true);
  }
}

}  // namespace
}  // namespace pyecho::test
