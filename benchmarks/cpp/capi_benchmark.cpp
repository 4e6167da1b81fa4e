// The cost of the C interface over the C++ core: reserve and commit of one slot, and of groups of 64, interleaved.
//
//     capi_benchmark [rounds]
//
// The consumer is emptied between the timed parts, so that nothing waits and nothing but the producer's side is
// measured.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "core/stage/echo_buffer.hpp"
#include "pyecho/pyecho.h"

namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr std::uint32_t kItems = 4096;  // of one timed part

double seconds_since(SteadyClock::time_point begin) {
  return std::chrono::duration<double>(SteadyClock::now() - begin).count();
}

void require(bool fine) {
  if (!fine) {
    std::abort();
  }
}

// Returns nanoseconds an item.
double core_part(pyecho::EchoBuffer& buffer, std::uint32_t group) {
  std::array<pyecho::Reservation, 64> slots{};
  const auto begin = SteadyClock::now();
  for (std::uint32_t done = 0; done < kItems;) {
    std::uint32_t count = 0;
    require(buffer.input().try_reserve(std::span(slots).first(group), count) == pyecho::Outcome::kOk);
    buffer.input().commit(std::span<const pyecho::Reservation>(slots).first(count));
    done += count;
  }
  const double ns = seconds_since(begin) * 1e9 / kItems;
  pyecho::Lease lease;
  buffer.input().close();
  while (buffer.acquire(lease, pyecho::kNever) == pyecho::Outcome::kOk) {
  }
  lease.reset();
  require(pyecho::begin_epoch(buffer, 0, {}) == pyecho::Outcome::kOk);
  return ns;
}

double c_part(pyecho_buffer* buffer, std::uint32_t group) {
  std::array<pyecho_slot, 64> slots;
  const auto begin = SteadyClock::now();
  for (std::uint32_t done = 0; done < kItems;) {
    std::size_t count = 0;
    require(pyecho_reserve(buffer, slots.data(), group, PYECHO_FOREVER, &count) == PYECHO_OK);
    require(pyecho_commit(buffer, slots.data(), count) == PYECHO_OK);
    done += static_cast<std::uint32_t>(count);
  }
  const double ns = seconds_since(begin) * 1e9 / kItems;
  pyecho_batch batch = PYECHO_BATCH_INIT;
  pyecho_close(buffer);
  while (pyecho_acquire(buffer, &batch, PYECHO_FOREVER) == PYECHO_OK) {
    pyecho_release_batch(buffer, &batch);
  }
  require(pyecho_begin(buffer, 0, PYECHO_UNKNOWN) == PYECHO_OK);
  return ns;
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 300;
  pyecho_leaf leaf = PYECHO_LEAF_INIT;
  leaf.dtype = "<i8";
  pyecho_config config = PYECHO_CONFIG_INIT;
  config.leaves = &leaf;
  config.leaf_count = 1;
  config.factor = 1;
  config.batch_size = 64;
  config.shuffle_buffer = kItems;
  pyecho_buffer* buffer = nullptr;
  require(pyecho_create(&config, &buffer) == PYECHO_OK);
  pyecho::EchoBuffer core({.plan = {.capacity = kItems, .factor = 1.0, .batch_size = 64}, .leaves = {8}, .threads = 0});
  for (const std::uint32_t group : {1U, 64U}) {
    std::vector<double> extra;
    std::vector<double> bare;
    for (int round = 0; round < rounds; ++round) {
      const bool core_first = round % 2 == 0;
      double ns = core_first ? core_part(core, group) : 0;
      const double c_ns = c_part(buffer, group);
      ns = core_first ? ns : core_part(core, group);
      bare.push_back(ns);
      extra.push_back(c_ns - ns);
    }
    std::ranges::sort(bare);
    std::ranges::sort(extra);
    const auto at = [](const std::vector<double>& values, double part) {
      return values[static_cast<std::size_t>(static_cast<double>(values.size() - 1) * part)];
    };
    std::printf("groups of %2u: core %.1f ns an item, C interface %+.1f ns [%.1f, %.1f]\n", group, at(bare, 0.5),
                at(extra, 0.5), at(extra, 0.25), at(extra, 0.75));
  }
  pyecho_release(buffer);
}
