// The parts of pyecho._core, each bound in the file of its name. module.cpp calls these functions in this order.
#pragma once

#include <pybind11/pybind11.h>

namespace pyecho::bindings {

void register_errors(pybind11::module_& module);
void register_exit(pybind11::module_& module);
void register_sharing(pybind11::module_& module);
void register_slot_plan(pybind11::module_& module);
void register_checksums(pybind11::module_& module);
void register_iterator(pybind11::module_& module);
void register_stage();
void register_turns(pybind11::module_& module);
void register_reservation(pybind11::module_& module);
void register_slot_writer(pybind11::module_& module);
void register_example_stage(pybind11::module_& module);
void register_object_stage(pybind11::module_& module);
void register_trace(pybind11::module_& module);
void register_uploads(pybind11::module_& module);
void register_ops(pybind11::module_& module);
void register_torch_memory(pybind11::module_& module);

}  // namespace pyecho::bindings
