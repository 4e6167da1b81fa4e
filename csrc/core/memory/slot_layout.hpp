// Offsets of the leaves of an example, in its slot and in a batch. Pure arithmetic.
//
// A slot is a record with all leaves of one example side by side. The elements of leaves of variable size may follow in
// it, each with room for the largest item, of which only the pages that an item fills exist. A batch is one block of memory with a region per
// leaf. Each region is a contiguous array of rows, so every leaf of the batch is an ordinary C-contiguous array. Two
// more regions may follow: the source index and the use of each row. A row is a copy of the example's leaf, or what
// operations make of it (core/ops), which may have another size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pyecho {

// A leaf whose shape differs from item to item. Its slot says where the item's elements are (slot_memory.hpp).
struct VariableLeaf {
  std::uint32_t axes = 0;  // 0: all items have the same size
  std::size_t element_bytes = 0;
  std::size_t max_bytes = 0;  // of one item
};

// The format of one leaf of an example, in its slot and in a batch.
struct LeafFormat {
  // A leaf of so many bytes, of which rows are copies. Implicit: most leaves are.
  // NOLINTNEXTLINE(google-explicit-constructor)
  LeafFormat(std::size_t size_bytes) : slot_bytes(size_bytes), row_bytes(size_bytes) {}
  // A leaf of variable size, with ragged rows: their elements lie in Batch::values, one row after the other, and the
  // batch has the shape of each, kExtentBytes an axis.
  static LeafFormat of_variable(const VariableLeaf& leaf) {
    LeafFormat format(kHeaderBytes + leaf.axes * kExtentBytes);
    format.row_bytes = leaf.axes * kExtentBytes;
    format.variable = leaf;
    format.ragged = true;
    return format;
  }

  static constexpr std::size_t kExtentBytes = sizeof(std::uint64_t);
  static constexpr std::size_t kHeaderBytes = 4 * sizeof(std::uint64_t);  // of a VariableItem, before its extents

  std::size_t slot_bytes;  // in the slot
  std::size_t row_bytes;   // of one row of a batch
  VariableLeaf variable{};
  bool ragged = false;
  std::vector<std::byte> pad;  // the element after a ragged row, up to the largest of its batch; empty: none
};

class SlotLayout {
 public:
  // Maximum alignment of a leaf in its slot, in bytes; enough for every dtype.
  static constexpr std::size_t kLeafAlignment = 16;
  // Alignment of a slot: one cache line.
  static constexpr std::size_t kSlotAlignment = 64;
  // Alignment of each region of a batch: one cache line.
  static constexpr std::size_t kRegionAlignment = 64;

  struct Leaf {
    std::size_t size_bytes = 0;    // in the slot; may be 0
    std::size_t slot_offset = 0;   // in the slot
    std::size_t row_bytes = 0;     // of one row of a batch; may be 0
    std::size_t batch_offset = 0;  // of the leaf's region in the batch
    VariableLeaf variable = {};
    bool ragged = false;
    std::vector<std::byte> pad = {};
    std::size_t elements_offset = 0;  // in the slot, of a leaf of variable size; 0: they are elsewhere
  };

  // `rows`: examples in a batch. `whole`: slots have room for the elements of leaves of variable size. Throws
  // std::length_error if sizes do not fit the address space.
  SlotLayout(const std::vector<LeafFormat>& leaves, std::uint32_t rows, bool with_info, bool whole = false);

  [[nodiscard]] const std::vector<Leaf>& leaves() const noexcept { return leaves_; }
  [[nodiscard]] std::uint32_t rows() const noexcept { return rows_; }
  [[nodiscard]] bool with_info() const noexcept { return with_info_; }
  // True if slots have room for the elements of leaves of variable size, and there are such leaves.
  [[nodiscard]] bool is_whole() const noexcept { return slot_distance_ > slot_bytes_; }
  // True if leaves have a variable size, and if rows have.
  [[nodiscard]] bool has_variable() const noexcept { return variable_bytes_ > 0; }
  [[nodiscard]] bool has_ragged() const noexcept { return ragged_bytes_ > 0; }
  // Payload of one example, without padding; of leaves of variable size what the slot has.
  [[nodiscard]] std::size_t example_bytes() const noexcept { return example_bytes_; }
  // Most that the leaves of variable size of one example need besides.
  [[nodiscard]] std::size_t variable_bytes() const noexcept { return variable_bytes_; }
  // Most that the ragged leaves of one row need besides. Padded ones are there twice.
  [[nodiscard]] std::size_t ragged_bytes() const noexcept { return ragged_bytes_; }
  // Payload of one row of a batch, likewise.
  [[nodiscard]] std::size_t row_bytes() const noexcept { return row_bytes_; }
  // Size of a slot's record, padding included; and the distance between slots, which is larger if they are whole.
  [[nodiscard]] std::size_t slot_bytes() const noexcept { return slot_bytes_; }
  [[nodiscard]] std::size_t slot_distance() const noexcept { return slot_distance_; }
  // Size of a batch's block; at least 1.
  [[nodiscard]] std::size_t batch_bytes() const noexcept { return batch_bytes_; }
  // Size of the regions of leaves, which come first.
  [[nodiscard]] std::size_t leaves_bytes() const noexcept { return with_info_ ? source_index_offset_ : batch_bytes_; }
  // Offsets of the regions of int64 source indices and int32 uses, rows() each. Valid only if with_info().
  [[nodiscard]] std::size_t source_index_offset() const noexcept { return source_index_offset_; }
  [[nodiscard]] std::size_t use_offset() const noexcept { return use_offset_; }

 private:
  std::vector<Leaf> leaves_;
  std::uint32_t rows_;
  bool with_info_;
  std::size_t example_bytes_ = 0;
  std::size_t variable_bytes_ = 0;
  std::size_t ragged_bytes_ = 0;
  std::size_t row_bytes_ = 0;
  std::size_t slot_bytes_ = 0;
  std::size_t slot_distance_ = 0;
  std::size_t batch_bytes_ = 0;
  std::size_t source_index_offset_ = 0;
  std::size_t use_offset_ = 0;
};

}  // namespace pyecho
