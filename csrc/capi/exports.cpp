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

pyecho_status pyecho_create(const pyecho_config* config, pyecho_buffer** buffer) {
  const pyecho_status status = pyecho::capi::kApi.create(config, buffer);
  if (status != PYECHO_OK) {
    failed_api = &pyecho::capi::kApi;
  }
  return status;
}

pyecho_status pyecho_retain(pyecho_buffer* buffer) { return call(&pyecho_api::retain, buffer); }

void pyecho_release(pyecho_buffer* buffer) { api_of(buffer).release(buffer); }

pyecho_status pyecho_get_layout(pyecho_buffer* buffer, pyecho_layout* layout) {
  return call(&pyecho_api::get_layout, buffer, layout);
}

pyecho_status pyecho_get_leaf(pyecho_buffer* buffer, size_t index, pyecho_leaf* leaf) {
  return call(&pyecho_api::get_leaf, buffer, index, leaf);
}

pyecho_status pyecho_get_stats(pyecho_buffer* buffer, pyecho_stats* stats) {
  return call(&pyecho_api::get_stats, buffer, stats);
}

pyecho_status pyecho_reserve(pyecho_buffer* buffer, pyecho_slot* slots, size_t wanted, int64_t timeout_ns,
                             size_t* count) {
  return call(&pyecho_api::reserve, buffer, slots, wanted, timeout_ns, count);
}

pyecho_status pyecho_commit(pyecho_buffer* buffer, const pyecho_slot* slots, size_t count) {
  return call(&pyecho_api::commit, buffer, slots, count);
}

pyecho_status pyecho_abort(pyecho_buffer* buffer, const pyecho_slot* slots, size_t count) {
  return call(&pyecho_api::abort, buffer, slots, count);
}

pyecho_status pyecho_end_pass(pyecho_buffer* buffer, int64_t timeout_ns) {
  return call(&pyecho_api::end_pass, buffer, timeout_ns);
}

pyecho_status pyecho_close(pyecho_buffer* buffer) { return call(&pyecho_api::close, buffer); }

pyecho_status pyecho_fail(pyecho_buffer* buffer, const char* message) {
  return call(&pyecho_api::fail, buffer, message);
}

pyecho_status pyecho_stop(pyecho_buffer* buffer) { return call(&pyecho_api::stop, buffer); }

pyecho_status pyecho_acquire(pyecho_buffer* buffer, pyecho_batch* batch, int64_t timeout_ns) {
  return call(&pyecho_api::acquire, buffer, batch, timeout_ns);
}

pyecho_status pyecho_release_batch(pyecho_buffer* buffer, pyecho_batch* batch) {
  return call(&pyecho_api::release_batch, buffer, batch);
}

pyecho_status pyecho_set_shape(pyecho_buffer* buffer, const pyecho_slot* slot, size_t leaf, const int64_t* shape,
                               unsigned char** data) {
  return call(&pyecho_api::set_shape, buffer, slot, leaf, shape, data);
}

pyecho_status pyecho_get_rows(pyecho_buffer* buffer, const pyecho_batch* batch, size_t leaf, const unsigned char** data,
                              const int64_t** shapes) {
  return call(&pyecho_api::get_rows, buffer, batch, leaf, data, shapes);
}

pyecho_status pyecho_begin(pyecho_buffer* buffer, uint64_t epoch, uint64_t items) {
  return call(&pyecho_api::begin, buffer, epoch, items);
}

pyecho_status pyecho_save(pyecho_buffer* buffer, unsigned char** state, size_t* size_bytes, uint64_t* taken) {
  return call(&pyecho_api::save, buffer, state, size_bytes, taken);
}

pyecho_status pyecho_load(pyecho_buffer* buffer, const unsigned char* state, size_t size_bytes, uint64_t* taken) {
  return call(&pyecho_api::load, buffer, state, size_bytes, taken);
}

void pyecho_free(unsigned char* state) { pyecho::capi::kApi.free(state); }

const char* pyecho_status_string(pyecho_status status) { return pyecho::capi::kApi.status_string(status); }

const char* pyecho_last_error(void) { return failed_api->last_error(); }

const char* pyecho_version(void) { return pyecho::capi::kApi.library_version(); }

const pyecho_api* pyecho_get_api(uint32_t version) {
  return version == PYECHO_ABI_VERSION ? &pyecho::capi::kApi : nullptr;
}

}  // extern "C"
