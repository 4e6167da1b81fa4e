#include "bindings/arrow/type.hpp"

#include <pybind11/numpy.h>

#include <array>
#include <charconv>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "bindings/errors.hpp"
#include "bindings/numpy_api.hpp"

namespace py = pybind11;

namespace pyecho::bindings {
namespace {

// Formats of one row of fixed size, and the dtypes of their leaves. The rest of a format of a timestamp is its time zone,
// which only says how to show it.
struct FixedFormat {
  std::string_view format;
  const char* dtype;
  ArrowKind kind = ArrowKind::kPlain;
};
constexpr auto kFixedFormats = std::to_array<FixedFormat>({
    {"c", "i1"},
    {"C", "u1"},
    {"s", "i2"},
    {"S", "u2"},
    {"i", "i4"},
    {"I", "u4"},
    {"l", "i8"},
    {"L", "u8"},
    {"e", "f2"},
    {"f", "f4"},
    {"g", "f8"},
    {"b", "?", ArrowKind::kBits},
    {"tdD", "M8[D]", ArrowKind::kWidened},
    {"tdm", "M8[ms]"},
    {"tts", "m8[s]", ArrowKind::kWidened},
    {"ttm", "m8[ms]", ArrowKind::kWidened},
    {"ttu", "m8[us]"},
    {"ttn", "m8[ns]"},
    {"tDs", "m8[s]"},
    {"tDm", "m8[ms]"},
    {"tDu", "m8[us]"},
    {"tDn", "m8[ns]"},
});
constexpr auto kTimestamps = std::to_array<FixedFormat>({
    {"tss:", "M8[s]"},
    {"tsm:", "M8[ms]"},
    {"tsu:", "M8[us]"},
    {"tsn:", "M8[ns]"},
});
constexpr auto kTextFormats = std::to_array<std::pair<std::string_view, ArrowKind>>({
    {"u", ArrowKind::kText32},
    {"z", ArrowKind::kText32},
    {"U", ArrowKind::kText64},
    {"Z", ArrowKind::kText64},
    {"vu", ArrowKind::kTextView},
    {"vz", ArrowKind::kTextView},
    {"n", ArrowKind::kNull},
});

// Beginnings of formats without a leaf of fixed size: what they are, and a remedy.
struct RefusedFormat {
  std::string_view begin;
  const char* what;
  const char* remedy;
};
constexpr const char* kPad = "pad it to a fixed-size list (in pyarrow, cast to pyarrow.list_(type, size)), or drop it";
constexpr const char* kFlatten = "make columns of what you need of it, or drop it";
constexpr auto kRefusedFormats = std::to_array<RefusedFormat>({
    {"+l", "lists of varying length", kPad},
    {"+L", "lists of varying length", kPad},
    {"+v", "lists of varying length", kPad},
    {"+m", "maps", kFlatten},
    {"+u", "values of several types (a union)", kFlatten},
    {"+r", "runs (run-end encoded)", "decode it (in pyarrow, pyarrow.compute.run_end_decode)"},
    {"d:", "decimal numbers, which NumPy does not have", "cast it to float64, or to an integer of the smallest unit"},
    {"ti", "calendar intervals, which NumPy does not have", "cast it to a duration, or to numbers"},
});

[[noreturn]] void refuse_column(const std::string& path, const std::string& why) {
  raise(errors().config_error, path + " " + why);
}

// Returns the size behind a colon ("+w:3").
std::int64_t size_in(std::string_view format, const std::string& path) {
  const std::string_view digits = format.substr(format.find(':') + 1);
  std::int64_t size = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), size);
  if (error != std::errc() || end != digits.data() + digits.size() || size < 0) {
    refuse_column(path, "has the Arrow format '" + std::string(format) + "', which cannot be");
  }
  return size;
}

std::int32_t int_at(const char*& place) {
  std::int32_t value = 0;
  std::memcpy(&value, place, sizeof(value));
  place += sizeof(value);
  return value;
}

// Returns an entry of the metadata: a count of pairs, then for each its key and its value, each behind its length.
std::optional<std::string_view> metadata_of(const ArrowSchema& schema, std::string_view wanted) {
  const char* place = schema.metadata;
  if (place == nullptr) {
    return std::nullopt;
  }
  for (std::int32_t pairs = int_at(place); pairs > 0; --pairs) {
    std::array<std::string_view, 2> pair;
    for (std::string_view& text : pair) {
      const std::int32_t size = int_at(place);
      text = {place, static_cast<std::size_t>(size)};
      place += size;
    }
    if (pair[0] == wanted) {
      return pair[1];
    }
  }
  return std::nullopt;
}

// Gives a list of the extension type arrow.fixed_shape_tensor its shape.
void shape_tensor(const ArrowSchema& schema, ArrowType& type) {
  if (metadata_of(schema, "ARROW:extension:name") != "arrow.fixed_shape_tensor" || type.kind != ArrowKind::kFixedList) {
    return;
  }
  const std::string text(metadata_of(schema, "ARROW:extension:metadata").value_or(""));
  try {
    const py::dict found = py::module_::import("json").attr("loads")(text);
    py::list shape;
    py::list axes;
    std::int64_t values = 1;
    shape.append(-1);
    axes.append(0);
    for (const py::handle extent : found["shape"]) {
      shape.append(extent);
      if (__builtin_mul_overflow(values, extent.cast<std::int64_t>(), &values)) {
        values = -1;
      }
    }
    if (values != type.size) {
      refuse_column(type.path, "has tensors of shape " + std::string(py::str(found["shape"])) + " in lists of " +
                                   std::to_string(type.size) + " values, which cannot be");
    }
    type.shape = py::tuple(shape);
    if (found.contains("permutation") && !found["permutation"].is_none()) {
      for (const py::handle axis : found["permutation"]) {
        axes.append(axis.cast<std::int64_t>() + 1);
      }
      type.axes = py::tuple(axes);
    }
  } catch (const py::error_already_set& error) {
    if (error.matches(errors().config_error)) {
      throw;
    }
    refuse_column(type.path, "is an arrow.fixed_shape_tensor with metadata that cannot be read: " + text);
  } catch (const py::cast_error&) {
    refuse_column(type.path, "is an arrow.fixed_shape_tensor with metadata that cannot be read: " + text);
  }
}

