// pyecho._core.Replay: finds the position of a saved state again (core/plan/replay.hpp).
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "core/plan/replay.hpp"

namespace pyecho::bindings {

class ReplayObject {
 public:
  ReplayObject(const PlanConfig& config, std::uint32_t batch_rows, PlanPosition position)
      : iterations_(position.iterations), replay_(config, batch_rows, std::move(position)) {}

  // Returns false if there is no such position. Call once. Answers signals.
  bool run();

  [[nodiscard]] BatchPlan& plan() noexcept { return replay_.plan(); }
  // What the consumer has taken: whole iterations, and batches of the next one, short ones included.
  [[nodiscard]] std::uint64_t iterations() const noexcept { return iterations_; }
  [[nodiscard]] std::uint64_t batches() const noexcept { return replay_.batches_drawn(); }
  [[nodiscard]] std::uint64_t passes_fed() const noexcept { return replay_.passes_fed(); }

 private:
  const std::uint64_t iterations_;
  Replay replay_;
};

}  // namespace pyecho::bindings
