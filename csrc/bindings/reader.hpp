// Reads a source: its passes, and the items of each pass.
#pragma once

#include <pybind11/pybind11.h>

#include <utility>

#include "bindings/errors.hpp"
#include "bindings/gil.hpp"
#include "core/stage/source_clock.hpp"
#include "core/trace/recorder.hpp"

namespace pyecho::bindings {

// The method of a native source, and of a pass over one (pyecho/source/native.py).
inline constexpr const char* kFeed = "__pyecho_feed__";

// Needs the GIL. One thread at a time.
class Reader {
 public:
  // `passes`: an iterator of passes, each an iterator of items or native (it has kFeed). `at_empty`: see Stage::read().
  // `clock` outlives the reader.
  Reader(pybind11::object passes, pybind11::object at_empty, SourceClock& clock)
      : passes_(std::move(passes)), at_empty_(std::move(at_empty)), clock_(clock) {
    clock_.begin();
  }

  enum class Read : unsigned char { kItem, kNative, kPassEnd, kEnd };
  // kItem: `item` is the next item. kNative: it is a whole pass, for Stage::put_pass(). kPassEnd: the pass is over, and
  // another one follows. kEnd: the source is over. Raises any exception of the source.
  Read next(pybind11::object& item) {
    if (!items_ && !is_over_ && !next_pass()) {
      return Read::kEnd;
    }
    if (is_over_) {  // Ctrl-C has cut short the opening of the next pass
      return end_pass();
    }
    if (native_ == Native::kDue) {
      native_ = Native::kDone;
      item = items_;
      return Read::kNative;
    }
    if (native_ == Native::kNo && advance(items_, item, true)) {
      empty_ = false;
      return Read::kItem;
    }
    items_ = pybind11::object();
    if (std::exchange(empty_, true) && !at_empty_.is_none()) {
      if (PyExceptionInstance_Check(at_empty_.ptr()) != 0) {
        raise_object(at_empty_);
      }
      return Read::kEnd;
    }
    is_over_ = true;
    return end_pass();
  }

  // A native pass had items.
  void found_items() noexcept { empty_ = false; }

  int traverse(visitproc visit, void* arg) const {
    Py_VISIT(passes_.ptr());
    Py_VISIT(items_.ptr());
    Py_VISIT(at_empty_.ptr());
    return 0;
  }

 private:
  enum class Native : unsigned char { kNo, kDue, kDone };

  Read end_pass() {
    const bool follows = next_pass();
    is_over_ = false;
    return follows ? Read::kPassEnd : Read::kEnd;
  }

  bool next_pass() {
    const bool found = advance(passes_, items_, false);
    native_ = found && pybind11::hasattr(items_, kFeed) ? Native::kDue : Native::kNo;
    return found;
  }

  bool advance(const pybind11::object& iterator, pybind11::object& next, bool item) {
    const Clock::time_point begin = Clock::now();
    next = pybind11::reinterpret_steal<pybind11::object>(call_python([&] { return PyIter_Next(iterator.ptr()); }));
    const Clock::time_point end = Clock::now();
    clock_.read(begin, end, item && next);
    if (trace::recording()) {
      trace::record(trace::Kind::kSource, trace::to_ns(begin), trace::to_ns(end), 0);
    }
    throw_if(!next && PyErr_Occurred() != nullptr);
    return static_cast<bool>(next);
  }

  pybind11::object passes_;
  pybind11::object items_;  // null between passes
  const pybind11::object at_empty_;
  Native native_ = Native::kNo;
  bool is_over_ = false;  // the pass is over, and the next one is not open
  bool empty_ = false;    // this pass has had no item; not told of the first one
  SourceClock& clock_;
};

}  // namespace pyecho::bindings
