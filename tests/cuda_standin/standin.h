// A stand-in for NVIDIA's CUDA driver, so that tests of pyecho's CUDA code need no GPU. Load it as if it were
// libcuda.so.1 (PYECHO_CUDA_DRIVER=/path/to/libcuda_standin.so); like the driver it offers its functions through
// cuGetProcAddress_v2 only. The standin_* functions below steer and observe it; any thread may call them.
//
// What it is: streams are threads that do their work in order and late, after seeded random delays, so that streams
// overtake each other; a copy reads its source when it is executed, not when it is issued. "Device" memory is heap
// memory, and any host pointer will do as a device pointer.
//
// How it differs from the real driver, on purpose:
// - Streams, events and memory belong to no context; a current context is demanded where the real driver demands one.
// - The legacy default stream (handles 0 and 1) is one more stream and synchronises with no other. The per-thread
//   default stream (2) is not a stream.
// - Handles are never used twice, so that every use of a destroyed one is noticed (400).
// - Asked for a symbol with a version older than the symbol, it answers success, status 2 and no function; for an
//   unknown or hidden symbol 500, status 1; with a version above its own 1 (and leaves the status alone). So asking an
//   old driver for a newer symbol, with the symbol's version, answers 1.
// - cuMemFree waits for copies to or from the memory only.
// - Work that waits for an event waits for what was recorded last when the wait was issued, as with the real one.
//
// Functions that need nothing (cuDriverGetVersion, cuGetErrorName, cuGetErrorString, cuGetProcAddress) answer at any
// time, as documented: before cuInit, after a fault, after the end, and in a forked child. All others answer 3 before
// cuInit, 4 after the end, and 3 in a child of a process that had called cuInit.
//
// At exit() the driver ends (4) by a handler that was registered when this library was loaded: whatever is destroyed
// after that meets an ended driver. A copy that is being executed is finished first; all other pending work is lost.
// The threads of streams are detached, use nothing that is ever destroyed, and execute nothing from then on.
//
// In a forked child that answers 3, control functions may only read.
#ifndef PYECHO_TESTS_CUDA_STANDIN_STANDIN_H_
#define PYECHO_TESTS_CUDA_STANDIN_STANDIN_H_

#include <stddef.h>
#include <stdint.h>

#define STANDIN_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

// ---------------------------------------------------------------- configuration
//
// Each has an environment variable, read when the library is loaded and again by standin_reset() and
// standin_restore(). The defaults are in brackets.

// The driver's version, 1000 * major + 10 * minor [12080]. PYECHO_STANDIN_VERSION
STANDIN_API void standin_set_version(int version);
// Symbols that the driver does not have, "cuEventQuery,cuStreamCreate" [none]. PYECHO_STANDIN_HIDE
STANDIN_API void standin_set_hidden(const char* names);
// How many devices there are; with none cuInit answers 100 [1]. PYECHO_STANDIN_DEVICES
STANDIN_API void standin_set_devices(int count);
// What cuInit answers; it initialises only if that is 0 [0]. PYECHO_STANDIN_INIT_RESULT
STANDIN_API void standin_set_init_result(int result);
// The devices' HOST_NUMA_ID [-1]. PYECHO_STANDIN_NUMA_NODE
STANDIN_API void standin_set_numa_node(int node);
// How many bytes can be registered at one time; more is answered with 2 [all]. PYECHO_STANDIN_REGISTER_LIMIT
STANDIN_API void standin_set_register_limit(uint64_t bytes);
// The seed of delays and of standin_step() [0]; starts their random numbers anew. PYECHO_STANDIN_SEED
STANDIN_API void standin_set_seed(uint64_t seed);
// Each operation starts after 0 to this many microseconds [100]. PYECHO_STANDIN_MAX_DELAY_US
STANDIN_API void standin_set_max_delay_us(unsigned microseconds);

// ---------------------------------------------------------------- failures

// Makes the nth call from now fail with `result`; 1 is the next one. All functions but cuGetProcAddress are counted, or
// only those of the function `name`, unless it is NULL. If `sticky`, as standin_fault() from that call on. Replaces
// what was set before; nth 0 only cancels. PYECHO_STANDIN_FAIL_CALL=nth:result[:sticky][:name]
STANDIN_API void standin_fail_call(const char* name, uint64_t nth, int result, int sticky);
// As a fault of the context does: every call answers `result` from now on, also those blocked in a synchronisation, and
// pending work is never executed. Until standin_restore() or standin_reset().
STANDIN_API void standin_fault(int result);
// The driver's end, as at exit. Until standin_reset().
STANDIN_API void standin_deinitialize(void);

