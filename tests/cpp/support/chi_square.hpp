// The chi-square statistic of counts against equal counts.
#pragma once

#include <numeric>
#include <vector>

namespace pyecho::test {

inline double chi_square(const std::vector<int>& counts) {
  const double expected = std::accumulate(counts.begin(), counts.end(), 0.0) / static_cast<double>(counts.size());
  return std::accumulate(counts.begin(), counts.end(), 0.0, [&](double sum, int count) {
    return sum + (count - expected) * (count - expected) / expected;
  });
}

}  // namespace pyecho::test
