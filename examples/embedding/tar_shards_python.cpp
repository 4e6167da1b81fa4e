// TarShards for Python: a native source, which pyecho.EchoLoader takes as it is.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "tar_shards.hpp"

namespace py = pybind11;

PYBIND11_MODULE(tar_shards, module) {
  py::class_<TarShards>(module, "TarShards", "Images and labels out of tar files, decoded by native threads.")
      .def(py::init<std::vector<std::string>, int, int, int>(), py::arg("paths"), py::kw_only(), py::arg("height"),
           py::arg("width"), py::arg("threads") = 2)
      .def("__pyecho_spec__",
           [](const TarShards& self) {
             const py::object field = py::module_::import("pyecho").attr("Field");
             py::dict spec;
             for (const pyecho::Leaf& leaf : self.leaves()) {
               spec[leaf.name.c_str()] = field(py::tuple(py::cast(leaf.shape)), leaf.dtype);
             }
             return spec;
           })
      .def("__pyecho_feed__", [](const TarShards& self, const py::capsule& capsule) {
        auto* const handle = static_cast<pyecho_buffer*>(PyCapsule_GetPointer(capsule.ptr(), PYECHO_CAPSULE_NAME));
        if (handle == nullptr) {
          throw py::error_already_set();
        }
        const py::gil_scoped_release no_gil;
        self.feed(pyecho::Buffer::borrowed(handle));
      });
}
