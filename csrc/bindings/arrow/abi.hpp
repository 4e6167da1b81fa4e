// The structs of the Arrow C data interface and C stream interface. The Arrow format fixes their layout, so that
// libraries exchange columns in memory without sharing code: https://arrow.apache.org/docs/format/CDataInterface.html
//
// Each struct has a `release`, to be called once by its owner. Null: the struct was released, or moved elsewhere by
// copying its bytes and setting `release` of the original to null.
#pragma once

#include <cstdint>

namespace pyecho::bindings {

extern "C" {

// The type of a column.
struct ArrowSchema {
  const char* format;
  const char* name;
  const char* metadata;  // pairs of strings, see metadata_of() in type.cpp
  std::int64_t flags;
  std::int64_t n_children;
  ArrowSchema** children;
  ArrowSchema* dictionary;  // of a dictionary-encoded column: the type of its values
  void (*release)(ArrowSchema*);
  void* private_data;
};

// The values of a column.
struct ArrowArray {
  std::int64_t length;
  std::int64_t null_count;  // -1: not counted
  std::int64_t offset;      // values of the buffers before the first one of the array
  std::int64_t n_buffers;
  std::int64_t n_children;
  const void** buffers;
  ArrowArray** children;
  ArrowArray* dictionary;
  void (*release)(ArrowArray*);
  void* private_data;
};

// A producer of record batches. One thread at a time.
struct ArrowArrayStream {
  int (*get_schema)(ArrowArrayStream*, ArrowSchema* schema);
  int (*get_next)(ArrowArrayStream*, ArrowArray* array);  // sets array->release to null at the end
  const char* (*get_last_error)(ArrowArrayStream*);       // may return null
  void (*release)(ArrowArrayStream*);
  void* private_data;
};

}  // extern "C"

// Owns one of these structs, moved out of the memory of its producer.
template <class Struct>
class ArrowOwned {
 public:
  ArrowOwned() noexcept = default;
  explicit ArrowOwned(Struct& producers) noexcept { take(producers); }
  ~ArrowOwned() { reset(); }
  ArrowOwned(const ArrowOwned&) = delete;
  ArrowOwned& operator=(const ArrowOwned&) = delete;

  // Requires that it owns nothing.
  void take(Struct& producers) noexcept {
    held_ = producers;
    producers.release = nullptr;
  }
  // Releases what it owns. Runs code of the producer.
  void reset() noexcept {
    if (held_.release != nullptr) {
      held_.release(&held_);
      held_ = {};
    }
  }
  [[nodiscard]] Struct* get() noexcept { return &held_; }
  [[nodiscard]] const Struct& operator*() const noexcept { return held_; }
  [[nodiscard]] const Struct* operator->() const noexcept { return &held_; }
  // False if there is nothing to release.
  explicit operator bool() const noexcept { return held_.release != nullptr; }

 private:
  Struct held_{};
};

}  // namespace pyecho::bindings
