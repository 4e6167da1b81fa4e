// Turns the configuration of a caller in C into that of the core, and trusts nothing in it.
#pragma once

#include "capi/buffer.hpp"

namespace pyecho::capi {

// Throws std::invalid_argument.
[[nodiscard]] Leaves checked_leaves(const pyecho_config& config);
// Leaves the limits of numbers to the core, which checks them before it allocates.
[[nodiscard]] EchoConfig core_config(const pyecho_config& config, const Leaves& leaves);

}  // namespace pyecho::capi
