// Copies the planned rows of a batch out of their slots, and gives slots back whose last use has been copied.
//
// Any number of threads, each with a batch of its own. A batch may go from one thread to another between two calls.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/memory/batch_pool.hpp"
#include "core/memory/slot_layout.hpp"
#include "core/memory/slot_reclaimer.hpp"

namespace pyecho {

class BatchBuilder {
 public:
  // `slots`: storage of slot 0, laid out by `layout`. `stream`: copy past the caches (stream_copy.hpp). `layout`, the
  // slots and `reclaimer` outlive the builder.
  BatchBuilder(const SlotLayout& layout, const std::byte* slots, SlotReclaimer& reclaimer, bool stream) noexcept
      : layout_(layout), slots_(slots), reclaimer_(reclaimer), stream_(stream) {}

  // Copies the rows that are planned and not yet copied. False if there are none.
  bool copy(Batch& batch) const;
  // As copy(), and no row will follow: the slots of later batches may go.
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
