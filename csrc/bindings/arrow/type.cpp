#include "bindings/arrow/type.hpp"

#include <pybind11/stl.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "bindings/errors.hpp"

namespace py = pybind11;

namespace pyecho::bindings {
namespace {

// In the order of ArrowKind.
constexpr auto kKindNames = std::to_array<std::string_view>(
    {"plain", "bits", "list", "struct", "text32", "text64", "view", "null", "dictionary", "varying32", "varying64"});

constexpr int kMaxLevels = 64;  // as in Arrow's own files; walks over a type use the stack

std::int32_t size_at(const char*& place) {
  std::int32_t size = 0;
  std::memcpy(&size, place, sizeof(size));
  place += sizeof(size);
  if (size < 0) {
    raise(errors().config_error, "the Arrow schema of the source has damaged metadata: a size in them is negative");
  }
  return size;
}

// Metadata are a count of pairs, then for each its key and its value, each after its length.
py::dict metadata_of(const char* place) {
  py::dict pairs;
  for (std::int32_t left = place == nullptr ? 0 : size_at(place); left > 0; --left) {
    std::array<py::bytes, 2> pair;
    for (py::bytes& text : pair) {
      const std::int32_t size = size_at(place);
      text = py::bytes(place, size);
      place += size;
    }
    pairs[pair[0]] = pair[1];
  }
  return pairs;
}

py::object described(const ArrowSchema* schema, int levels) {
  if (schema == nullptr) {
    return py::none();
  }
  if (levels == 0) {
    raise(errors().config_error, "the Arrow schema of the source is nested more than " + std::to_string(kMaxLevels) +
                                     " levels deep; make columns of its parts");
  }
  py::list children;
  for (std::int64_t index = 0; index < schema->n_children; ++index) {
    children.append(described(schema->children == nullptr ? nullptr : schema->children[index], levels - 1));
  }
  return py::make_tuple(readable(schema->format), readable(schema->name), metadata_of(schema->metadata),
                        py::tuple(children), described(schema->dictionary, levels - 1));
}

}  // namespace

ArrowType::ArrowType(const py::object& column)
    : kind(static_cast<ArrowKind>(std::ranges::find(kKindNames, column.attr("kind").cast<std::string>()) -
                                  kKindNames.begin())),
      path(column.attr("path").cast<std::string>()),
      dtype(column.attr("dtype")),
      cast(column.attr("cast")),
      size(column.attr("size").cast<std::int64_t>()),
      shape(column.attr("shape").cast<std::vector<npy_intp>>()),
      axes(column.attr("axes")),
      is_str(column.attr("is_str").cast<bool>()),
      by_reference(column.attr("by_reference").cast<bool>()),
      names(column.attr("names").cast<std::vector<py::str>>()) {
  for (const py::handle child : column.attr("children")) {
    children.emplace_back(py::reinterpret_borrow<py::object>(child));
  }
}

py::str readable(const char* text) {
  return owned<py::str>(
      PyUnicode_DecodeUTF8(text, text == nullptr ? 0 : static_cast<Py_ssize_t>(std::strlen(text)), "backslashreplace"));
}

py::tuple described(const ArrowSchema& schema) { return described(&schema, kMaxLevels); }

}  // namespace pyecho::bindings
