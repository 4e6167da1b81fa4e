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
  // Returns the number of items committed since the beginning.
  [[nodiscard]] std::uint64_t items() const { return handle_->core().stats().fresh - before_; }
  // Returns the number of items committed since the beginning, those that were dropped included. Nobody may be committing.
  [[nodiscard]] std::uint64_t accepted() const { return handle_->core().accepted() - accepted_before_; }
  // Ends the pass, as the destructor does.
  void close() { handle_->close(); }
  // Returns how many threads wait for a slot.
  [[nodiscard]] std::uint32_t waiting() const { return handle_->waiting(); }
  // Aborts all slots that are reserved, and returns their number.
  std::size_t abort_open();

 private:
  capi::Buffer* const handle_;
  const Clock::time_point began_ = Clock::now();
  const std::uint64_t before_;  // items committed earlier
  const std::uint64_t accepted_before_;
};

}  // namespace pyecho::bindings
