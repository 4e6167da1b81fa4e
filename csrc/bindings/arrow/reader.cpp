// pyecho._core.ArrowReader: reads a source with the Arrow PyCapsule interface, batch by batch.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>

#include "bindings/arrow/batch.hpp"
#include "bindings/arrow/type.hpp"
#include "bindings/errors.hpp"
#include "bindings/gil.hpp"
#include "bindings/registration.hpp"
#include "core/sync/atomic.hpp"

namespace py = pybind11;

namespace pyecho::bindings {
namespace {

// Rows of a chunk, at most: their objects should stay in the caches until they are in slots.
constexpr std::size_t kMaxChunkRows = 4096;

// Returns the struct in a capsule, which `method` of the source has returned.
template <class Struct>
Struct& struct_in(const py::object& capsule, const char* name, const char* method) {
  if (PyCapsule_IsValid(capsule.ptr(), name) == 0) {
    raise(PyExc_TypeError, std::string(method) + "() must return a PyCapsule named '" + name + "', got " +
                               std::string(py::repr(capsule)));
  }
  auto& found = *static_cast<Struct*>(PyCapsule_GetPointer(capsule.ptr(), name));
  if (found.release == nullptr) {
    raise(errors().echo_error, std::string("what ") + method +
                                   "() has returned was taken before; for several epochs pass a table, or another "
                                   "object that makes a new stream each time");
  }
  return found;
}

// An iterator of a stream, or of a single array. Any thread with the GIL, one at a time. Calls the producer without the
// GIL, because it may wait for threads that need it. Releases the stream at its end, at the first error, or with this
// object.
class ArrowReader {
 public:
  // `exported`: what __arrow_c_stream__() or __arrow_c_array__() has returned. `describe`: arrow_types.column_of().
  // `chunk_bytes`: yield about so many bytes at a time; none: whole record batches. Raises what `describe` raises, and
  // the errors of next().
  ArrowReader(const py::object& exported, const py::object& describe, std::optional<std::size_t> chunk_bytes) {
    ArrowOwned<ArrowSchema> schema;
    ArrowOwned<ArrowArray> array;
    if (py::isinstance<py::tuple>(exported) && py::len(exported) == 2) {
      constexpr const char* kMethod = "__arrow_c_array__";
      const auto pair = py::tuple(exported);
      schema.take(struct_in<ArrowSchema>(pair[0], "arrow_schema", kMethod));
      array.take(struct_in<ArrowArray>(pair[1], "arrow_array", kMethod));
    } else {
      stream_.take(struct_in<ArrowArrayStream>(exported, "arrow_array_stream", "__arrow_c_stream__"));
      call_producer([&](ArrowArrayStream* stream) { return stream->get_schema(stream, schema.get()); });
      if (!schema) {
        raise(errors().echo_error, "the producer of the Arrow stream has sent a released schema");
      }
    }
    const py::object column = call_python([&, tuples = described(*schema)] { return describe(tuples); });
    type_.emplace(column);
    if (array) {
      batch_ = std::make_unique<ArrowBatch>(*type_, *array.get());
    }
    if (chunk_bytes) {
      const std::size_t rows = *chunk_bytes / std::max<std::size_t>(1, column.attr("row_bytes").cast<std::size_t>());
      chunk_rows_ = static_cast<std::int64_t>(std::clamp<std::size_t>(rows, 1, kMaxChunkRows));
    }
  }
  ~ArrowReader() {
    const py::error_scope kept;
    close();
  }
  ArrowReader(const ArrowReader&) = delete;
  ArrowReader& operator=(const ArrowReader&) = delete;

  // Returns the next chunk, which is never empty. Raises StopIteration; ConfigError once the next row has a null that
  // no array can hold; OSError if the producer fails; EchoError if what it sends cannot be.
  py::object next() {
    return in_turn([&] {
      if (!load()) {
        throw py::stop_iteration();
      }
      if (good_ < 0) {
        good_ = batch_->first_null(begin_, null_column_);
      }
      const std::int64_t count = std::min(chunk_rows_.value_or(batch_->rows()), good_ - begin_);
      if (count == 0 || (!chunk_rows_ && good_ < batch_->rows())) {
        raise(errors().config_error, null_column_->path + " is null in row " + std::to_string(rows_before_ + good_) +
                                         ", and an array cannot say so; fill it (fill_null) or drop the row in the "
                                         "source");
      }
      py::object rows = batch_->read(begin_, count);
      begin_ += count;
      return rows;
    });
  }

