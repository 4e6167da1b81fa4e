// A stream with a fixed echo factor: every item has its uses, drawn uniformly (UniformPool).
//
// A pass with a number of uses of its own (Extent) may have a factor far above the configured one, so begin() makes room
// for its uses in the pool; end_pass() makes more where the pool holds items of several passes.
#pragma once

#include <cstdint>
#include <span>

#include "core/plan/stream.hpp"
#include "core/plan/uniform_pool.hpp"

namespace pyecho {

class FixedStream final : public Stream {
 public:
  explicit FixedStream(const PlanConfig& config) : Stream(config), pool_(config) {}

  void begin(std::uint64_t epoch, const Extent& extent) override;
  void end_pass() override {
    Stream::end_pass();
    make_room(input_.fed());
  }
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
  [[nodiscard]] bool exhausted() const noexcept override { return input_.drained() && pool_.uses_left() == 0; }
  void make_room(std::uint64_t earlier_items);
  void admit_next() noexcept;
  void close_passes() noexcept;

  UniformPool pool_;
  Extent extent_;
  std::uint64_t admitted_uses_ = 0;  // of all items admitted so far
};

}  // namespace pyecho
