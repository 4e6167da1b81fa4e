// pyecho._core.Pace: the factor that an adaptive stage keeps, see core/stage/pace.hpp.
#include "core/stage/pace.hpp"

#include <pybind11/pybind11.h>

#include <memory>

#include "bindings/registration.hpp"

namespace py = pybind11;

namespace pyecho::bindings {

void register_pace(py::module_& module) {
  py::class_<Pace, std::shared_ptr<Pace>>(module, "Pace", "The factor that an adaptive stage keeps; 0: none.")
      .def(py::init<>())
      .def_property("value", &Pace::get, &Pace::set);
}

}  // namespace pyecho::bindings
