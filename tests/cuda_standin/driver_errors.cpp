#include <algorithm>
#include <iterator>

#include "driver.hpp"
#include "state.hpp"

namespace pyecho::standin {
namespace {

struct Error {
  Result result;
  const char* name;
  const char* text;
};

constexpr Error kErrors[] = {
    {kSuccess, "CUDA_SUCCESS", "no error"},
    {kInvalidValue, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {kOutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {kNotInitialized, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {kDeinitialized, "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
    {kStubLibrary, "CUDA_ERROR_STUB_LIBRARY", "CUDA driver is a stub library"},
    {kNoDevice, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {kInvalidDevice, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {kInvalidContext, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {kInvalidHandle, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {kNotFound, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {kNotReady, "CUDA_ERROR_NOT_READY", "device not ready"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {kContextIsDestroyed, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"},
    {kHostMemoryAlreadyRegistered, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "memory is already registered"},
    {kHostMemoryNotRegistered, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "memory is not registered"},
    {719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {kNotPermitted, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
    {kStreamCaptureUnsupported, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "not permitted during stream capture"},
    {kStreamCaptureInvalidated, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "the stream capture was invalidated"},
    {kStreamCaptureIsolation, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION", "a captured stream depends on uncaptured work"},
    {kCapturedEvent, "CUDA_ERROR_CAPTURED_EVENT", "the event was last recorded in a capturing stream"},
    {999, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

Result look_up(Result result, const char** text, const char* Error::* member) {
  if (text == nullptr) {
    return kInvalidValue;
  }
  const auto* const found =
      std::find_if(std::begin(kErrors), std::end(kErrors), [&](const Error& error) { return error.result == result; });
  *text = found == std::end(kErrors) ? nullptr : found->*member;
  return found == std::end(kErrors) ? kInvalidValue : kSuccess;
}

}  // namespace

Result get_error_name(Result result, const char** name) {
  return call("cuGetErrorName", Needs::kNothing, [&](State&, Lock&) { return look_up(result, name, &Error::name); });
}

Result get_error_string(Result result, const char** text) {
  return call("cuGetErrorString", Needs::kNothing, [&](State&, Lock&) { return look_up(result, text, &Error::text); });
}

}  // namespace pyecho::standin
