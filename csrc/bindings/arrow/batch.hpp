// The values of one Arrow record batch, as NumPy arrays and Python objects.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <unordered_map>

#include "bindings/arrow/abi.hpp"
#include "bindings/arrow/type.hpp"

namespace pyecho::bindings {

// All members need the GIL.
class ArrowBatch {
 public:
  // Takes `array`, which is released with this object and the last of its views, in any thread. `type` must outlive
  // this object. Raises EchoError if the array does not fit its type. The sizes of buffers are not known, and so not
  // checked.
  ArrowBatch(const ArrowType& type, ArrowArray& array);

  [[nodiscard]] std::int64_t rows() const noexcept { return array_->length; }
  // Returns the first row from `begin` on with a null in a leaf that has a fixed size, and sets `column` to its type;
  // rows() if there is none.
  [[nodiscard]] std::int64_t first_null(std::int64_t begin, const ArrowType*& column) const;
  // Returns the first buffer of values there is; null if there is none.
  [[nodiscard]] const void* first_buffer() const noexcept;
  // Returns these rows, which have no such null: a dict of columns, or the column itself where the batch is no struct.
  // A column is a read-only view of the batch, or a new array for what NumPy stores in another way. Objects come in an
  // array.
  [[nodiscard]] pybind11::object read(std::int64_t begin, std::int64_t count);

 private:
  pybind11::object read(const ArrowType& type, const ArrowArray& array, std::int64_t begin, std::int64_t count);
  pybind11::object read_struct(const ArrowType& type, const ArrowArray& array, std::int64_t begin, std::int64_t count);
  pybind11::object read_plain(const ArrowType& type, const ArrowArray& array, std::int64_t begin,
                              std::int64_t count) const;
  template <class Offset>
  pybind11::object read_varying(const ArrowType& type, const ArrowArray& array, std::int64_t begin, std::int64_t count);
  pybind11::object read_dictionary(const ArrowType& type, const ArrowArray& array, std::int64_t begin,
                                   std::int64_t count);

  const ArrowType& type_;
  pybind11::object owner_;  // a capsule; the base of all views
  const ArrowArray* array_;
  std::unordered_map<const ArrowArray*, pybind11::object> dictionaries_;  // decoded ones
};

}  // namespace pyecho::bindings
