// Holds the leaves that travel by reference, in one entry for each item. The item's slot and its rows in batches contain
// the number of the entry.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace pyecho::bindings {

// All calls need the GIL and the stage's Section.
class ReferenceTable {
 public:
  using Entry = std::uint32_t;

  // Stores the reference leaves of an item. Returns the number of the entry.
  Entry put(pybind11::object references) {
    if (free_.empty()) {
      free_.reserve(items_.size() + 1);  // so that release() never allocates
      items_.push_back(std::move(references));
      return static_cast<Entry>(items_.size() - 1);
    }
    const Entry entry = free_.back();
    free_.pop_back();
    items_[entry] = std::move(references);
    return entry;
  }
  [[nodiscard]] const pybind11::object& at(Entry entry) const noexcept { return items_[entry]; }
  // Frees the entry, after the last use of the item was emitted.
  void release(Entry entry) {
    const pybind11::object dying = std::exchange(items_[entry], {});
    free_.push_back(entry);
  }
  // Drops all references. They are destroyed outside of the table, because destructors may run any code, including this
  // table's traverse().
  void clear() {
    const auto dying = std::exchange(items_, {});
    free_.clear();
  }
  [[nodiscard]] bool contains(Entry entry) const noexcept { return entry < items_.size(); }
  [[nodiscard]] int traverse(visitproc visit, void* arg) const {
    for (const pybind11::object& references : items_) {
      Py_VISIT(references.ptr());
    }
    return 0;
  }

 private:
  std::vector<pybind11::object> items_;
  std::vector<Entry> free_;
};

}  // namespace pyecho::bindings
