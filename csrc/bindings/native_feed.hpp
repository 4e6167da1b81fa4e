// Native producers of a buffer that Python consumes: capsules around handles of the C interface.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>

#include "bindings/structure.hpp"
#include "capi/buffer.hpp"
#include "core/stage/echo_buffer.hpp"
#include "core/sync/outcome.hpp"

namespace pyecho::bindings {

// Returns the handle in a capsule.
[[nodiscard]] capi::Buffer& handle_of(const pybind11::object& capsule);

// One pass of a source that fills the slots itself. Needs the GIL.
class NativeFeed {
 public:
  // Raises ConfigError if some leaves travel by reference.
  NativeFeed(const Structure& structure, std::shared_ptr<EchoBuffer> core);
  // Ends the pass: later reservations return PYECHO_CLOSED.
  ~NativeFeed();
  NativeFeed(const NativeFeed&) = delete;
  NativeFeed& operator=(const NativeFeed&) = delete;

  // Returns a capsule around the handle of this pass.
  [[nodiscard]] pybind11::object capsule() const;
  // Returns the time since the beginning, without that in which producers waited for room.
  [[nodiscard]] std::uint64_t source_ns() const;
  // Returns the number of items committed since the beginning, dropped ones included; exact while no thread commits.
  [[nodiscard]] std::uint64_t items() const { return handle_->core().accepted() - before_; }
  [[nodiscard]] capi::Buffer& handle() const noexcept { return *handle_; }

 private:
  capi::Buffer* const handle_;
  const Clock::time_point began_ = Clock::now();
  const std::uint64_t before_;  // items committed earlier
};

}  // namespace pyecho::bindings
