// Copies the planned rows of a batch out of their slots, and releases each slot after its last use has been copied.
//
// Any number of threads, each with a batch of its own. A batch may change threads between two calls.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/memory/batch_pool.hpp"
#include "core/memory/slot_layout.hpp"
#include "core/memory/slot_reclaimer.hpp"

namespace pyecho {

class BatchBuilder {
 public:
  // `slots`: storage of slot 0, in the format of `layout`. `stream`: copy past the caches (stream_copy.hpp). `layout`,
  // the slots and `reclaimer` outlive the builder.
  BatchBuilder(const SlotLayout& layout, const std::byte* slots, SlotReclaimer& reclaimer, bool stream) noexcept
      : layout_(layout), slots_(slots), reclaimer_(reclaimer), stream_(stream) {}

  // Copies the rows that are planned and not yet copied. Returns false if there are none.
  bool copy(Batch& batch) const;
  // Same as copy(), and declares the batch complete, so that the slots of later batches may be released.
  void finish(Batch& batch) const {
    copy(batch);
    reclaimer_.copied(batch.number, {}, true);
  }

 private:
  void copy_row(const Use& use, std::byte* block, std::uint32_t row) const noexcept;
  void prefetch(std::uint32_t slot) const noexcept;

  const SlotLayout& layout_;
  const std::byte* const slots_;
  SlotReclaimer& reclaimer_;
  const bool stream_;
};

}  // namespace pyecho
