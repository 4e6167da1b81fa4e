#include "bindings/use_iterator.hpp"

#include "bindings/echo_queue.hpp"
#include "bindings/native_iterator.hpp"

namespace py = pybind11;

namespace pyecho::bindings {
namespace {

PyTypeObject* iterator_type = nullptr;

}  // namespace

py::object make_use_iterator(const py::object& queue, const py::object& owner) {
  return IteratorObject<EchoQueueObject>::make(iterator_type, queue, owner);
}

void register_use_iterator(py::module_& module) {
  iterator_type = IteratorObject<EchoQueueObject>::make_type("pyecho._core.UseIterator",
                                                             "Iterates the uses of items in an EchoQueue.");
  module.attr("UseIterator") = py::handle(reinterpret_cast<PyObject*>(iterator_type));
}

}  // namespace pyecho::bindings
