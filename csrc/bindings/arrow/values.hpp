// Single values of Arrow arrays: which rows are null, and those that travel by reference (strings, binary and nulls).
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>

#include "bindings/arrow/abi.hpp"
#include "bindings/arrow/type.hpp"

namespace pyecho::bindings {

// The next five call no Python.

// Arrow counts bits from the lowest one of each byte.
inline bool bit_at(const unsigned char* bits, std::int64_t index) noexcept {
  return ((bits[index / 8] >> (index % 8)) & 1) != 0;
}
// False if no row of the array can be null.
inline bool has_nulls(const ArrowArray& array) noexcept {
  return array.null_count != 0 && array.n_buffers > 0 && array.buffers[0] != nullptr;
}
inline bool is_null(const ArrowArray& array, std::int64_t row) noexcept {
  return has_nulls(array) && !bit_at(static_cast<const unsigned char*>(array.buffers[0]), array.offset + row);
}

// Returns which value of its dictionary a row of a dictionary-encoded array has. It may be out of range.
[[nodiscard]] std::int64_t dictionary_index(const ArrowType& type, const ArrowArray& array, std::int64_t row);

// Returns the first of `count` rows from `begin` on, counted from there, that is null in a leaf of fixed size, and sets
// `column` to the type of that leaf; `count` if none is.
[[nodiscard]] std::int64_t first_null(const ArrowType& type, const ArrowArray& array, std::int64_t begin,
                                      std::int64_t count, const ArrowType*& column);

// Returns rows of a kText*, kView or kNull as a new array of str, bytes and None. Raises EchoError if the text of a row
// lies outside of its buffer, UnicodeDecodeError.
pybind11::object read_objects(const ArrowType& type, const ArrowArray& array, std::int64_t begin, std::int64_t count);

// Returns a new array of so many objects, and where they are; NumPy may have put None there.
pybind11::object new_objects(std::int64_t count);
[[nodiscard]] PyObject** objects_in(const pybind11::object& array) noexcept;

// Returns a copy of an array of objects, with a None after them.
pybind11::object with_none(const pybind11::object& objects);

}  // namespace pyecho::bindings