const ArrowSchema& child_of(const ArrowSchema& schema, std::int64_t index, const std::string& path) {
  if (index >= schema.n_children || schema.children == nullptr || schema.children[index] == nullptr) {
    refuse_column(path, "has an Arrow schema that lacks a child");
  }
  return *schema.children[index];
}

void add_columns(const ArrowSchema& schema, ArrowType& type) {
  for (std::int64_t index = 0; index < schema.n_children; ++index) {
    const ArrowSchema& child = child_of(schema, index, type.path);
    const char* const name = child.name == nullptr ? "" : child.name;
    for (const py::str& other : type.names) {
      if (std::string(other) == name) {
        refuse_column(type.path, "has two columns named '" + std::string(name) + "'; rename one of them");
      }
    }
    type.names.emplace_back(name);
    // The root has no name: its columns are column 'a', and theirs column 'a.b'.
    const bool nested = type.path.ends_with('\'');
    type.children.push_back(
        type_of(child, (nested ? type.path.substr(0, type.path.size() - 1) + "." : "column '") + name + "'"));
  }
}

bool find_fixed(std::string_view format, ArrowType& type) {
  for (const FixedFormat& known : kFixedFormats) {
    if (format == known.format) {
      type.kind = known.kind;
      type.dtype = py::dtype(known.dtype);
      return true;
    }
  }
  for (const FixedFormat& known : kTimestamps) {
    if (format.starts_with(known.format)) {
      type.kind = known.kind;
      type.dtype = py::dtype(known.dtype);
      return true;
    }
  }
  if (format.starts_with("w:")) {  // as uint8: a dtype of bytes would lose zeros at the end
    type.kind = ArrowKind::kPlain;
    type.dtype = py::dtype("u1");
    type.size = size_in(format, type.path);
    type.has_axis = true;
    return true;
  }
  return false;
}

bool find_text(std::string_view format, ArrowType& type) {
  for (const auto& [known, kind] : kTextFormats) {
    if (format == known) {
      type.kind = kind;
      type.is_str = format.ends_with('u') || format.ends_with('U');
      return true;
    }
  }
  return false;
}

}  // namespace

bool ArrowType::by_reference() const noexcept {
  switch (kind) {
    case ArrowKind::kText32:
    case ArrowKind::kText64:
    case ArrowKind::kTextView:
    case ArrowKind::kNull:
      return true;
    case ArrowKind::kDictionary:
      return children[0].by_reference();
    default:
      return false;
  }
}

std::size_t ArrowType::row_bytes() const {
  constexpr std::size_t kObjectBytes = 64;
  switch (kind) {
    case ArrowKind::kPlain:
    case ArrowKind::kBits:
    case ArrowKind::kWidened:
      return static_cast<std::size_t>(size) * static_cast<std::size_t>(PyDataType_ELSIZE(as_descr(dtype)));
    case ArrowKind::kFixedList:
      return static_cast<std::size_t>(size) * children[0].row_bytes();
    case ArrowKind::kDictionary:
      return children[0].row_bytes();
    case ArrowKind::kStruct: {
      std::size_t total = 0;
      for (const ArrowType& child : children) {
        total += child.row_bytes();
      }
      return total;
    }
    default:
      return kObjectBytes;
  }
}

ArrowType type_of(const ArrowSchema& schema, std::string path) {
  ArrowType type;
  type.path = std::move(path);
  const std::string_view format = schema.format == nullptr ? "" : schema.format;
  if (schema.dictionary != nullptr) {
    const bool known = find_fixed(format, type) && type.kind == ArrowKind::kPlain && !type.has_axis;
    if (!known || !PyTypeNum_ISINTEGER(as_descr(type.dtype)->type_num)) {
      refuse_column(type.path, "is dictionary-encoded with indices of the Arrow format '" + std::string(format) + "'");
    }
    type.kind = ArrowKind::kDictionary;
    type.children.push_back(type_of(*schema.dictionary, type.path));
    if (type.children[0].kind == ArrowKind::kStruct || type.children[0].kind == ArrowKind::kDictionary) {
      refuse_column(type.path, "is dictionary-encoded with nested values; decode it in the source");
    }
    return type;
  }
  if (find_fixed(format, type) || find_text(format, type)) {
    return type;
  }
  if (format == "+s") {
    type.kind = ArrowKind::kStruct;
    add_columns(schema, type);
    return type;
  }
  if (format.starts_with("+w:")) {
    type.kind = ArrowKind::kFixedList;
    type.size = size_in(format, type.path);
    type.children.push_back(type_of(child_of(schema, 0, type.path), type.path));
    if (type.children[0].by_reference() || type.children[0].kind == ArrowKind::kStruct) {
      refuse_column(type.path, "has fixed-size lists of something else than numbers; make columns of their parts");
    }
    shape_tensor(schema, type);
    return type;
  }
  for (const RefusedFormat& refused : kRefusedFormats) {
    if (format.starts_with(refused.begin)) {
      refuse_column(type.path, std::string("has ") + refused.what + "; " + refused.remedy);
    }
  }
  refuse_column(type.path, "has the Arrow format '" + std::string(format) +
                               "', which pyecho does not know; cast it to another type in the source");
}

}  // namespace pyecho::bindings
