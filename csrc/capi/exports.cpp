// The exported functions. Each calls the table of its buffer, which may come from another version of the library.
#include "capi/buffer.hpp"
#include "pyecho/pyecho.h"

namespace {

const pyecho_api& api_of(pyecho_buffer* buffer) noexcept {
  return buffer == nullptr ? pyecho::capi::kApi : *buffer->api;
}

}  // namespace

extern "C" {

pyecho_status pyecho_create(const pyecho_config* config, pyecho_buffer** buffer) {
  return pyecho::capi::kApi.create(config, buffer);
}

pyecho_status pyecho_retain(pyecho_buffer* buffer) { return api_of(buffer).retain(buffer); }

void pyecho_release(pyecho_buffer* buffer) { api_of(buffer).release(buffer); }

pyecho_status pyecho_get_layout(pyecho_buffer* buffer, pyecho_layout* layout) {
  return api_of(buffer).get_layout(buffer, layout);
}

pyecho_status pyecho_get_leaf(pyecho_buffer* buffer, size_t index, pyecho_leaf* leaf) {
  return api_of(buffer).get_leaf(buffer, index, leaf);
}

pyecho_status pyecho_get_stats(pyecho_buffer* buffer, pyecho_stats* stats) {
  return api_of(buffer).get_stats(buffer, stats);
}

pyecho_status pyecho_reserve(pyecho_buffer* buffer, pyecho_slot* slots, size_t wanted, int64_t timeout_ns,
                             size_t* count) {
  return api_of(buffer).reserve(buffer, slots, wanted, timeout_ns, count);
}

pyecho_status pyecho_commit(pyecho_buffer* buffer, const pyecho_slot* slots, size_t count) {
  return api_of(buffer).commit(buffer, slots, count);
}

pyecho_status pyecho_abort(pyecho_buffer* buffer, const pyecho_slot* slots, size_t count) {
  return api_of(buffer).abort(buffer, slots, count);
}

pyecho_status pyecho_end_pass(pyecho_buffer* buffer, int64_t timeout_ns) {
  return api_of(buffer).end_pass(buffer, timeout_ns);
}

pyecho_status pyecho_close(pyecho_buffer* buffer) { return api_of(buffer).close(buffer); }

pyecho_status pyecho_fail(pyecho_buffer* buffer, const char* message) { return api_of(buffer).fail(buffer, message); }

pyecho_status pyecho_stop(pyecho_buffer* buffer) { return api_of(buffer).stop(buffer); }

pyecho_status pyecho_acquire(pyecho_buffer* buffer, pyecho_batch* batch, int64_t timeout_ns) {
  return api_of(buffer).acquire(buffer, batch, timeout_ns);
}

pyecho_status pyecho_release_batch(pyecho_buffer* buffer, pyecho_batch* batch) {
  return api_of(buffer).release_batch(buffer, batch);
}

pyecho_status pyecho_begin(pyecho_buffer* buffer, uint64_t epoch, uint64_t items) {
  return api_of(buffer).begin(buffer, epoch, items);
}

pyecho_status pyecho_save(pyecho_buffer* buffer, unsigned char** state, size_t* size_bytes, uint64_t* taken) {
  return api_of(buffer).save(buffer, state, size_bytes, taken);
}

pyecho_status pyecho_load(pyecho_buffer* buffer, const unsigned char* state, size_t size_bytes, uint64_t* taken) {
  return api_of(buffer).load(buffer, state, size_bytes, taken);
}

void pyecho_free(unsigned char* state) { pyecho::capi::kApi.free(state); }

const char* pyecho_status_string(pyecho_status status) { return pyecho::capi::kApi.status_string(status); }

const char* pyecho_last_error(void) { return pyecho::capi::kApi.last_error(); }

const char* pyecho_version(void) { return pyecho::capi::kApi.library_version(); }

const pyecho_api* pyecho_get_api(uint32_t version) {
  return version == PYECHO_ABI_VERSION ? &pyecho::capi::kApi : nullptr;
}

}  // extern "C"
