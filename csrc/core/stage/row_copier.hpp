// Copies items from their slots into the rows of a batch, through operations where a leaf has some. Any number of
// threads, each with its own batch.
//
// Memory for operations and ragged rows grows with the items. If the system has none, std::bad_alloc comes out, and the
// rows can be copied again after Values::undo().
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/memory/slot_layout.hpp"
#include "core/memory/slot_memory.hpp"
#include "core/ops/geometry.hpp"
#include "core/ops/program.hpp"
#include "core/plan/plan_config.hpp"
#include "core/stage/batch_pool.hpp"

namespace pyecho {

class RowCopier {
 public:
  using Programs = std::vector<std::shared_ptr<const ops::Program>>;

  // `programs`: one for each leaf, or none. `stream`: copy past the caches (stream_copy.hpp). The other arguments outlive
  // this.
  RowCopier(const SlotLayout& layout, const SlotMemory& memory, const PlanConfig& plan, bool stream, Programs programs);

  // Copies rows that are planned. Throws std::bad_alloc.
  void copy(Batch& batch, std::uint32_t first, std::uint32_t rows) const;
  // Pads the rows of a batch, all of which are copied. Throws std::bad_alloc.
  void pad(Batch& batch) const;
  // Fetches the first bytes of an item. In longer ones the processor's own prefetcher takes over.
  void prefetch(std::uint32_t slot) const noexcept {
    const std::byte* const begin = memory_.data(slot);
    for (std::size_t offset = 0; offset < prefetch_bytes_; offset += kPrefetchStep) {
      __builtin_prefetch(begin + offset);
    }
  }

  [[nodiscard]] bool streams() const noexcept { return stream_; }
  // True if a row is no copy of its item.
  [[nodiscard]] bool transforms() const noexcept { return !programs_.empty() || layout_.has_variable(); }

 private:
  static constexpr std::size_t kPrefetchBytes = 512;
  static constexpr std::size_t kPrefetchStep = 64;

  void transform(Batch& batch, std::size_t leaf, std::uint32_t first, std::span<const Use> rows) const;
  [[nodiscard]] ops::UseKey key_of(const Batch& batch, std::uint32_t row, std::size_t leaf) const noexcept;

  const SlotLayout& layout_;
  const SlotMemory& memory_;
  const PlanConfig& plan_;
  const std::size_t prefetch_bytes_;
  const bool stream_;
  const Programs programs_;
  std::vector<std::size_t> leaders_;  // by leaf: the first one with the same window
};

}  // namespace pyecho
