#include "bindings/batch_iterator.hpp"

#include "bindings/echo_buffer.hpp"
#include "bindings/native_iterator.hpp"

namespace py = pybind11;

namespace pyecho::bindings {
namespace {

PyTypeObject* iterator_type = nullptr;

}  // namespace

py::object make_batch_iterator(const py::object& buffer, const py::object& owner) {
  return IteratorObject<EchoBufferObject>::make(iterator_type, buffer, owner);
}

void register_batch_iterator(py::module_& module) {
  iterator_type = IteratorObject<EchoBufferObject>::make_type("pyecho._core.BatchIterator",
                                                              "Iterates the batches of an EchoBuffer.");
  module.attr("BatchIterator") = py::handle(reinterpret_cast<PyObject*>(iterator_type));
}

}  // namespace pyecho::bindings