  // Returns the address of the next values; none if there are none.
  std::optional<std::uintptr_t> address() {
    const void* const first = in_turn([&] { return load() ? batch_->first_buffer() : nullptr; });
    return first == nullptr ? std::nullopt : std::optional(reinterpret_cast<std::uintptr_t>(first));
  }

  // Leaves out so many rows of those that follow. Returns how many there were.
  std::int64_t skip(std::int64_t rows) {
    return in_turn([&] {
      std::int64_t skipped = 0;
      while (skipped < rows && load()) {
        const std::int64_t count = std::min(rows - skipped, batch_->rows() - begin_);
        begin_ += count;
        skipped += count;
        good_ = -1;
      }
      return skipped;
    });
  }

 private:
  // Returns what `call` returns. Refuses a second thread while one is in the producer. After an error nothing is read
  // any more, so the stream is released.
  template <class Call>
  std::invoke_result_t<const Call&> in_turn(const Call& call) {
    if (busy_.exchange_acq_rel(true)) {
      raise(errors().echo_error, "another thread is reading this Arrow stream");
    }
    try {
      auto result = call();
      busy_.store_release(false);
      return result;
    } catch (...) {
      close();
      busy_.store_release(false);
      throw;
    }
  }

  // Has a batch with rows left. False at the end.
  bool load() {
    while (!batch_ || begin_ == batch_->rows()) {
      rows_before_ += batch_ ? batch_->rows() : 0;
      batch_.reset();
      if (!stream_) {
        return false;
      }
      ArrowArray array{};
      call_producer([&](ArrowArrayStream* stream) { return stream->get_next(stream, &array); });
      if (array.release == nullptr) {
        close();
        return false;
      }
      batch_ = std::make_unique<ArrowBatch>(*type_, array);
      begin_ = 0;
      good_ = -1;
    }
    return true;
  }

  template <class Call>
  void call_producer(const Call& call) {
    const int code = without_gil(true, [&] { return call(stream_.get()); });
    if (code == 0) {
      return;
    }
    const char* const last = stream_->get_last_error == nullptr ? nullptr : stream_->get_last_error(stream_.get());
    const py::str message = readable(last == nullptr ? "the producer of the Arrow stream gave no reason" : last);
    PyErr_SetObject(PyExc_OSError, py::make_tuple(code, message).ptr());
    throw py::error_already_set();
  }

  void close() {
    if (stream_) {
      without_gil(true, [&] {
        stream_.reset();
        return true;
      });
    }
  }

  ArrowOwned<ArrowArrayStream> stream_;
  std::optional<ArrowType> type_;
  std::optional<std::int64_t> chunk_rows_;  // none: whole batches
  std::unique_ptr<ArrowBatch> batch_;
  std::int64_t begin_ = 0;        // the next row of the batch
  std::int64_t good_ = -1;        // the first one from there with a null, or the number of rows; -1: not known
  std::int64_t rows_before_ = 0;  // of earlier batches
  const ArrowType* null_column_ = nullptr;
  Atomic<bool> busy_;
};

}  // namespace

void register_arrow(py::module_& module) {
  py::class_<ArrowReader>(module, "ArrowReader", "Reads an Arrow stream or array, as NumPy arrays on its memory.")
      .def(py::init<const py::object&, const py::object&, std::optional<std::size_t>>(), py::arg("exported"),
           py::arg("describe"), py::kw_only(), py::arg("chunk_bytes") = py::none())
      .def("__iter__", [](py::object self) { return self; })
      .def("__next__", &ArrowReader::next)
      .def("address", &ArrowReader::address, "address()\n\nReturn where the next values lie, or None.")
      .def("skip", &ArrowReader::skip, py::arg("rows"), "skip(rows)\n\nLeave out rows; return how many there were.");
}

}  // namespace pyecho::bindings
