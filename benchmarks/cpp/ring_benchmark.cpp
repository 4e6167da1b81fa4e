// Compares pyecho's index ring with alternative queues, with the same producers and consumers.
//
// Every contestant moves 32-bit numbers from producers to consumers through 1,024 places. When it is full or empty, it
// is retried after a pause, and every 64th time after a yield. The sum of the numbers is checked. For one producer with
// one consumer, queues with a variant for that case use it. pyecho's ring runs twice: with one number per call, and
// with up to 32. Contestants take turns, in reverse order every other round; the first round does not count.
//
//     ring_benchmark [rounds] [million items]
//
// Prints one JSON object: {"shapes": [{"producers": 1, "consumers": 1, "seconds": {"pyecho": [...], ...}}, ...]}.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#ifdef PYECHO_WITH_ATOMIC_QUEUE
#include <atomic_queue/atomic_queue.h>
#endif
#ifdef PYECHO_WITH_BOOST
#include <boost/lockfree/queue.hpp>
#include <boost/lockfree/spsc_queue.hpp>
#endif
#ifdef PYECHO_WITH_CONCURRENTQUEUE
#include <concurrentqueue/concurrentqueue.h>
#endif

#include "core/sync/event_count.hpp"
#include "core/sync/index_ring.hpp"

namespace {

constexpr std::uint32_t kCapacity = 1024;

struct PyechoRing {
  struct End {
    explicit End(PyechoRing& whole) : ring(whole.ring) {}
    bool push(std::uint32_t value) { return ring.try_push(std::span(&value, 1)) == 1; }
    bool pop(std::uint32_t& value) { return ring.try_pop(std::span(&value, 1)) == 1; }
    pyecho::IndexRing<>& ring;
  };
  pyecho::IndexRing<> ring{kCapacity};
};

// Moves up to kGroup numbers per call.
struct PyechoRingInGroups {
  static constexpr std::size_t kGroup = 32;
  struct End {
    explicit End(PyechoRingInGroups& whole) : ring(whole.ring) {}
    std::uint32_t push(std::span<const std::uint32_t> values) { return ring.try_push(values); }
    std::uint32_t pop(std::span<std::uint32_t> values) { return ring.try_pop(values); }
    pyecho::IndexRing<>& ring;
  };
  pyecho::IndexRing<> ring{kCapacity};
};

#ifdef PYECHO_WITH_ATOMIC_QUEUE
// Zero means an empty place, and is never sent.
template <bool kSingle, bool kThroughput>
struct AtomicQueue {
  // Arguments: type, size, nil, minimize contention, maximize throughput, total order, single producer and consumer.
  using Queue = atomic_queue::AtomicQueue<std::uint32_t, kCapacity, 0, true, kThroughput, false, kSingle>;
  struct End {
    explicit End(AtomicQueue& whole) : queue(*whole.queue) {}
    bool push(std::uint32_t value) { return queue.try_push(value); }
    bool pop(std::uint32_t& value) { return queue.try_pop(value); }
    Queue& queue;
  };
  std::unique_ptr<Queue> queue = std::make_unique<Queue>();
};
#endif

#ifdef PYECHO_WITH_ATOMIC_QUEUE
// The variant for any type, with a state in each place.
template <bool kSingle>
struct AtomicQueue2 {
  using Queue = atomic_queue::AtomicQueue2<std::uint32_t, kCapacity, true, true, false, kSingle>;
  struct End {
    explicit End(AtomicQueue2& whole) : queue(*whole.queue) {}
    bool push(std::uint32_t value) { return queue.try_push(value); }
    bool pop(std::uint32_t& value) { return queue.try_pop(value); }
    Queue& queue;
  };
  std::unique_ptr<Queue> queue = std::make_unique<Queue>();
};
#endif

#ifdef PYECHO_WITH_CONCURRENTQUEUE
// Its documentation recommends a token for each side of each thread. Several producers cannot share a bound, because
// with try_enqueue() blocks stay with the producer that used them first, and another producer may never get one. So the
// queue is unbounded and never full.
struct Moodycamel {
  struct End {
    explicit End(Moodycamel& whole) : queue(whole.queue), producer(queue), consumer(queue) {}
    bool push(std::uint32_t value) { return queue.enqueue(producer, value); }
    bool pop(std::uint32_t& value) { return queue.try_dequeue(consumer, value); }
    moodycamel::ConcurrentQueue<std::uint32_t>& queue;
    moodycamel::ProducerToken producer;
    moodycamel::ConsumerToken consumer;
  };
  moodycamel::ConcurrentQueue<std::uint32_t> queue{kCapacity};
};
#endif

#ifdef PYECHO_WITH_BOOST
template <class Queue>
struct Boost {
  struct End {
    explicit End(Boost& whole) : queue(*whole.queue) {}
    bool push(std::uint32_t value) { return queue.push(value); }
    bool pop(std::uint32_t& value) { return queue.pop(value); }
    Queue& queue;
  };
  std::unique_ptr<Queue> queue = std::make_unique<Queue>();
};
using BoostMany = Boost<boost::lockfree::queue<std::uint32_t, boost::lockfree::capacity<kCapacity>>>;
using BoostOne = Boost<boost::lockfree::spsc_queue<std::uint32_t, boost::lockfree::capacity<kCapacity>>>;
#endif

// Retries until `done`.
template <class Attempt>
void insist(const Attempt& attempt) {
  for (unsigned tries = 1; !attempt(); ++tries) {
    if (tries % 64 == 0) {
      std::this_thread::yield();
    } else {
      pyecho::relax_processor();
    }
  }
}

// Pushes the numbers from 1 to `last`.
template <class End>
void push_all(End& end, std::uint64_t last) {
  for (std::uint64_t item = 1; item <= last; ++item) {
    insist([&] { return end.push(static_cast<std::uint32_t>(item)); });
  }
}
inline void push_all(PyechoRingInGroups::End& end, std::uint64_t last) {
  std::array<std::uint32_t, PyechoRingInGroups::kGroup> values{};
  for (std::uint64_t item = 1; item <= last;) {
    const std::size_t count = std::min<std::uint64_t>(values.size(), last + 1 - item);
    std::iota(values.begin(), values.begin() + count, static_cast<std::uint32_t>(item));
    item += count;
    for (auto rest = std::span(values).first(count); !rest.empty();) {
      insist([&] {
        const std::uint32_t pushed = end.push(rest);
        rest = rest.subspan(pushed);
        return pushed > 0;
      });
    }
  }
}

// Pops `count` numbers and returns their sum.
template <class End>
std::uint64_t pop_all(End& end, std::uint64_t count) {
  std::uint64_t sum = 0;
  for (std::uint64_t item = 0; item < count; ++item) {
    std::uint32_t value = 0;
    insist([&] { return end.pop(value); });
    sum += value;
  }
  return sum;
}
inline std::uint64_t pop_all(PyechoRingInGroups::End& end, std::uint64_t count) {
  std::array<std::uint32_t, PyechoRingInGroups::kGroup> values{};
  std::uint64_t sum = 0;
  while (count > 0) {
    std::uint32_t popped = 0;
    insist([&] {
      popped = end.pop(std::span(values).first(std::min<std::uint64_t>(values.size(), count)));
      return popped > 0;
    });
    sum = std::accumulate(values.begin(), values.begin() + popped, sum);
    count -= popped;
  }
  return sum;
}

template <class Queue>
double run(unsigned producers, unsigned consumers, std::uint64_t items) {
  Queue queue;
  std::atomic<unsigned> ready{0};
  std::atomic<std::uint64_t> taken{0};
  std::atomic<std::uint64_t> sum{0};
  const auto everybody_is_there = [&] {
    ready.fetch_add(1);
    insist([&] { return ready.load() == producers + consumers + 1; });
  };
  const std::uint64_t share = items / producers;
  std::vector<std::thread> threads;
  for (unsigned producer = 0; producer < producers; ++producer) {
    threads.emplace_back([&] {
      typename Queue::End end(queue);
      everybody_is_there();
      push_all(end, share);
    });
  }
  // Consumers divide the items beforehand, so that they need no shared count.
  const std::uint64_t all = share * producers;
  for (unsigned consumer = 0; consumer < consumers; ++consumer) {
    const std::uint64_t mine = all / consumers + (consumer < all % consumers ? 1 : 0);
    threads.emplace_back([&, mine] {
      typename Queue::End end(queue);
      everybody_is_there();
      sum.fetch_add(pop_all(end, mine));
      taken.fetch_add(mine);
    });
  }
  everybody_is_there();
  const auto start = std::chrono::steady_clock::now();
  for (std::thread& thread : threads) {
    thread.join();
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  if (taken.load() != all || sum.load() != producers * (share * (share + 1) / 2)) {
    std::fprintf(stderr, "a contestant lost or doubled items\n");
    std::exit(1);
  }
  return seconds.count();
}

using Contestant = std::pair<std::string, std::function<double(unsigned, unsigned, std::uint64_t)>>;

std::vector<Contestant> contestants(bool single) {
  std::vector<Contestant> result;
  const auto add = [&](const char* name, auto one, auto many) { result.emplace_back(name, single ? one : many); };
  add("pyecho", &run<PyechoRing>, &run<PyechoRing>);
  add("pyecho, groups of 32", &run<PyechoRingInGroups>, &run<PyechoRingInGroups>);
#ifdef PYECHO_WITH_ATOMIC_QUEUE
  add("atomic_queue", &run<AtomicQueue<true, true>>, &run<AtomicQueue<false, true>>);
  add("atomic_queue, not for throughput", &run<AtomicQueue<true, false>>, &run<AtomicQueue<false, false>>);
  add("atomic_queue 2", &run<AtomicQueue2<true>>, &run<AtomicQueue2<false>>);
#endif
#ifdef PYECHO_WITH_CONCURRENTQUEUE
  add("moodycamel", &run<Moodycamel>, &run<Moodycamel>);
#endif
#ifdef PYECHO_WITH_BOOST
  add("boost::lockfree", &run<BoostOne>, &run<BoostMany>);
#endif
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  const auto argument = [&](int position, long fallback) {
    return argc > position ? std::max(1L, std::strtol(argv[position], nullptr, 10)) : fallback;
  };
  const long rounds = argument(1, 7);
  const auto items = static_cast<std::uint64_t>(argument(2, 2)) * 1'000'000;
  const std::vector<std::pair<unsigned, unsigned>> shapes = {{1, 1}, {2, 1}, {1, 2}, {2, 2}};
  std::printf("{\"items\": %llu, \"capacity\": %u, \"shapes\": [", static_cast<unsigned long long>(items), kCapacity);
  for (std::size_t shape = 0; shape < shapes.size(); ++shape) {
    const auto [producers, consumers] = shapes[shape];
    std::vector<Contestant> all = contestants(producers == 1 && consumers == 1);
    std::vector<std::vector<double>> seconds(all.size());
    for (long round = -1; round < rounds; ++round) {
      for (std::size_t turn = 0; turn < all.size(); ++turn) {
        const std::size_t who = round % 2 == 0 ? turn : all.size() - 1 - turn;
        const double measured = all[who].second(producers, consumers, items);
        if (round >= 0) {
          seconds[who].push_back(measured);
        }
      }
    }
    std::printf("%s{\"producers\": %u, \"consumers\": %u, \"seconds\": {", shape == 0 ? "" : ", ", producers,
                consumers);
    for (std::size_t who = 0; who < all.size(); ++who) {
      std::printf("%s\"%s\": [", who == 0 ? "" : ", ", all[who].first.c_str());
      for (std::size_t i = 0; i < seconds[who].size(); ++i) {
        std::printf("%s%.6f", i == 0 ? "" : ", ", seconds[who][i]);
      }
      std::printf("]");
    }
    std::printf("}}");
    std::fflush(stdout);
  }
  std::printf("]}\n");
}
