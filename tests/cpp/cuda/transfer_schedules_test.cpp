// Random schedules: sources are overwritten as soon as they are released, other streams read the data after its arrival,
// and the stand-in draws which stream proceeds when. The data read must always be right.
#include <gtest/gtest.h>

#include <array>
#include <semaphore>

#include "transfer_fixture.hpp"

namespace pyecho::cuda {
namespace {

constexpr std::size_t kMaxBytes = 300;
constexpr std::uint32_t kMaxCopies = 3;
#ifdef __SANITIZE_THREAD__
constexpr std::uint64_t kSchedules = 1'000;  // fewer, because a single thread has no races for the sanitizer to find
#else
constexpr std::uint64_t kSchedules = 10'000;
#endif

// Copies whose data is read by work on another stream. The device memory belongs to a Place, which is reused after that
// work, in the order of the streams.
struct Item {
  struct Part {
    std::array<std::byte, kMaxBytes>* target;
    std::size_t size_bytes;
    std::uint64_t key;
  };
  std::vector<Part> parts;
  std::vector<std::span<std::byte>> sources;
  int times_let_go = 0;
  bool computed = false;  // the bytes are flipped on pyecho's stream
  int times_read = 0;
  bool right = true;

  static void let_go(void* self) {
    auto* const item = static_cast<Item*>(self);
    for (const std::span<std::byte> source : item->sources) {
      std::fill(source.begin(), source.end(), std::byte{0xEE});
    }
    ++item->times_let_go;
  }
  static void flip(void* self) {
    for (const Part& part : static_cast<Item*>(self)->parts) {
      for (std::byte& byte : std::span(*part.target).first(part.size_bytes)) {
        byte = ~byte;
      }
    }
  }
  static void read(void* self) {
    auto* const item = static_cast<Item*>(self);
    if (item->computed) {
      flip(self);
    }
    for (const Part& part : item->parts) {
      item->right = item->right && is_filled(std::span(*part.target).first(part.size_bytes), part.key);
      part.target->fill(std::byte{0x11});
    }
    ++item->times_read;
  }
};

class TransferSchedules : public CudaTest {
 protected:
  static constexpr std::size_t kItems = 6;
  static constexpr std::size_t kPlaces = 2;

  TransferSchedules() {
    const CurrentContext current(device);
    for (EventHandle& event : read_events_) {
      device.driver().call(&DriverApi::event_create, &event, kEventDisableTiming);
    }
  }
  ~TransferSchedules() override {
    const CurrentContext current(device);
    for (const EventHandle event : read_events_) {
      device.driver().call(&DriverApi::event_destroy, event);
    }
  }

  void prepare(Item& item, std::size_t number, Xoshiro256& random) {
    const std::uint32_t copies = 1 + random.below(kMaxCopies);
    for (std::uint32_t copy = 0; copy < copies; ++copy) {
      const std::size_t size_bytes = random.below(8) == 0 ? 0 : 1 + random.below(kMaxBytes);
      auto& memory = random.below(2) == 0 ? pinned()[number][copy] : pageable_[number][copy];
      const std::uint64_t key = random.next();
      item.sources.push_back(std::span(memory).first(size_bytes));
      fill(item.sources.back(), key);
      item.parts.push_back({&places_[number % kPlaces][copy], size_bytes, key});
    }
    item.computed = random.below(3) == 0;
  }

  // The item's place may still be read, so pyecho's stream waits, as an allocator would require.
  std::shared_ptr<const Transfer> start(TransferEngine& engine, Item& item, std::size_t number) {
    if (number >= kPlaces) {
      const CurrentContext current(device);
      device.driver().call(&DriverApi::stream_wait_event, device.stream(), read_events_[number % kPlaces],
                           kLaunchDefault);
    }
    std::vector<Copy> copies;
    for (std::size_t i = 0; i < item.parts.size(); ++i) {
      copies.push_back({.to = device_pointer(item.parts[i].target),
                        .from = item.sources[i].data(),
                        .size_bytes = item.parts[i].size_bytes});
    }
    auto transfer = engine.start(copies, std::shared_ptr<void>(&item, &Item::let_go));
    if (item.computed) {
      enqueue(device.stream(), &Item::flip, item);
      transfer = engine.mark();
    }
    return transfer;
  }

