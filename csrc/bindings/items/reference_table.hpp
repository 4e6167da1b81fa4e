// Holds the leaves that travel by reference, in one entry for each item. The item's slot and its rows in batches
// contain the number of the entry.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <deque>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "core/plan/plan.hpp"

namespace pyecho::bindings {

// All calls need the GIL and the stage's Section.
class ReferenceTable {
 public:
  using Entry = std::uint32_t;

  // `adaptive`: an item may leave between two uses. So its entry is freed once its slot has another item and the
  // batches that may have been planned before are taken; otherwise it is freed after its last use.
  explicit ReferenceTable(bool adaptive) : adaptive_(adaptive) {}

  // Stores the reference leaves of an item that comes into a slot. Returns the number of the entry. `batches_ahead`: that
  // may have been planned before. Stores nothing if it throws.
  Entry put(pybind11::object references, std::uint32_t slot, std::uint64_t batches_ahead) {
    if (adaptive_) {
      retire(slot, batches_ahead);
    }
    if (free_.empty()) {
      free_.reserve(items_.size() + 1);  // so that release() never allocates
      items_.emplace_back();
      free_.push_back(static_cast<Entry>(items_.size() - 1));
    }
    const Entry entry = free_.back();
    free_.pop_back();
    items_[entry] = std::move(references);
    if (adaptive_) {
      entry_of_[slot] = entry;
    }
    return entry;
  }
  // Drops what was put last into a slot that is not committed.
  void drop(Entry entry) {
    if (!adaptive_ && contains(entry)) {  // with an adaptive factor the slot's next item retires it
      release(entry);
    }
  }
  // The consumer has had a batch of these entries and uses.
  void taken(std::span<const Entry> entries, std::span<const Use> uses) {
    ++taken_;
    while (!retired_.empty() && retired_.front().first < taken_) {
      const Entry entry = retired_.front().second;
      retired_.pop_front();  // first: the destructor of a reference may stop the stage, which clears the table
      release(entry);
    }
    for (std::size_t row = 0; !adaptive_ && row < entries.size(); ++row) {
      if (uses[row].last && contains(entries[row])) {
        release(entries[row]);
      }
    }
  }
  [[nodiscard]] const pybind11::object& at(Entry entry) const noexcept { return items_[entry]; }
  // False after clear().
  [[nodiscard]] bool contains(Entry entry) const noexcept { return entry < items_.size(); }
  // Drops all references. They are destroyed outside of the table, because destructors may run any code, including this
  // table's traverse().
  void clear() {
    retired_.clear();
    entry_of_.clear();
    free_.clear();
    const auto dying = std::exchange(items_, {});
  }
  [[nodiscard]] int traverse(visitproc visit, void* arg) const {
    for (const pybind11::object& references : items_) {
      Py_VISIT(references.ptr());
    }
    return 0;
  }

 private:
  static constexpr Entry kNone = std::numeric_limits<Entry>::max();

  // The slot gets another item.
  void retire(std::uint32_t slot, std::uint64_t batches_ahead) {
    if (slot >= entry_of_.size()) {
      entry_of_.resize(slot + std::size_t{1}, kNone);
    }
    if (entry_of_[slot] != kNone) {
      retired_.emplace_back(taken_ + batches_ahead, entry_of_[slot]);
      entry_of_[slot] = kNone;
    }
  }
  void release(Entry entry) {
    const pybind11::object dying = std::exchange(items_[entry], {});
    free_.push_back(entry);
  }

  const bool adaptive_;
  std::vector<pybind11::object> items_;
  std::vector<Entry> free_;
  std::vector<Entry> entry_of_;                          // by slot
  std::deque<std::pair<std::uint64_t, Entry>> retired_;  // with the number of batches to be taken before
  std::uint64_t taken_ = 0;                              // batches
};

}  // namespace pyecho::bindings
