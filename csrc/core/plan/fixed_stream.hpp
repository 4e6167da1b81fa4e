// A stream with a fixed echo factor: every item has its uses, drawn uniformly (UniformPool).
#pragma once

#include <cstdint>
#include <span>

#include "core/plan/stream.hpp"
#include "core/plan/uniform_pool.hpp"

namespace pyecho {

class FixedStream final : public Stream {
 public:
  explicit FixedStream(const PlanConfig& config) : Stream(config), pool_(config) {}

  void begin(const StreamBegin& from, const Extent& extent) override;
  Outcome ready(bool awaited) override;
  void end_batch() noexcept override { pool_.end_batch(); }
  void next_iteration() noexcept override {
    close_passes();  // of several streams, only the one whose turn it was knows of the end
    Stream::next_iteration();
  }
  [[nodiscard]] std::uint64_t min_items(std::uint64_t draws) const noexcept override;
  [[nodiscard]] std::uint32_t resident() const noexcept override { return pool_.resident(); }
  [[nodiscard]] bool holds(std::uint32_t slot) const noexcept override { return pool_.holds(slot); }

 private:
  std::uint32_t draw_some(std::span<Use> rows) override;
  [[nodiscard]] std::uint64_t uses_left() const noexcept { return pool_.uses_left() + lead_; }
  [[nodiscard]] bool exhausted() const noexcept override { return input_.drained() && uses_left() == 0; }
  [[nodiscard]] bool may_admit();
  void admit_next();
  void close_passes() noexcept;

  UniformPool pool_;
  std::uint64_t admitted_uses_ = 0;  // of all items admitted so far
};

}  // namespace pyecho
