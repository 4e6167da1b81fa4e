// The exported functions. Each calls the table of its buffer, which may come from another version of the library.
#include "capi/buffer.hpp"
#include "pyecho/pyecho.h"

namespace {

// The table of this thread's last call that set an error. Another library's buffer keeps its own.
thread_local const pyecho_api* failed_api = &pyecho::capi::kApi;

const pyecho_api& api_of(pyecho_buffer* buffer) noexcept {
  return buffer == nullptr ? pyecho::capi::kApi : *buffer->api;
}

// Calls a function of the buffer's table.
template <class Function, class... Arguments>
pyecho_status call(Function pyecho_api::* function, pyecho_buffer* buffer, Arguments... arguments) noexcept {
  const pyecho_api& api = api_of(buffer);
  const pyecho_status status = (api.*function)(buffer, arguments...);
  if (status > PYECHO_CLOSED) {
    failed_api = &api;
  }
  return status;
}

}  // namespace

extern "C" {

#define PYECHO_CALL(name, parameters, arguments) \
  pyecho_status pyecho_##name parameters { return call(&pyecho_api::name, PYECHO_ALL arguments); }
#define PYECHO_ALL(...) __VA_ARGS__
#define PYECHO_OTHER(result, name, parameters)
PYECHO_FUNCTIONS(PYECHO_CALL, PYECHO_OTHER)

pyecho_status pyecho_create(const pyecho_config* config, pyecho_buffer** buffer) {
  const pyecho_status status = pyecho::capi::kApi.create(config, buffer);
  if (status != PYECHO_OK) {
    failed_api = &pyecho::capi::kApi;
  }
  return status;
}

void pyecho_release(pyecho_buffer* buffer) { api_of(buffer).release(buffer); }

void pyecho_free(unsigned char* state) { pyecho::capi::kApi.free(state); }

const char* pyecho_status_string(pyecho_status status) { return pyecho::capi::kApi.status_string(status); }

const char* pyecho_last_error(void) { return failed_api->last_error(); }

const char* pyecho_version(void) { return pyecho::capi::kApi.library_version(); }

const pyecho_api* pyecho_get_api(uint32_t version) {
  return version == PYECHO_ABI_VERSION ? &pyecho::capi::kApi : nullptr;
}

}  // extern "C"