  void deliver(const Transfer& transfer, Item& item, std::size_t number, StreamHandle stream) {
    transfer.wait_on(stream);
    enqueue(stream, &Item::read, item);
    const CurrentContext current(device);
    device.driver().call(&DriverApi::event_record, read_events_[number % kPlaces], stream);
  }

  void enqueue(StreamHandle stream, void (*function)(void*), Item& item) {
    const CurrentContext current(device);
    EXPECT_EQ(extra_api().launch_host_function(stream, function, &item), kSuccess);
  }

  void run(std::uint64_t seed);

  using Memory = std::array<std::array<std::array<std::byte, kMaxBytes>, kMaxCopies>, kItems>;
  Memory& pinned() { return *reinterpret_cast<Memory*>(pinned_.data()); }

  PinnedBuffer pinned_{device, sizeof(Memory)};
  Memory pageable_{};
  std::array<std::array<std::array<std::byte, kMaxBytes>, kMaxCopies>, kPlaces> places_{};
  std::array<EventHandle, kPlaces> read_events_{};
  std::array<StreamHandle, 2> streams_{new_stream(device), new_stream(device)};
};

void TransferSchedules::run(std::uint64_t seed) {
  Xoshiro256 random(seed);
  standin_set_seed(seed);
  std::array<Item, kItems> items;
  std::array<std::shared_ptr<const Transfer>, kItems> transfers;
  {
    TransferEngine engine(device, 1 + random.below(3));
    std::size_t started = 0;
    std::size_t delivered = 0;
    while (delivered < kItems) {
      switch (random.below(5)) {
        case 0:
        case 1:
          if (started < kItems && started < delivered + kPlaces) {
            prepare(items[started], started, random);
            transfers[started] = start(engine, items[started], started);
            ++started;
          }
          break;
        case 2:
          if (delivered < started) {
            deliver(*transfers[delivered], items[delivered], delivered, streams_[random.below(2)]);
            transfers[delivered].reset();
            ++delivered;
          }
          break;
        case 3:
          for (std::uint32_t steps = random.below(6); steps > 0; --steps) {
            standin_step();
          }
          break;
        default:
          random.below(8) == 0 ? engine.drain() : engine.poll();
          break;
      }
    }
  }
  standin_drain();
  for (const Item& item : items) {
    ASSERT_TRUE(item.right) << "seed " << seed;
    ASSERT_EQ(item.times_read, 1) << "seed " << seed;
    ASSERT_EQ(item.times_let_go, 1) << "seed " << seed;
  }
}

TEST_F(TransferSchedules, what_other_streams_read_is_right_in_every_order) {
  standin_hold(STANDIN_STEP);
  for (std::uint64_t seed = 0; seed < kSchedules; ++seed) {
    run(seed);
    if (HasFatalFailure()) {
      break;
    }
  }
  EXPECT_EQ(standin_unpinned_copies(), 0U);
}

TEST_F(TransferSchedules, one_thread_starts_and_another_one_delivers) {
  constexpr std::size_t kRounds = 500;
  std::vector<Item> items(kRounds);
  std::vector<std::shared_ptr<const Transfer>> transfers(kRounds);
  std::counting_semaphore<> started(0);
  std::counting_semaphore<> places(kPlaces);
  standin_set_max_delay_us(5);
  {
    TransferEngine engine(device, 2);
    const std::jthread consumer([&] {
      for (std::size_t number = 0; number < kRounds; ++number) {
        started.acquire();
        static_cast<void>(transfers[number]->done());
        deliver(*transfers[number], items[number], number, streams_[number % 2]);
        transfers[number].reset();  // most often before its copies are done
        places.release();
        EXPECT_GE(engine.bytes(), engine.staged_bytes());
      }
    });
    Xoshiro256 random(1);
    for (std::size_t number = 0; number < kRounds; ++number) {
      places.acquire();
      if (number >= kItems) {
        while (items[number - kItems].times_let_go == 0) {
          engine.poll();
        }
      }
      prepare(items[number], number % kItems, random);
      transfers[number] = start(engine, items[number], number);
      started.release();
    }
  }
  standin_drain();
  for (const Item& item : items) {
    EXPECT_TRUE(item.right);
    EXPECT_EQ(item.times_read, 1);
    EXPECT_EQ(item.times_let_go, 1);
  }
}

}  // namespace
}  // namespace pyecho::cuda
