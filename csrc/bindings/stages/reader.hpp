// Reads a source: its passes, and the items of each pass. Holds what was read until the stage has put it.
#pragma once

#include <pybind11/pybind11.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>

#include "bindings/errors.hpp"
#include "bindings/gil.hpp"
#include "core/stage/clocks.hpp"
#include "core/trace/recorder.hpp"

namespace pyecho::bindings {

// The method of a native source, and of a pass over one (pyecho/source/native.py).
inline constexpr const char* kFeed = "__pyecho_feed__";
// The method of a pass whose items workers put into slots (pyecho/workers/passes.py).
inline constexpr const char* kFill = "__pyecho_fill__";

// Needs the GIL. One thread at a time.
class Reader {
 public:
  // See Stage::read(). `clock` outlives the reader.
  Reader(pybind11::object passes, std::deque<pybind11::object> first, std::size_t row, pybind11::object at_empty,
         SourceClock& clock)
      : passes_(std::move(passes)), read_(std::move(first)), row_(row), at_empty_(std::move(at_empty)), clock_(clock) {
    clock_.begin();
  }

  enum class Next : unsigned char { kItem, kNative, kPassEnd, kEnd };
  // kItem: item() is next, from row() on. kNative: pass() is next, a whole pass. kPassEnd: the pass is over, and
  // another one follows. kEnd: the source is over. An item or the end of a pass stays next until done(): Ctrl-C may cut
  // short what is done with it. Raises any exception of the source.
  Next next() {
    if (at_pass_end_) {
      return Next::kPassEnd;
    }
    if (!read_.empty()) {
      return Next::kItem;
    }
    if (at_ == At::kNoPass && !open_pass()) {
      return Next::kEnd;
    }
    if (at_ == At::kNativePass) {
      at_ = At::kPassPut;
      return Next::kNative;
    }
    if (at_ == At::kItems) {
      if (pybind11::object item = advance(pass_, true)) {
        read_.push_back(std::move(item));
        empty_ = false;
        return Next::kItem;
      }
    }
    if (at_ != At::kPassOver && !end_pass()) {
      return Next::kEnd;
    }
    at_pass_end_ = open_pass();
    return at_pass_end_ ? Next::kPassEnd : Next::kEnd;
  }
  // The stage has put the item or marked the end of the pass that was next.
  void done() {
    is_held_ = at_pass_end_ = false;
    if (!read_.empty()) {
      ++count_;
      row_ = 0;
      const pybind11::object dying = std::move(read_.front());
      read_.pop_front();
    }
  }
  // A native pass was put. Nothing: it goes on later.
  void put(std::optional<bool> had_items) noexcept {
    empty_ = empty_ && !had_items.value_or(false);
    at_ = had_items ? At::kPassPut : At::kNativePass;
  }

  [[nodiscard]] const pybind11::object& item() const { return read_.front(); }
  // Returns the number of items that are done.
  [[nodiscard]] std::uint64_t count() const noexcept { return count_; }
  [[nodiscard]] const pybind11::object& pass() const noexcept { return pass_; }
  [[nodiscard]] std::size_t& row() noexcept { return row_; }
  // True if the stage holds the item.
  [[nodiscard]] bool& is_held() noexcept { return is_held_; }
  // All items that were read and are not done.
  [[nodiscard]] const std::deque<pybind11::object>& items() const noexcept { return read_; }
  [[nodiscard]] bool at_pass_end() const noexcept { return at_pass_end_; }

  int traverse(visitproc visit, void* arg) const {
    for (const pybind11::object& item : read_) {
      Py_VISIT(item.ptr());
    }
    Py_VISIT(passes_.ptr());
    Py_VISIT(pass_.ptr());
    Py_VISIT(at_empty_.ptr());
    return 0;
  }

 private:
  enum class At : unsigned char {
    kNoPass,      // none is open
    kItems,       // pass_ yields items
    kNativePass,  // pass_ puts its items itself
    kPassPut,     // and has done so
    kPassOver     // Ctrl-C may have cut short the opening of the next one
  };

  // Opens the next pass. Returns false if there is none.
  bool open_pass() {
    pass_ = advance(passes_, false);
    const bool native = pass_ && (pybind11::hasattr(pass_, kFeed) || pybind11::hasattr(pass_, kFill));
    at_ = native ? At::kNativePass : pass_ ? At::kItems : At::kNoPass;
    return at_ != At::kNoPass;
  }
  // Returns false if the source ends here, because the pass was empty.
  bool end_pass() {
    pass_ = pybind11::object();
    at_ = At::kNoPass;
    if (std::exchange(empty_, true) && !at_empty_.is_none()) {
      if (PyExceptionInstance_Check(at_empty_.ptr()) != 0) {
        raise_object(at_empty_);
      }
      return false;
    }
    at_ = At::kPassOver;
    return true;
  }

  // Returns what the iterator yields next; null at its end.
  pybind11::object advance(const pybind11::object& iterator, bool item) {
    const Clock::time_point begin = Clock::now();
    auto next = pybind11::reinterpret_steal<pybind11::object>(call_python([&] { return PyIter_Next(iterator.ptr()); }));
    const Clock::time_point end = Clock::now();
    clock_.read(begin, end, item && next);
    if (trace::recording()) {
      trace::record(trace::Kind::kSource, trace::to_ns(begin), trace::to_ns(end), 0);
    }
    throw_if(!next && PyErr_Occurred() != nullptr);
    return next;
  }

  pybind11::object passes_;
  pybind11::object pass_;  // null if none is open
  At at_ = At::kNoPass;
  bool at_pass_end_ = false;           // the end of the pass before pass_ is not done
  bool empty_ = false;                 // the pass has had no item; not told of the first one
  std::deque<pybind11::object> read_;  // items that were read and are not done
  std::size_t row_;                    // the next one of the first of them
  bool is_held_ = false;
  std::uint64_t count_ = 0;
  const pybind11::object at_empty_;
  SourceClock& clock_;
};

}  // namespace pyecho::bindings