// ---------------------------------------------------------------- execution

enum StandinHold {
  STANDIN_RUN = 0,   // streams execute by themselves
  STANDIN_HOLD = 1,  // they execute nothing; calls that wait for them block
  STANDIN_STEP = 2   // they execute nothing; calls that wait for them execute random operations until they need not
};
// Stops the streams, or lets them go. When it returns no operation is being executed, except for a host function that
// had begun. Nothing sleeps while the streams are held, and no thread is started.
STANDIN_API void standin_hold(int hold);
// Executes the first operation of a randomly chosen stream in the calling thread; not one that waits for an event still
// to come. The same calls and the same seed give the same order. Returns 0 if there was none, or the streams are not
// held.
STANDIN_API int standin_step(void);
// Waits until nothing is pending; executes it all, in random order, if the streams are held. Returns 0, or the fault.
STANDIN_API int standin_drain(void);

// ---------------------------------------------------------------- stream capture
//
// Until the end of the capture (begun in the calling thread, in mode GLOBAL) potentially unsafe calls answer 900 and
// invalidate it, unless the calling thread's mode is RELAXED, or THREAD_LOCAL and the capture another thread's. These
// are cuMemAlloc, cuMemFree, cuMemHostRegister, cuMemHostUnregister, cuEventQuery, cuEventSynchronize, cuStreamQuery
// and cuStreamSynchronize. Creating, destroying, recording, waiting and copying are safe.
//
// What a stream is given while it is captured itself becomes a part of a graph, which is never launched: copies and host
// functions are not executed. Asking the stream whether it is done, or waiting for it, answers 900 and invalidates the
// capture in any mode; once that is invalid, work for the stream is answered with 901. An event that is recorded into it
// is a captured one: until it is recorded elsewhere, also after the capture, cuEventQuery, cuEventSynchronize and the
// waits of other streams answer 907 (other streams never join a capture). To query or to synchronize one while its own
// capture goes on invalidates that capture, in any mode. The stream's own waits for an event that is not captured answer
// 905, and invalidate. cuStreamIsCapturing may be asked at any time, of any stream.

STANDIN_API void standin_begin_capture(void);
// The same, of this stream. Returns 0, 400 if there is no such stream, or 900 for the legacy default stream.
STANDIN_API int standin_begin_capture_of(void* stream);
// Returns 0, or 901 if the capture was invalidated.
STANDIN_API int standin_end_capture(void);

// ---------------------------------------------------------------- what has happened

// Calls of driver functions so far, without those of cuGetProcAddress; or of one function.
STANDIN_API uint64_t standin_calls(void);
STANDIN_API uint64_t standin_calls_of(const char* name);
// Bytes copied to devices, counted when a copy is finished.
STANDIN_API uint64_t standin_copied_bytes(void);
// Copies whose host memory was not registered from end to end. They are executed in the caller, after all that the
// stream had pending.
STANDIN_API uint64_t standin_unpinned_copies(void);
// What must never happen: memory unregistered while a copy of it was pending (the copy is then skipped); the driver
// called in a host function (answered with 800).
STANDIN_API uint64_t standin_violations(void);
// Says what the last one was; "" if there was none. Valid until the calling thread asks again.
STANDIN_API const char* standin_last_violation(void);

// What there is now. Pending are the operations issued and not finished; streams and events are those not destroyed.
STANDIN_API uint64_t standin_pending(void);
STANDIN_API uint64_t standin_live_streams(void);
STANDIN_API uint64_t standin_live_events(void);
STANDIN_API uint64_t standin_registered_ranges(void);
STANDIN_API uint64_t standin_registered_bytes(void);
STANDIN_API uint64_t standin_device_allocations(void);
// Primary contexts retained at least once, and how often that of one device was.
STANDIN_API uint64_t standin_retained_contexts(void);
STANDIN_API uint64_t standin_context_retains(int device);

// ---------------------------------------------------------------- between tests
//
// Both first wait until nothing is pending, or drop it if the streams are held or after a fault.

// As after loading: not initialised, the configuration of the environment, no handles, nothing counted.
STANDIN_API void standin_reset(void);
// The same, except that it stays initialised and that contexts, streams, events and memory stay as they are: for
// programs whose handles last as long as the process.
STANDIN_API void standin_restore(void);

#ifdef __cplusplus
}
#endif

#endif  // PYECHO_TESTS_CUDA_STANDIN_STANDIN_H_
