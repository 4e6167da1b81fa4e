// The type of an Arrow column, and which leaf of an item it becomes.
//
//     Arrow                                            Leaf of an item
//     numbers, float16 included, and bool              array of the same dtype
//     date, timestamp (in UTC)                         datetime64
//     time of day, duration                            timedelta64
//     fixed-size binary of N bytes                     uint8 array of shape (N,)
//     fixed-size list, also nested                     array with one axis more for each list
//     arrow.fixed_shape_tensor                         array of that shape
//     struct                                           dict
//     string, binary, also large and as views; null    str, bytes or None, by reference
//     dictionary-encoded                               as the values
//     other extension types                            as their storage
//
// Everything else has no leaf of fixed size, and is refused by name.
#pragma once

#include <pybind11/pybind11.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "bindings/arrow/abi.hpp"

namespace pyecho::bindings {

enum class ArrowKind : unsigned char {
  kPlain,       // values of the dtype, side by side
  kBits,        // bools of one bit
  kWidened,     // 32-bit values of a dtype of 64 bits (dates in days, times of day)
  kFixedList,   // `size` values of the only child in each row
  kStruct,      // one dict for each row
  kText32,      // str or bytes between 32-bit offsets
  kText64,      // the same with 64-bit offsets
  kTextView,    // the same, each with a place of its own
  kNull,        // None in each row
  kDictionary,  // integers of the dtype, which count values of the only child
};

struct ArrowType {
  ArrowKind kind = ArrowKind::kNull;
  std::string path;                           // for messages: column 'a.b'
  pybind11::object dtype = pybind11::none();  // numpy.dtype of kPlain, kBits, kWidened, kDictionary
  std::int64_t size = 1;                      // values of the dtype, or of the only child, in a row
  bool has_axis = false;                      // kPlain: a row is an array of `size` values, not a number
  bool is_str = false;                        // kText*: str, else bytes
  pybind11::object shape = pybind11::none();  // kFixedList of a tensor: (-1, and its shape in memory), else None
  pybind11::object axes = pybind11::none();   // of a permuted tensor: its axes in the order of that shape, else None
  std::vector<pybind11::str> names;           // kStruct: of the children
  std::vector<ArrowType> children;

  // True if rows travel by reference. Then a null is a None.
  [[nodiscard]] bool by_reference() const noexcept;
  // Returns the size of a row; of one that travels by reference, a guess.
  [[nodiscard]] std::size_t row_bytes() const;
};

// Returns the type of a column. `path`: for messages, see there. Raises ConfigError if there is no leaf for it, or if two
// columns have the same name. Needs the GIL.
ArrowType type_of(const ArrowSchema& schema, std::string path);

}  // namespace pyecho::bindings
