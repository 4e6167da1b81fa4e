#include "bindings/native_feed.hpp"

#include <chrono>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "bindings/echo_buffer.hpp"
#include "bindings/errors.hpp"
#include "bindings/gil.hpp"

namespace py = pybind11;

namespace pyecho::bindings {
namespace {

// A producer may wait with the GIL, which the consumer needs to make room.
bool wait_for_room(const std::function<Outcome(Deadline)>& attempt, Deadline deadline, Outcome& outcome) {
  if (PyGILState_Check() == 0) {
    outcome = attempt(deadline);
    return true;
  }
  try {
    outcome = wait_answering_signals(deadline, attempt, [] { return false; });
  } catch (py::error_already_set& error) {
    error.restore();  // for the function that called to return NULL
    return false;
  }
  return true;
}

py::object capsule_of(capi::Buffer* handle) {
  PyObject* const capsule =
      PyCapsule_New(static_cast<pyecho_buffer*>(handle), PYECHO_CAPSULE_NAME, [](PyObject* dying) {
        auto* const held = static_cast<pyecho_buffer*>(PyCapsule_GetPointer(dying, PYECHO_CAPSULE_NAME));
        held->api->release(held);
      });
  if (capsule == nullptr) {
    handle->release();
    throw py::error_already_set();
  }
  return py::reinterpret_steal<py::object>(capsule);
}

}  // namespace

capi::Leaves native_leaves(const Structure& structure) {
  capi::Leaves leaves;
  for (const LeafSpec& leaf : structure.leaves()) {
    if (leaf.by_reference) {
      raise(errors().config_error, leaf.path + " is " + leaf.described +
                                       " and travels as a reference to a Python object, which native producers "
                                       "cannot make; give it a dtype and a shape (pyecho.Field)");
    }
    const std::vector<std::int64_t> shape(leaf.shape.begin(), leaf.shape.end());
    const auto dtype = leaf.dtype.attr("str").cast<std::string>();
    leaves.push_back(std::make_unique<capi::Leaf>(leaf.path.c_str(), dtype.c_str(), shape, leaf.size_bytes));
  }
  return leaves;
}

py::object new_capsule(capi::Role role, const Structure& structure, const std::shared_ptr<EchoBuffer>& core) {
  return capsule_of(new capi::Buffer(role, native_leaves(structure), core, wait_for_room));
}

NativeFeed::NativeFeed(const Structure& structure, std::shared_ptr<EchoBuffer> core)
    : handle_(new capi::Buffer(capi::Role::kPass, native_leaves(structure), std::move(core), wait_for_room)),
      before_(handle_->core().stats().fresh) {}

NativeFeed::~NativeFeed() {
  handle_->close();
  handle_->release();
}

py::object NativeFeed::capsule() const {
  handle_->retain();
  return capsule_of(handle_);
}

std::uint64_t NativeFeed::source_ns() const {
  const auto elapsed = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - began_);
  const auto elapsed_ns = static_cast<std::uint64_t>(elapsed.count());
  return elapsed_ns - std::min(elapsed_ns, handle_->producer_wait_ns());
}

std::size_t NativeFeed::abort_open() { return handle_->abort_open(); }

// ---------------------------------------------------------------- EchoBufferObject

py::object EchoBufferObject::capsule() { return new_capsule(capi::Role::kProducer, structure_, core_); }

bool EchoBufferObject::put_pass(const py::object& pass) {
  const auto feed = std::make_shared<NativeFeed>(structure_, core_);
  if (const auto skipped = pass.attr("start").cast<std::uint64_t>(); skipped > 0) {
    core_->skip(skipped);
  }
  feed_ = feed;
  const auto end = [&] {
    feed_.reset();
    source_clock().worked(feed->source_ns(), feed->items());
    return feed->abort_open();
  };
  try {
    call_python([&] { return pass.attr(kFeed)(feed->capsule()); });
  } catch (...) {
    end();
    throw;
  }
  if (const std::size_t open = end(); open > 0 && !core_->stopped()) {
    raise(errors().echo_error,
          "__pyecho_feed__ returned while " + std::to_string(open) +
              " slots were reserved; commit or abort each, and join threads that fill slots, before "
              "it returns");
  }
  return feed->items() > 0;
}

py::object EchoBufferObject::take_native_failure() {
  const std::optional<std::string> message = core_->take_failure();
  return message ? py::reinterpret_borrow<py::object>(PyExc_RuntimeError)(*message) : py::none();
}

}  // namespace pyecho::bindings
