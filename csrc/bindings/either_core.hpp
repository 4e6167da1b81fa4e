// The native core of a stage: an EchoBuffer or an EchoQueue, which have these functions in common.
#pragma once

#include <cstdint>
#include <utility>
#include <variant>

#include "core/stage/echo_buffer.hpp"
#include "core/stage/echo_queue.hpp"

namespace pyecho::bindings {

class EitherCore {
  std::variant<EchoBuffer*, EchoQueue*> core_;

  template <class Call>
  decltype(auto) visit(const Call& call) const {
    return std::visit([&](auto* core) -> decltype(auto) { return call(*core); }, core_);
  }

 public:
  EitherCore(EchoBuffer& core) noexcept : core_(&core) {}  // NOLINT(google-explicit-constructor)
  EitherCore(EchoQueue& core) noexcept : core_(&core) {}   // NOLINT(google-explicit-constructor)

  Outcome reserve(Reservation& place, Deadline deadline) const {
    return visit([&](auto& core) { return core.reserve(place, deadline); });
  }
  void end_pass(Reservation place) const {
    visit([&](auto& core) { core.end_pass(place); });
  }
  void await_resumed(Deadline deadline) const {
    visit([&](auto& core) { core.await_resumed(deadline); });
  }
  void close() const {
    visit([](auto& core) { core.close(); });
  }
  void stop() const {
    visit([](auto& core) { core.stop(); });
  }
  void set_halted(bool halted) const {
    visit([&](auto& core) { core.set_halted(halted); });
  }
  [[nodiscard]] Replay begin(PlanPosition position) const {
    return visit([&](auto& core) { return core.begin(std::move(position)); });
  }
  void resume(const Replay& replay) const {
    visit([&](auto& core) { core.resume(replay); });
  }
  [[nodiscard]] bool at_end() const {
    return visit([](auto& core) { return core.at_end(); });
  }
  [[nodiscard]] std::uint64_t needed() const {
    return visit([](auto& core) { return core.needed(); });
  }
  [[nodiscard]] bool stopped() const {
    return visit([](auto& core) { return core.stopped(); });
  }
  [[nodiscard]] bool forked() const {
    return visit([](auto& core) { return core.forked(); });
  }
  [[nodiscard]] EchoStats stats() const {
    return visit([](auto& core) { return core.stats(); });
  }
  [[nodiscard]] DecisionLog log() const {
    return visit([](auto& core) { return core.log(); });
  }
};

}  // namespace pyecho::bindings
