// The way an Arrow column is read. pyecho/source/arrow_types.py decides, and says which leaf of an item each type becomes.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <string>
#include <vector>

#include "bindings/arrow/abi.hpp"
#include "bindings/numpy_api.hpp"

namespace pyecho::bindings {

enum class ArrowKind : unsigned char {
  kPlain,       // values of the dtype, side by side
  kBits,        // bools of one bit
  kList,        // `size` values of the only child in each row
  kStruct,      // one dict for each row
  kText32,      // str or bytes between 32-bit offsets
  kText64,      // the same with 64-bit offsets
  kView,        // the same, each with a place of its own
  kNull,        // None in each row
  kDictionary,  // integers of the dtype, which count values of the only child
  kVarying32,   // in each row the values of the only child between 32-bit offsets, as an array of its own
  kVarying64,   // the same with 64-bit offsets
};

// All members need the GIL.
struct ArrowType {
  // `column`: an arrow_types.Column.
  explicit ArrowType(const pybind11::object& column);

  ArrowKind kind;
  std::string path;                  // for messages: column 'a.b'
  pybind11::object dtype;            // numpy.dtype of kPlain, kBits, kDictionary
  pybind11::object cast;             // of the leaf, where it is another one than `dtype`, else None
  std::int64_t size;                 // values of the dtype, or of the only child, in a row
  std::vector<npy_intp> shape;       // the axes that these make in a row
  pybind11::object axes;             // the order of all axes, where that of `shape` is another one, else None
  bool is_str;                       // kText*, kView: str, else bytes
  bool by_reference;                 // rows are objects; a null is a None
  std::vector<pybind11::str> names;  // kStruct: of the children
  std::vector<ArrowType> children;
};

// Returns a text of a producer. What is not UTF-8 is escaped. Null: no text.
pybind11::str readable(const char* text);

// Returns the schema as a nest of tuples, arrow_types.Schema. Raises ConfigError if it is nested too deep, or cannot
// be.
pybind11::tuple described(const ArrowSchema& schema);

}  // namespace pyecho::bindings
