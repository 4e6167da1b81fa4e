// Arrow columns that travel by reference: strings, binary and nulls, as arrays of Python objects.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>

#include "bindings/arrow/abi.hpp"
#include "bindings/arrow/type.hpp"

namespace pyecho::bindings {

// Returns rows of a kText*, kView or kNull as a new array of str, bytes and None. Raises EchoError if the text of a row
// lies outside of its buffer, UnicodeDecodeError.
pybind11::object read_objects(const ArrowType& type, const ArrowArray& array, std::int64_t begin, std::int64_t count);

// Returns a copy of an array of objects, with a None after them.
pybind11::object with_none(const pybind11::object& objects);

}  // namespace pyecho::bindings
