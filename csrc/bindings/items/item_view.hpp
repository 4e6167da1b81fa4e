// The leaves of one Python item, checked against a Structure and ready to be copied without the GIL.
#pragma once

#include <pybind11/pybind11.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "bindings/items/strided_row.hpp"
#include "bindings/items/structure.hpp"
#include "core/memory/host_memory.hpp"
#include "core/memory/slot_layout.hpp"
#include "core/sync/atomic.hpp"

namespace pyecho::bindings {

// Holds references to the owners of the bytes until clear(). Construct, read, clear and destroy with the GIL. A view
// that reads one item after the other allocates for the first ones only.
class ItemView {
 public:
  explicit ItemView(const Structure& structure)
      : structure_(structure), owners_(structure.leaves().size()), sources_(structure.leaves().size()) {}
  ~ItemView() = default;
  ItemView(const ItemView&) = delete;
  ItemView& operator=(const ItemView&) = delete;

  // `batched`: the item is a batch, whose rows are the examples. Raises SpecMismatch (with the leaf, the expected and
  // the actual value) without side effects. `to_array`: callable that converts another library's array (a tensor) to an
  // ndarray, or returns None.
  void read(pybind11::handle item, bool batched, const pybind11::object& to_array);
  void clear() { std::ranges::fill(owners_, pybind11::object()); }

  // 1 for an example.
  [[nodiscard]] std::size_t rows() const noexcept { return rows_; }
  // Payload of all rows.
  [[nodiscard]] std::size_t size_bytes() const noexcept { return size_bytes_; }
  // Copies a row into each slot, from `first` on; the same thread must commit the slots. The layout has a leaf for each
  // leaf of the structure, empty for a reference leaf. Goes column by column, which is faster for numbers. `streamed`:
  // see SlotRing::stream_slots. Throws std::bad_alloc for leaves of variable size.
  // `memory`: null, or the shared memory of the slots, which a worker maps little by little.
  void copy_rows(std::size_t first, const SlotLayout& layout, bool streamed, std::span<std::byte* const> slots,
                 const HostMemory* memory = nullptr) const;
  // Calls visit(shape) for the rows of a leaf of variable size; once if all have the same.
  template <class Visit>
  void each_shape(std::size_t leaf, const Visit& visit) const {
    for (const Piece& piece : sources_[leaf].all_pieces()) {
      visit(std::span<const std::uint64_t>(piece.shape));
    }
  }
  // Returns the reference leaves of one row, in leaf order. Needs the GIL.
  [[nodiscard]] pybind11::tuple references(std::size_t row) const;

 private:
  static constexpr std::size_t kUnknownRows = std::numeric_limits<std::size_t>::max();

  // A row of a leaf of variable size, or several of one shape, row_stride_bytes apart.
  struct Piece {
    const std::byte* data = nullptr;
    bool is_strided = false;  // as that of a Source
    StridedRow strided{};
    std::vector<std::uint64_t> shape;
    std::size_t size_bytes = 0;
  };

  struct Source {
    const std::byte* data = nullptr;      // of the first row
    std::ptrdiff_t row_stride_bytes = 0;  // between rows
    bool is_strided = false;              // the elements of a row are not side by side in C order
    StridedRow strided{};
    std::array<std::byte, 16> number{};  // storage for a number
    std::vector<Piece> pieces;  // of a leaf of variable size: one, or one for each row; behind them unused ones
    std::size_t piece_count = 0;

    [[nodiscard]] std::span<const Piece> all_pieces() const { return std::span(pieces).first(piece_count); }
  };

  void resolve(std::size_t index, const pybind11::object& to_array);
  void resolve_array(const LeafSpec& leaf, Source& source, pybind11::handle array);
  void resolve_rows(const LeafSpec& leaf, Source& source, pybind11::object& owner, const pybind11::object& to_array);
  static const Piece& add_piece(const LeafSpec& leaf, Source& source, pybind11::handle array, bool batched);
  void resolve_references(const LeafSpec& leaf, pybind11::object& owner);
  void set_rows(const LeafSpec& leaf, Py_ssize_t rows);

  const Structure& structure_;
  std::vector<pybind11::object> owners_;  // of the bytes of each leaf; reference leaves themselves
  std::vector<Source> sources_;
  bool batched_ = false;
  std::size_t rows_ = 0;  // kUnknownRows: no leaf of the batch is known yet
  std::size_t size_bytes_ = 0;
};

// Views of items of one structure, to be used again. Needs the GIL; any number of threads.
class ItemViews {
 public:
  explicit ItemViews(const Structure& structure) : structure_(structure) {}
  ~ItemViews() { delete spare_.load_acquire(); }
  ItemViews(const ItemViews&) = delete;
  ItemViews& operator=(const ItemViews&) = delete;

  struct Return {
    ItemViews* views;
    void operator()(ItemView* view) const {
      view->clear();
      delete views->spare_.exchange_acq_rel(view);
    }
  };
  using View = std::unique_ptr<ItemView, Return>;

  // Returns a view of this item, see ItemView::read().
  View of(pybind11::handle item, bool batched, const pybind11::object& to_array) {
    ItemView* const spare = spare_.exchange_acq_rel(nullptr);
    View view(spare == nullptr ? new ItemView(structure_) : spare, {this});
    view->read(item, batched, to_array);
    return view;
  }

 private:
  const Structure& structure_;
  Atomic<ItemView*> spare_;
};

}  // namespace pyecho::bindings
