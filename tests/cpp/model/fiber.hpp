// A fiber: a stack of its own to switch to. Notifies sanitizers of the switches.
#pragma once

#include <ucontext.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define PYECHO_FIBER_ASAN 1
#endif
#if __has_feature(thread_sanitizer)
#define PYECHO_FIBER_TSAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define PYECHO_FIBER_ASAN 1
#endif
#if defined(__SANITIZE_THREAD__)
#define PYECHO_FIBER_TSAN 1
#endif
#ifdef PYECHO_FIBER_ASAN
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef PYECHO_FIBER_TSAN
#include <sanitizer/tsan_interface.h>
#endif

namespace pyecho::model {

class Fiber {
 public:
  // The stack this is called on, until start().
  Fiber() = default;
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;
  ~Fiber() {
#ifdef PYECHO_FIBER_TSAN
    if (stack_ != nullptr) {
      __tsan_destroy_fiber(tsan_fiber_);
    }
#endif
  }

  // Prepares `body`, which must never return. It starts at the first switch_to() after this call.
  void start(std::function<void()> body, Fiber& caller) {
    body_ = std::move(body);
    caller_ = &caller;
    stack_ = std::make_unique<std::byte[]>(kStackBytes);
    getcontext(&context_);
    context_.uc_stack.ss_sp = stack_.get();
    context_.uc_stack.ss_size = kStackBytes;
    context_.uc_link = nullptr;
    const auto self = reinterpret_cast<std::uintptr_t>(this);
    makecontext(&context_, reinterpret_cast<void (*)()>(&Fiber::enter), 2, static_cast<unsigned>(self >> 32),
                static_cast<unsigned>(self));
    bottom_ = stack_.get();
    size_bytes_ = kStackBytes;
#ifdef PYECHO_FIBER_TSAN
    caller.tsan_fiber_ = __tsan_get_current_fiber();
    tsan_fiber_ = __tsan_create_fiber(0);
#endif
    caller.switch_to(*this);  // lets AddressSanitizer learn of the caller's stack
  }

  void switch_to(Fiber& to) {
#ifdef PYECHO_FIBER_ASAN
    __sanitizer_start_switch_fiber(&fake_stack_, to.bottom_, to.size_bytes_);
#endif
#ifdef PYECHO_FIBER_TSAN
    __tsan_switch_to_fiber(to.tsan_fiber_, 0);
#endif
    swapcontext(&context_, &to.context_);
#ifdef PYECHO_FIBER_ASAN
    __sanitizer_finish_switch_fiber(fake_stack_, nullptr, nullptr);
#endif
  }

 private:
  static constexpr std::size_t kStackBytes = std::size_t{256} << 10;

  static void enter(unsigned high, unsigned low) {
    auto* const self = reinterpret_cast<Fiber*>((static_cast<std::uintptr_t>(high) << 32) | std::uintptr_t{low});
#ifdef PYECHO_FIBER_ASAN
    __sanitizer_finish_switch_fiber(nullptr, &self->caller_->bottom_, &self->caller_->size_bytes_);
#endif
    self->switch_to(*self->caller_);
    self->body_();
  }

  ucontext_t context_{};
  std::unique_ptr<std::byte[]> stack_;
  const void* bottom_ = nullptr;
  std::size_t size_bytes_ = 0;
  std::function<void()> body_;
  Fiber* caller_ = nullptr;
#ifdef PYECHO_FIBER_ASAN
  void* fake_stack_ = nullptr;
#endif
#ifdef PYECHO_FIBER_TSAN
  void* tsan_fiber_ = nullptr;
#endif
};

}  // namespace pyecho::model
