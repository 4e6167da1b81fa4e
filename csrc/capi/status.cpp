#include "capi/status.hpp"

#include <array>
#include <exception>
#include <new>

#include "capi/buffer.hpp"

namespace pyecho::capi {
namespace {

thread_local std::string last_message;

constexpr std::array kTexts = {"PYECHO_OK: done",
                               "PYECHO_END: the end of an iteration",
                               "PYECHO_TIMEOUT: the time was up first",
                               "PYECHO_CLOSED: no more input is accepted, or the buffer was stopped",
                               "PYECHO_EXHAUSTED: the consumer holds every batch that max_bytes allows",
                               "PYECHO_FORKED: the buffer belongs to the process that this one was forked from",
                               "PYECHO_FAILED: the producer has failed",
                               "PYECHO_INVALID: an argument is wrong",
                               "PYECHO_MISUSE: a call out of place",
                               "PYECHO_NO_MEMORY: the system has no more memory",
                               "PYECHO_BAD_STATE: the saved state is damaged, or was saved with another configuration",
                               "PYECHO_INTERRUPTED: a signal handler of Python's has raised",
                               "PYECHO_SYSTEM: the system refused something"};
static_assert(kTexts.size() == PYECHO_SYSTEM + 1);

}  // namespace

pyecho_status set_error(pyecho_status status, const char* message) noexcept {
  try {
    last_message = message;
  } catch (...) {  // no memory for the message
    last_message.clear();
  }
  return status;
}

const char* last_error() noexcept { return last_message.c_str(); }

const char* status_string(pyecho_status status) noexcept {
  const auto index = static_cast<std::size_t>(status);
  return index < kTexts.size() ? kTexts[index] : "a status of another version of pyecho";
}

void check_argument(bool holds, const char* message) {
  if (!holds) {
    throw std::invalid_argument(message);
  }
}

void check_call(bool holds, const char* message) {
  if (!holds) {
    throw std::logic_error(message);
  }
}

pyecho_status status_of(Outcome outcome) noexcept {
  switch (outcome) {
    case Outcome::kOk:
      return PYECHO_OK;
    case Outcome::kEnd:
      return PYECHO_END;
    case Outcome::kFull:
    case Outcome::kEmpty:
    case Outcome::kHalted:
    case Outcome::kTimeout:
      return PYECHO_TIMEOUT;
    case Outcome::kClosed:
      return PYECHO_CLOSED;
    case Outcome::kExhausted:
      return set_error(PYECHO_EXHAUSTED,
                       "the consumer holds every batch that max_bytes, or the system, allows; release some");
    case Outcome::kForked:
      return set_error(PYECHO_FORKED,
                       "the buffer was made before fork() and its threads stayed in the parent process; make a new one "
                       "in the child");
  }
  return PYECHO_SYSTEM;
}

pyecho_status status_of_exception() noexcept {
  try {
    throw;
  } catch (const BadState& error) {
    return set_error(PYECHO_BAD_STATE, error.what());
  } catch (const std::bad_alloc&) {
    return set_error(PYECHO_NO_MEMORY, kNoMemory);
  } catch (const std::invalid_argument& error) {
    return set_error(PYECHO_INVALID, error.what());
  } catch (const std::length_error& error) {
    return set_error(PYECHO_INVALID, error.what());
  } catch (const std::logic_error& error) {
    return set_error(PYECHO_MISUSE, error.what());
  } catch (const std::exception& error) {
    return set_error(PYECHO_SYSTEM, error.what());
  } catch (...) {
    return set_error(PYECHO_SYSTEM, "an exception of an unknown type was thrown");
  }
}

}  // namespace pyecho::capi
