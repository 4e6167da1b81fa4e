// The leaves of one Python item, checked against a Structure and ready to be copied without the GIL.
#pragma once

#include <pybind11/pybind11.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "bindings/strided_row.hpp"
#include "bindings/structure.hpp"
#include "core/memory/host_memory.hpp"
#include "core/memory/slot_layout.hpp"

namespace pyecho::bindings {

// Holds references to the owners of the bytes. Construct and destroy with the GIL.
class ItemView {
 public:
  // `batched`: the item is a batch, whose rows are the examples. Raises SpecMismatch (with the leaf, the expected and
  // the actual value) without side effects. `to_array`: callable that converts another library's array (a tensor) to an
  // ndarray, or returns None.
  ItemView(const Structure& structure, pybind11::handle item, bool batched, const pybind11::object& to_array);
  ~ItemView() = default;
  ItemView(const ItemView&) = delete;
  ItemView& operator=(const ItemView&) = delete;

  // 1 for an example.
  [[nodiscard]] std::size_t rows() const noexcept { return rows_; }
  // Payload of all rows.
  [[nodiscard]] std::size_t size_bytes() const noexcept { return size_bytes_; }
  // Copies a row into each slot, from `first` on; the same thread must commit the slots. The layout has a leaf for each
  // leaf of the structure, empty for a reference leaf. Goes column by column, which is faster for numbers. `streamed`:
  // see SlotPool::stream_slots. `memory`: null, or the shared memory of the slots, which a worker maps little by little. Throws
  // std::bad_alloc for leaves of variable size.
  void copy_rows(std::size_t first, const SlotLayout& layout, bool streamed, std::span<std::byte* const> slots,
                 const HostMemory* memory = nullptr) const;
  // Calls visit(shape) for the rows of a leaf of variable size; once if all have the same.
  template <class Visit>
  void each_shape(std::size_t leaf, const Visit& visit) const {
    for (const Piece& piece : sources_[leaf].pieces) {
      visit(std::span<const std::uint64_t>(piece.shape));
    }
  }
  // Returns the reference leaves of one row, in leaf order. Needs the GIL.
  [[nodiscard]] pybind11::tuple references(std::size_t row) const;

 private:
  static constexpr std::size_t kUnknownRows = std::numeric_limits<std::size_t>::max();

  // A row of a leaf of variable size, or several of one shape, row_stride_bytes apart.
  struct Piece {
    const std::byte* data;
    std::unique_ptr<StridedRow> strided;  // as that of a Source
    std::vector<std::uint64_t> shape;
    std::size_t size_bytes;
  };

  struct Source {
    pybind11::object owner;
    const std::byte* data = nullptr;      // of the first row
    std::ptrdiff_t row_stride_bytes = 0;  // between rows
    std::unique_ptr<StridedRow> strided;  // if the elements of a row are not side by side in C order
    std::array<std::byte, 16> number{};   // storage for a Python number
    std::vector<Piece> pieces;            // of a leaf of variable size: one, or one for each row
  };

  void resolve(const LeafSpec& leaf, Source& source, const pybind11::object& to_array);
  void resolve_array(const LeafSpec& leaf, Source& source);
  void resolve_rows(const LeafSpec& leaf, Source& source, const pybind11::object& to_array);
  [[nodiscard]] Piece piece_of(const LeafSpec& leaf, pybind11::handle array, bool batched) const;
  void resolve_references(const LeafSpec& leaf, Source& source);
  void set_rows(const LeafSpec& leaf, Py_ssize_t rows);

  const bool batched_;
  std::vector<Source> sources_;
  std::size_t rows_;  // kUnknownRows: no leaf of the batch is known yet
  std::size_t size_bytes_ = 0;
  std::vector<PyObject*> references_;  // the owners of reference leaves, in leaf order
};

}  // namespace pyecho::bindings
