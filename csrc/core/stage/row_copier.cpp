#include "core/stage/row_copier.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "core/memory/pad_rows.hpp"
#include "core/random.hpp"
#include "core/stage/copy_leaf.hpp"

namespace pyecho {
namespace {

// Returns aligned memory of this thread for operations, at least so many bytes.
std::byte* scratch_of_thread(std::size_t size_bytes) {
  struct Free {
    void operator()(std::byte* memory) const noexcept { ::operator delete[](memory, std::align_val_t{64}); }
  };
  thread_local std::unique_ptr<std::byte[], Free> memory;
  thread_local std::size_t has_bytes = 0;
  if (size_bytes > has_bytes) {
    memory.reset(new (std::align_val_t{64}) std::byte[size_bytes]);
    has_bytes = size_bytes;
  }
  return memory.get();
}

}  // namespace

RowCopier::RowCopier(const SlotLayout& layout, const SlotMemory& memory, const PlanConfig& plan, bool stream,
                     Programs programs)
    : layout_(layout),
      memory_(memory),
      plan_(plan),
      prefetch_bytes_(std::min(layout.slot_bytes(), kPrefetchBytes)),
      stream_(stream),
      programs_(std::move(programs)) {}

// Returns the number from which operations draw for a row: the same for any batch size, and on any rank that has the
// row's stream.
std::uint64_t RowCopier::key_of(const Batch& batch, std::uint32_t row) const noexcept {
  const std::uint64_t use = batch.begin + row;
  const std::uint64_t stream = plan_.first_stream + use % plan_.streams * plan_.stream_step;
  return ops::key_of_use(seed_of_stream(plan_.seed, stream), batch.epoch, use / plan_.streams);
}

// Leaf by leaf: each is written to one place, and its size is looked at once for all rows.
void RowCopier::copy(Batch& batch, std::uint32_t first, std::uint32_t count) const {
  const std::span<const Use> rows = std::span(batch.uses).subspan(first, count);
  std::byte* const block = batch.memory.data();
  for (std::size_t i = 0; i < layout_.leaves().size(); ++i) {
    const SlotLayout::Leaf& leaf = layout_.leaves()[i];
    if (leaf.variable.axes > 0 || (!programs_.empty() && programs_[i] != nullptr)) {
      transform(batch, i, first, rows);
    } else {
      copy_leaf(block + leaf.batch_offset + first * leaf.row_bytes, memory_.data() + leaf.slot_offset,
                layout_.slot_distance(), rows, leaf.size_bytes, stream_);
    }
  }
  if (layout_.with_info()) {
    std::byte* index = block + layout_.source_index_offset() + first * sizeof(std::int64_t);
    std::byte* ordinal = block + layout_.use_offset() + first * sizeof(std::int32_t);
    for (const Use& use : rows) {
      const auto of_source = static_cast<std::int64_t>(use.source_index);
      const auto of_use = static_cast<std::int32_t>(use.ordinal);
      std::memcpy(index, &of_source, sizeof(of_source));
      std::memcpy(ordinal, &of_use, sizeof(of_use));
      index += sizeof(of_source);
      ordinal += sizeof(of_use);
    }
  }
}

// Copies rows of a leaf that has a program, or a variable size, or both.
void RowCopier::transform(Batch& batch, std::size_t index, std::uint32_t first, std::span<const Use> rows) const {
  const SlotLayout::Leaf& leaf = layout_.leaves()[index];
  const ops::Program* const program = programs_.empty() ? nullptr : programs_[index].get();
  std::byte* region = batch.memory.data() + leaf.batch_offset + first * leaf.row_bytes;
  for (const Use& use : rows) {
    const std::byte* item = memory_.data(use.slot) + leaf.slot_offset;
    std::span<const std::uint64_t> shape;
    std::size_t size_bytes = leaf.row_bytes;  // of the row's elements
    if (leaf.variable.axes > 0) {
      const VariableItem& variable = memory_.item(use.slot, leaf);
      item = variable.data(leaf);
      shape = variable.shape(leaf);
      size_bytes = variable.size_bytes;
    } else {
      shape = program->item().shape;
    }
    std::byte* to = region;
    if (item == nullptr) {  // the plan has diverged
      std::memset(region, 0, leaf.row_bytes);
    } else if (leaf.ragged) {
      if (program == nullptr) {
        std::memcpy(region, shape.data(), leaf.row_bytes);
      } else {
        const std::vector<std::uint64_t> of_row = program->output_shape(shape);
        size_bytes = ops::ArrayType{.element_bytes = program->output().element_bytes, .shape = of_row}.size_bytes();
        std::memcpy(region, of_row.data(), leaf.row_bytes);
      }
      to = batch.values[index].append(size_bytes, times(leaf.variable.max_bytes, layout_.rows()));
    }
    if (item == nullptr || (leaf.ragged && size_bytes == 0)) {
      // An empty row: nothing, and perhaps no memory.
    } else if (program == nullptr) {
      std::memcpy(to, item, size_bytes);
    } else {
      program->run(key_of(batch, first), item, shape, to, scratch_of_thread(program->scratch_bytes(shape)), stream_);
    }
    ++first;
    region += leaf.row_bytes;
  }
}

void RowCopier::pad(Batch& batch) const {
  for (std::size_t i = 0; i < batch.values.size(); ++i) {
    const SlotLayout::Leaf& leaf = layout_.leaves()[i];
    auto& [rows, places] = batch.padded[i];
    if (leaf.pad.empty() || rows.size_bytes() > 0) {  // done, before memory gave out for another leaf
      continue;
    }
    const std::size_t axes = leaf.row_bytes / LeafFormat::kExtentBytes;
    const std::span shapes(reinterpret_cast<const std::uint64_t*>(batch.memory.data() + leaf.batch_offset),
                           axes * batch.rows);
    places.assign(axes, 0);
    for (std::size_t extent = 0; extent < shapes.size(); ++extent) {
      places[extent % axes] = std::max(places[extent % axes], shapes[extent]);
    }
    const RowPadding padding(places, leaf.pad);
    const std::size_t size_bytes = times(padding.row_bytes(), batch.rows);
    std::byte* to = rows.append(size_bytes, size_bytes);
    const std::byte* from = batch.values[i].data();
    for (std::size_t row = 0; row < shapes.size(); row += axes) {
      from = padding.write(to, from, shapes.subspan(row, axes));
      to += padding.row_bytes();
    }
  }
}

}  // namespace pyecho
