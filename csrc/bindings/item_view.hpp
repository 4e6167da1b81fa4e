// The leaves of one Python item, checked against a Structure and ready to be copied without the GIL.
#pragma once

#include <pybind11/pybind11.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "bindings/strided_row.hpp"
#include "bindings/structure.hpp"
#include "core/stage/echo_buffer.hpp"

namespace pyecho::bindings {

enum class ItemKind : unsigned char { kExample, kBatch };

// Holds references to the owners of the bytes. Construct and destroy with the GIL; copying does not need it.
class ItemView {
 public:
  // Raises SpecMismatch (with the leaf, the expected and the actual value) without side effects.
  // `to_array`: callable that converts another library's array (a tensor) to an ndarray, or returns None.
  ItemView(const Structure& structure, pybind11::handle item, ItemKind kind, const pybind11::object& to_array);
  ~ItemView();
  ItemView(const ItemView&) = delete;
  ItemView& operator=(const ItemView&) = delete;

  // 1 for an example.
  [[nodiscard]] std::size_t rows() const noexcept { return rows_; }
  // Payload of all rows.
  [[nodiscard]] std::size_t size_bytes() const noexcept { return size_bytes_; }
  // Copies one row into a slot, which the same thread must commit (see EchoBuffer::stream_slots). The buffer's layout has
  // a leaf for each leaf of the structure, empty for a reference leaf. Calls no Python.
  void copy_row(std::size_t row, const EchoBuffer& buffer, std::uint32_t slot) const noexcept;
  // Returns the reference leaves of one row, in leaf order. Needs the GIL.
  [[nodiscard]] pybind11::tuple references(std::size_t row) const;

 private:
  static constexpr std::size_t kScalarBytes = 16;

  struct Source {
    PyObject* owner = nullptr;
    const std::byte* data = nullptr;  // first row
    std::ptrdiff_t row_stride_bytes = 0;
    std::unique_ptr<StridedRow> strided;           // null: rows are contiguous
    std::array<std::byte, kScalarBytes> scalar{};  // storage for a Python number
  };

  void resolve(const LeafSpec& leaf, Source& source, const pybind11::object& to_array);
  void resolve_array(const LeafSpec& leaf, Source& source);
  void resolve_references(const LeafSpec& leaf, Source& source);
  [[nodiscard]] bool resolve_number(const LeafSpec& leaf, Source& source) const;
  void set_rows(const LeafSpec& leaf, std::size_t rows);
  void release() noexcept;

  const Structure& structure_;
  const ItemKind kind_;
  std::array<Source, Structure::kInlineLeaves> inline_sources_;
  std::unique_ptr<Source[]> many_sources_;
  Source* sources_;
  std::size_t count_ = 0;  // sources with a reference
  std::size_t rows_ = 1;
  bool rows_known_;
  std::size_t size_bytes_ = 0;
};

}  // namespace pyecho::bindings
