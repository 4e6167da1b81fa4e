#include "core/stage/row_copier.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "core/memory/pad_rows.hpp"
#include "core/ops/transform.hpp"
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
      programs_(std::move(programs)) {
  const auto window_of = [this](std::size_t leaf) { return programs_[leaf] ? programs_[leaf]->window() : nullptr; };
  for (std::size_t leaf = 0; leaf < programs_.size(); ++leaf) {
    std::size_t leader = leaf;
    for (std::size_t before = leaf; window_of(leaf) != nullptr && before-- > 0;) {
      leader = window_of(before) != nullptr && window_of(before)->draws == window_of(leaf)->draws ? before : leader;
    }
    leaders_.push_back(leader);
  }
}

// Returns what operations draw from for a row: the same for any batch size, and on any rank that has the row's stream.
ops::UseKey RowCopier::key_of(const Batch& batch, std::uint32_t row, std::size_t leaf) const noexcept {
  const std::uint64_t use = batch.begin + row;
  const std::uint64_t stream = plan_.first_stream + use % plan_.streams * plan_.stream_step;
  const std::uint64_t seed = seed_of_stream(plan_.seed, stream);
  ops::UseKey key{.use = ops::key_of_use(seed, batch.epoch, use / plan_.streams)};
  if (programs_[leaf]->window() != nullptr) {
    const Use& of = batch.uses[row];
    const std::size_t leader = leaders_[leaf];
    const SlotLayout::Leaf& of_leader = layout_.leaves()[leader];
    const std::uint32_t axis = programs_[leader]->window()->axes[0];
    key.item = ops::key_of_item(seed, of.pass, of.source_index / plan_.streams);
    key.ordinal = of.ordinal;
    key.extent = of_leader.variable.axes > 0 ? memory_.item(of.slot, of_leader).shape(of_leader)[axis]
                                             : programs_[leader]->item().shape[axis];
  }
  return key;
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
  const std::size_t most_bytes = times(leaf.variable.max_bytes, layout_.rows());
  std::byte* region = batch.memory.data() + leaf.batch_offset + first * leaf.row_bytes;
  for (const Use& use : rows) {
    const std::byte* item = memory_.data(use.slot) + leaf.slot_offset;
    std::size_t size_bytes = leaf.row_bytes;
    std::span<const std::uint64_t> shape;
    if (leaf.variable.axes > 0) {
      const VariableItem& variable = memory_.item(use.slot, leaf);
      item = variable.data(leaf);
      size_bytes = variable.size_bytes;
      shape = variable.shape(leaf);
    } else {
      shape = program->item().shape;
    }
    // Returns where the elements of the row go.
    const auto place_of = [&](std::size_t row_bytes) {
      return leaf.ragged ? batch.values[index].append(row_bytes, most_bytes) : region;
    };
    if (item == nullptr) {  // the plan has diverged
      std::memset(region, 0, leaf.row_bytes);
    } else if (program == nullptr) {
      if (leaf.ragged) {
        std::memcpy(region, shape.data(), leaf.row_bytes);
      }
      if (size_bytes > 0) {  // else perhaps no memory
        std::memcpy(place_of(size_bytes), item, size_bytes);
      }
    } else {
      ops::Transform transform(*program, key_of(batch, first, index), shape);
      if (leaf.ragged) {
        transform.write_shape(region);
      }
      std::byte* const row = place_of(transform.row_bytes());
      transform.write(item, row, scratch_of_thread(transform.scratch_bytes()), stream_);
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
