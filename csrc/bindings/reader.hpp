// Reads a source: its passes, and the items of each pass.
#pragma once

#include <pybind11/pybind11.h>

#include <chrono>
#include <cstdint>
#include <utility>

#include "bindings/waiting.hpp"
#include "core/sync/atomic.hpp"

namespace pyecho::bindings {

// Needs the GIL. One thread at a time.
class Reader {
 public:
  // `passes`: an iterator of iterators, one for each pass. The time spent in them is added to `source_ns`, which outlives
  // the reader.
  Reader(pybind11::object passes, Atomic<std::uint64_t>& source_ns)
      : passes_(std::move(passes)), source_ns_(source_ns) {}

  enum class Read : unsigned char { kItem, kPassEnd, kEnd };
  // kItem: `item` is the next item. kPassEnd: the pass is over, and another one follows. kEnd: the source is over. Raises
  // any exception of the source.
  Read next(pybind11::object& item) {
    if (!items_ && !advance(passes_, items_)) {
      return Read::kEnd;
    }
    if (advance(items_, item)) {
      return Read::kItem;
    }
    items_ = pybind11::object();
    return advance(passes_, items_) ? Read::kPassEnd : Read::kEnd;
  }

  int traverse(visitproc visit, void* arg) const {
    Py_VISIT(passes_.ptr());
    Py_VISIT(items_.ptr());
    return 0;
  }

 private:
  bool advance(const pybind11::object& iterator, pybind11::object& next) {
    const auto begin = std::chrono::steady_clock::now();
    next = pybind11::reinterpret_steal<pybind11::object>(call_python([&] { return PyIter_Next(iterator.ptr()); }));
    const auto spent = std::chrono::steady_clock::now() - begin;
    source_ns_.store_relaxed(
        source_ns_.load_relaxed() +
        static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(spent).count()));
    if (!next && PyErr_Occurred() != nullptr) {
      throw pybind11::error_already_set();
    }
    return static_cast<bool>(next);
  }

  pybind11::object passes_;
  pybind11::object items_;  // null between passes
  Atomic<std::uint64_t>& source_ns_;
};

}  // namespace pyecho::bindings
