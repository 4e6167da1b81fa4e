// Random configurations, and calls, for the stress tests.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <random>

#include "pyecho/pyecho.h"

namespace pyecho::capi_tests {

using Random = std::mt19937_64;

inline std::uint64_t below(Random& random, std::uint64_t bound) { return random() % bound; }

inline constexpr std::int64_t kRowShape[] = {33};

// A row is one number, 34 times, so a torn row shows.
inline pyecho_leaf row_leaf(std::uint32_t ndim) {
  pyecho_leaf leaf = PYECHO_LEAF_INIT;
  leaf.dtype = "<i8";
  leaf.shape = kRowShape;
  leaf.ndim = ndim;
  return leaf;
}
inline const pyecho_leaf kRowLeaves[] = {row_leaf(0), row_leaf(1)};

inline pyecho_config random_config(Random& random) {
  pyecho_config config = PYECHO_CONFIG_INIT;
  config.leaves = kRowLeaves;
  config.leaf_count = 2;
  config.batch_size = static_cast<std::uint32_t>(1 + below(random, 6));
  config.shuffle_buffer = static_cast<std::uint32_t>(config.batch_size + below(random, 20));
  config.factor = below(random, 2) == 0 ? static_cast<double>(1 + below(random, 4)) : 2.5;
  config.threads = static_cast<std::uint32_t>(below(random, 3));
  config.prefetch = static_cast<std::uint32_t>(below(random, 4));
  config.slots_ahead = static_cast<std::uint32_t>(below(random, 9));
  config.unique_in_batch = below(random, 4) == 0;
  config.drop_last = below(random, 4) == 0;
  config.with_info = below(random, 2) == 0;
  config.seed = random();
  config.steps_per_epoch = below(random, 4) == 0 ? 3 : 0;
  if (below(random, 4) == 0 && config.factor != 2.5) {
    config.min_uses = 1;
    config.max_age = below(random, 5);
  }
  return config;
}

// Puts and takes what there is room for, in turns that end anywhere. `width`: of the rows of leaf 1, if these differ in
// number. Returns false if a call fails.
inline bool run(pyecho_buffer* buffer, Random& random, std::uint64_t turns, std::uint64_t most_puts,
                std::int64_t width = 0) {
  bool right = true;
  for (; turns > 0; --turns) {
    pyecho_slot slot;
    for (std::uint64_t puts = below(random, most_puts); puts > 0; --puts) {
      if (pyecho_reserve(buffer, &slot, 1, 0, nullptr) == PYECHO_OK) {
        const std::array<std::int64_t, 2> shape = {static_cast<std::int64_t>(below(random, 10)), width};
        unsigned char* rows = nullptr;
        right = right && (width == 0 || pyecho_set_shape(buffer, &slot, 1, shape.data(), &rows) == PYECHO_OK);
        std::memset(slot.data, static_cast<int>(below(random, 256)), sizeof(std::int64_t));
        right = right && pyecho_commit(buffer, &slot, 1) == PYECHO_OK;
      }
    }
    if (below(random, 20) == 0) {
      pyecho_end_pass(buffer, 0);
    }
    pyecho_batch batch = PYECHO_BATCH_INIT;
    for (std::uint64_t takes = below(random, 8); takes > 0; --takes) {
      right = right &&
              (pyecho_acquire(buffer, &batch, 0) != PYECHO_OK || pyecho_release_batch(buffer, &batch) == PYECHO_OK);
    }
  }
  return right;
}

}  // namespace pyecho::capi_tests
