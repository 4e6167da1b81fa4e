// The leaves that travel by reference: kept here, by item, until the item's last use has been handed out.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <unordered_map>
#include <utility>

#include "bindings/errors.hpp"
#include "core/plan/planner.hpp"

namespace pyecho::bindings {

// All calls with the GIL. Batches must be taken in the order in which they were planned.
class ReferenceTable {
 public:
  explicit ReferenceTable(const EchoFactor& factor) : factor_(factor) {}

  // Before the item's slot is committed.
  void put(std::uint64_t source_index, pybind11::tuple references) {
    items_.emplace(source_index, Item{std::move(references), factor_.uses_of(source_index)});
  }
  // One use of the item. Raises Closed if clear() came first.
  pybind11::tuple take(std::uint64_t source_index) {
    const auto item = items_.find(source_index);
    if (item == items_.end()) {
      raise_outcome(Outcome::kClosed, "EchoBuffer");
    }
    pybind11::tuple references = item->second.references;
    if (--item->second.uses_left == 0) {
      items_.erase(item);
    }
    return references;
  }
  // References die outside of the table: their destructors may run anything, also this table's traverse().
  void clear() { const auto dying = std::exchange(items_, {}); }
  [[nodiscard]] int traverse(visitproc visit, void* arg) const {
    for (const auto& [index, item] : items_) {
      Py_VISIT(item.references.ptr());
    }
    return 0;
  }

 private:
  struct Item {
    pybind11::tuple references;
    std::uint32_t uses_left;
  };

  EchoFactor factor_;
  std::unordered_map<std::uint64_t, Item> items_;
};

}  // namespace pyecho::bindings
