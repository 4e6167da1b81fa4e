/* pyecho from C: the stage of example echoing, for data loaders of one's own. C11.
 *
 *     producers --> slots --> shuffled uses of the examples --> batches --> consumer
 *
 * An example is a record of leaves (arrays of fixed size). Each is emitted `factor` times, in batches, shuffled among
 * `shuffle_buffer` examples. The output depends only on the examples in the order of their reservations, the configuration
 * and the epoch, not on threads or timing.
 *
 *     pyecho_leaf leaf = PYECHO_LEAF_INIT;
 *     leaf.name = "x"; leaf.dtype = "<f4"; leaf.shape = (const int64_t[]){3}; leaf.ndim = 1;
 *     pyecho_config config = PYECHO_CONFIG_INIT;
 *     config.leaves = &leaf; config.leaf_count = 1; config.batch_size = 32; config.factor = 2; config.shuffle_buffer = 320;
 *     pyecho_buffer* buffer;
 *     if (pyecho_create(&config, &buffer) != PYECHO_OK) { puts(pyecho_last_error()); ... }
 *
 *     any thread:  pyecho_slot slot;
 *                  while (pyecho_reserve(buffer, &slot, 1, PYECHO_FOREVER, NULL) == PYECHO_OK) {
 *                    fill slot.data;
 *                    pyecho_commit(buffer, &slot, 1);
 *                  }
 *     one thread:  pyecho_batch batch = PYECHO_BATCH_INIT;
 *                  while (pyecho_acquire(buffer, &batch, PYECHO_FOREVER) == PYECHO_OK) {
 *                    (const float*)(batch.data + batch_offset of the leaf), batch.rows of them ...
 *                    pyecho_release_batch(buffer, &batch);
 *                  }
 *
 * Two ways to a buffer: pyecho_create(), linked with libpyecho; or from Python, where `buffer.capsule`, or the argument
 * of a source's `__pyecho_feed__`, is a PyCapsule named PYECHO_CAPSULE_NAME around a pyecho_buffer*. Python consumes
 * that one, so only the functions of producers may be called, and they can be called through `buffer->api`, without
 * linking.
 *
 * Results. Each function returns a pyecho_status unless it says otherwise. No exception leaves it. Unless it returns
 * PYECHO_OK nothing has changed, but for what it says. Misuse, so far as it can be told, is PYECHO_INVALID or
 * PYECHO_MISUSE.
 *
 * Ownership. A buffer is counted: pyecho_create() returns one reference, pyecho_retain() adds one, pyecho_release()
 * drops one, and the last one stops the buffer and frees it. A batch that is held counts as a reference. A capsule has
 * a reference of its own: retain the buffer to keep it for longer.
 *
 * Threads. Producers: any number at the same time. The consumer: one thread at a time. The others: any thread, except
 * where they say otherwise. Nothing needs Python's GIL. A thread that has the GIL may call, too: a wait lets go of it,
 * and answers signals (PYECHO_INTERRUPTED).
 *
 * Growth. Structs that begin with `struct_bytes` may get more members at their end, the table more functions. A program
 * compiled against this header runs with later libraries of the same PYECHO_ABI_VERSION. Members that are 0 have their
 * default. With an earlier library, options that it does not know must be 0: else PYECHO_INVALID. */
#ifndef PYECHO_PYECHO_H
#define PYECHO_PYECHO_H

#include <stddef.h>
#include <stdint.h>

#include "pyecho/op.h"

#if defined(PYECHO_BUILDING)
#define PYECHO_API __attribute__((visibility("default")))
#else
#define PYECHO_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define PYECHO_ABI_VERSION 1
#define PYECHO_CAPSULE_NAME "pyecho.buffer.v1"

#define PYECHO_FOREVER INT64_C(-1) /* as a timeout */
#define PYECHO_UNKNOWN UINT64_C(0) /* as a number of items */
#define PYECHO_MAX_GROUP 64        /* slots that one call reserves, at most */

/* Bits of pyecho_batch.end, which say what has ended with PYECHO_END. Neither: a pass, and another one follows. */
#define PYECHO_END_EMPTY UINT32_C(1) /* a pass without examples */
#define PYECHO_END_LAST UINT32_C(2)  /* everything: the input was closed, and all of it was emitted */

/* Its values never change; later versions may add some. */
typedef enum pyecho_status {
  PYECHO_OK = 0,
  PYECHO_END = 1,                 /* the end of an iteration; pyecho_batch.end says whether it was the last one */
  PYECHO_TIMEOUT = 2,             /* the time was up first */
  PYECHO_CLOSED = 3,              /* no more input is accepted, or the buffer was stopped */
  PYECHO_EXHAUSTED = 4,           /* the consumer holds every batch that max_bytes allows */
  PYECHO_FORKED = 5,              /* this process is a fork of the one that made the buffer; its threads stayed there */
  PYECHO_FAILED = 6,              /* the end, because of pyecho_fail(): its message is pyecho_last_error() */
  PYECHO_INVALID = 7,             /* an argument is wrong: NULL, a size, a number out of range */
  PYECHO_MISUSE = 8,              /* a call out of place: a slot that is not reserved, a second consumer ... */
  PYECHO_NO_MEMORY = 9,           /* the system has no more memory */
  PYECHO_BAD_STATE = 10,          /* a saved state is damaged, or was saved with another configuration */
  PYECHO_INTERRUPTED = 11,        /* a signal handler of Python's has raised; its exception is set in this thread */
  PYECHO_SYSTEM = 12,             /* the system refused something else, such as a thread */
  PYECHO_STATUS_BITS = 0x7FFFFFFF /* never returned; later values fit as well */
} pyecho_status;

/* One array of an example. As input: size_bytes, the offsets and row_bytes are not read. */
typedef struct pyecho_leaf {
  size_t struct_bytes;
  const char* name;     /* NULL: none. From Python: its path, such as "item['image']" */
  const char* dtype;    /* as in NumPy's array interface: "<f4", "|u1", "|V12" */
  const int64_t* shape; /* of one example; -1 for an extent that differs from example to example, see max_bytes */
  uint32_t ndim;
  uint32_t reserved;
  size_t size_bytes;   /* of one example; 0 if they differ in size */
  size_t slot_offset;  /* from pyecho_slot.data, aligned for the dtype */
  size_t batch_offset; /* from pyecho_batch.data, of the first row, a multiple of 64; the rows are contiguous */
  /* Operations on every use of this leaf. NULL when a leaf is set. */
  const pyecho_op* ops;
  size_t op_count;
  size_t max_bytes; /* most bytes of one example, where its shape has -1; else 0. Memory follows what examples hold */
  size_t
      row_bytes; /* of one row of a batch; where rows differ in size 8 * ndim, for the shape: see pyecho_get_rows() */
} pyecho_leaf;
#define PYECHO_LEAF_INIT {sizeof(pyecho_leaf), NULL, NULL, NULL, 0, 0, 0, 0, 0, NULL, 0, 0, 0}

typedef struct pyecho_config {
  size_t struct_bytes;
  const pyecho_leaf* leaves; /* struct_bytes of the first one apart */
  size_t leaf_count;
  double factor; /* uses of each example, at least 1; with a fraction some have one more. Default 2 */
  uint64_t seed;
  uint64_t epoch;           /* number of the first epoch, which selects the random numbers with the seed */
  uint64_t items;           /* examples of a pass. Default: PYECHO_UNKNOWN */
  uint64_t steps_per_epoch; /* batches of an iteration. Default: as many as the uses of a pass make */
  uint64_t max_age;         /* of an adaptive factor: batches after which an example leaves. Default: none */
  uint32_t min_uses;        /* not 0: an adaptive factor, from min_uses to `factor`, as the source's speed needs */
  uint32_t batch_size;      /* of a batch; the last one may have fewer. At least 1, no default */
  uint32_t shuffle_buffer;  /* distinct examples among which each emission is drawn. Default 1: no shuffling */
  uint32_t prefetch;        /* batches made ahead of the consumer. Default 2 */
  uint32_t threads;         /* threads that make batches. 0: the consumer makes them */
  uint32_t slots_ahead;     /* examples that arrive together. Default 1 */
  uint32_t held;            /* batches that the consumer holds at a time. Default 2 */
  uint8_t unique_in_batch;  /* not 0: no example twice in a batch; shuffle_buffer >= batch_size */
  uint8_t drop_last;        /* not 0: leave out batches with fewer than batch_size rows */
  uint8_t with_info;        /* not 0: batches say which use of which example each row is */
  uint8_t reserved;
  size_t max_bytes; /* bound of the memory for slots and batches. Default: none */
  /* Memory for batches of another allocator, such as pinned memory. `allocate` returns size_bytes at a multiple of 64
   * bytes, or NULL (PYECHO_NO_MEMORY); only pyecho_create() and pyecho_load() call it, for every batch of prefetch,
   * threads and `held`, and none is added later. `deallocate` gets each back, in any thread: at the end of the buffer,
   * or of a batch that outlives it. `context` lives until then. Both or neither. Default: pyecho's own memory */
  void* (*allocate)(size_t size_bytes, void* context);
  void (*deallocate)(void* memory, size_t size_bytes, void* context);
  void* context; /* for both of them */
} pyecho_config;
#define PYECHO_CONFIG_INIT \
  {sizeof(pyecho_config), NULL, 0, 0.0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL}

/* The right to fill one slot; to be committed or aborted once, by any thread, as pyecho_reserve() has set it. Never
 * grows. */
typedef struct pyecho_slot {
  unsigned char* data; /* slot_bytes of pyecho_layout, at a multiple of 64 */
  uint64_t ticket;     /* its place in the order of reservations */
  uint32_t index;
  uint32_t reserved;
} pyecho_slot;

/* A batch, to read and write until it is released. */
typedef struct pyecho_batch {
  size_t struct_bytes;
  unsigned char* data;         /* see pyecho_leaf.batch_offset */
  const int64_t* source_index; /* with_info: number of the example in its pass, from 0, of each row. Else NULL */
  const int32_t* use;          /* with_info: which use of it this is, from 0 */
  uint32_t rows;
  uint32_t end; /* PYECHO_END_EMPTY, PYECHO_END_LAST, where pyecho_acquire() returned PYECHO_END; else 0 */
  uint64_t id;  /* of the lease; 0: none */
} pyecho_batch;
#define PYECHO_BATCH_INIT {sizeof(pyecho_batch), NULL, NULL, NULL, 0, 0, 0}

typedef struct pyecho_layout {
  size_t struct_bytes;
  size_t leaf_count;
  size_t slot_bytes; /* of one example, padding included */
  size_t batch_bytes;
  uint32_t batch_size;
  uint32_t slots;
} pyecho_layout;
#define PYECHO_LAYOUT_INIT {sizeof(pyecho_layout), 0, 0, 0, 0, 0}

typedef struct pyecho_stats {
  size_t struct_bytes;
  uint64_t fresh;   /* examples committed */
  uint64_t emitted; /* uses handed to the consumer */
  uint64_t batches; /* handed to the consumer */
  uint64_t bytes_gathered;
  uint64_t consumer_wait_ns;    /* inside pyecho_acquire() */
  uint64_t downstream_ns;       /* between two calls of it */
  uint64_t producer_wait_ns;    /* while at least one producer waited for room */
  uint32_t resident;            /* examples in the pool, of shuffle_buffer */
  uint32_t outstanding_batches; /* held by the consumer */
} pyecho_stats;
#define PYECHO_STATS_INIT {sizeof(pyecho_stats), 0, 0, 0, 0, 0, 0, 0, 0, 0}

struct pyecho_api;
/* The members behind `api` are private. */
typedef struct pyecho_buffer {
  const struct pyecho_api* api;
} pyecho_buffer;

/* ---- Any thread ---- */

/* Allocates everything and starts the threads. Reads the config only during the call.
 * PYECHO_INVALID, PYECHO_NO_MEMORY, PYECHO_SYSTEM; `*buffer` is then NULL. */
PYECHO_API pyecho_status pyecho_create(const pyecho_config* config, pyecho_buffer** buffer);
PYECHO_API pyecho_status pyecho_retain(pyecho_buffer* buffer);
/* Does nothing with NULL. The last call must not run while another function of this buffer does. */
PYECHO_API void pyecho_release(pyecho_buffer* buffer);

/* Sets the layout of slots and batches, which stays as it is; pyecho_load() may add slots. */
PYECHO_API pyecho_status pyecho_get_layout(pyecho_buffer* buffer, pyecho_layout* layout);
/* Sets one leaf. Its pointers are valid for as long as the buffer. */
PYECHO_API pyecho_status pyecho_get_leaf(pyecho_buffer* buffer, size_t index, pyecho_leaf* leaf);
PYECHO_API pyecho_status pyecho_get_stats(pyecho_buffer* buffer, pyecho_stats* stats);

/* ---- Producers: any number of threads ---- */

/* Waits up to timeout_ns nanoseconds (PYECHO_FOREVER: without end) for a free slot, then reserves as many as are free,
 * at most `wanted` (1 to PYECHO_MAX_GROUP). Sets the first ones of `slots`, and their number: `count`, which may be
 * NULL if wanted is 1. An open reservation holds up all later ones, so do not wait for anything else while holding one.
 * PYECHO_TIMEOUT, PYECHO_CLOSED, PYECHO_FORKED, PYECHO_INTERRUPTED. */
PYECHO_API pyecho_status pyecho_reserve(pyecho_buffer* buffer, pyecho_slot* slots, size_t wanted, int64_t timeout_ns,
                                        size_t* count);
/* Gives a leaf of a reserved slot, whose examples differ in size, memory for an example of this shape, and sets `*data`
 * to it: zeros, to be filled before the slot is committed. Every such leaf of a slot needs it; another call
 * for the same leaf frees what the one before has set.
 * PYECHO_INVALID if the shape does not fit the leaf, its max_bytes or its operations, PYECHO_NO_MEMORY, PYECHO_MISUSE if
 * the slot is not reserved. */
PYECHO_API pyecho_status pyecho_set_shape(pyecho_buffer* buffer, const pyecho_slot* slot, size_t leaf,
                                          const int64_t* shape, unsigned char** data);
/* Hands filled slots over, which must not be written to any more. Never waits; also after pyecho_close(). PYECHO_MISUSE
 * if one of them is not reserved (committed or aborted before, changed, of another buffer): those before it are
 * committed. */
PYECHO_API pyecho_status pyecho_commit(pyecho_buffer* buffer, const pyecho_slot* slots, size_t count);
/* Gives slots back without an example. As pyecho_commit() otherwise. */
PYECHO_API pyecho_status pyecho_abort(pyecho_buffer* buffer, const pyecho_slot* slots, size_t count);
/* Marks the end of a pass over the source; another pass follows. Waits as pyecho_reserve() does. The consumer gets
 * PYECHO_END after the batches that the uses of the pass make, while the pool keeps its examples. With a buffer of
 * Python's: PYECHO_MISUSE, because pyecho marks it when __pyecho_feed__ returns. */
PYECHO_API pyecho_status pyecho_end_pass(pyecho_buffer* buffer, int64_t timeout_ns);
/* Ends the input: reservations return PYECHO_CLOSED, what is committed drains. Idempotent. With a buffer that feeds a
 * loader of Python's: return from __pyecho_feed__ instead. */
PYECHO_API pyecho_status pyecho_close(pyecho_buffer* buffer);
/* Same as pyecho_close(), but the consumer gets PYECHO_FAILED (in Python a RuntimeError with this message) instead of
 * the end, once everything before it has been emitted. The first failure counts. */
PYECHO_API pyecho_status pyecho_fail(pyecho_buffer* buffer, const char* message);
/* Ends every wait at once, with PYECHO_CLOSED, and drops what was not consumed. Batches stay valid. Idempotent. A
 * consumer in Python gets pyecho.Closed; to end with a message, call pyecho_fail(). */
PYECHO_API pyecho_status pyecho_stop(pyecho_buffer* buffer);

/* ---- The consumer: one thread at a time, a second one gets PYECHO_MISUSE. As all that follows, not with a buffer of
 * Python's: PYECHO_MISUSE. ---- */

/* Waits for the next batch. PYECHO_END at the end of an iteration, and sets batch->end; with PYECHO_END_LAST also from
 * then on, until pyecho_begin() or pyecho_load(). An input that is closed right after pyecho_end_pass() ends with an
 * empty pass. PYECHO_FAILED, PYECHO_TIMEOUT, PYECHO_CLOSED after pyecho_stop(), PYECHO_EXHAUSTED (call again once a
 * batch was released), PYECHO_NO_MEMORY (call again once there is some), PYECHO_FORKED, PYECHO_MISUSE if `batch` holds
 * one. */
PYECHO_API pyecho_status pyecho_acquire(pyecho_buffer* buffer, pyecho_batch* batch, int64_t timeout_ns);
/* Sets where the rows of a leaf lie that differ in size: their elements, one row after the other, and the shape of each
 * row, ndim numbers, both until the batch is released. PYECHO_INVALID if the rows of the leaf have one size,
 * PYECHO_MISUSE if the batch is not held. */
PYECHO_API pyecho_status pyecho_get_rows(pyecho_buffer* buffer, const pyecho_batch* batch, size_t leaf,
                                         const unsigned char** data, const int64_t** shapes);
/* Ends the use of a batch, in any thread, and resets it. PYECHO_MISUSE if it was released before. */
PYECHO_API pyecho_status pyecho_release_batch(pyecho_buffer* buffer, pyecho_batch* batch);
/* Starts with iteration `epoch`, with the same memory and threads, and drops the rest of the last one. `items`: see
 * pyecho_config. No producer may be inside of a function; PYECHO_MISUSE if a slot is reserved. */
PYECHO_API pyecho_status pyecho_begin(pyecho_buffer* buffer, uint64_t epoch, uint64_t items);

/* Takes a state: where the consumer is, with the examples that it has not had to their last use. `*state` is memory to
 * be given to pyecho_free(). `*taken`, unless NULL, is the number of examples put so far, since the first epoch of
 * passes that flow into each other began: after loading, a producer goes on with the one after those. Producers may be
 * at work, and have slots reserved: the state ends before the first reservation that is open, and later examples belong
 * to the run that goes on. PYECHO_NO_MEMORY, PYECHO_FORKED, PYECHO_CLOSED, PYECHO_FAILED. */
PYECHO_API pyecho_status pyecho_save(pyecho_buffer* buffer, unsigned char** state, size_t* size_bytes, uint64_t* taken);
/* Goes on where a state was taken, by a buffer of the same leaves, batch_size, factor, shuffle_buffer, seed and flags, in
 * this or another process. No other thread may be inside of any function of the buffer; PYECHO_MISUSE if a slot is
 * reserved, or a producer waits for one. The number of slots may grow within max_bytes, which suffices for states of a
 * buffer with the same: else PYECHO_INVALID. The batches of the state are planned again, twice, some 50 ns a use
 * together, since the segment began: at most 2^25 uses, or 16 times those of a full pool; with min_uses an eighth of
 * that. With unique batches, and steps_per_epoch or min_uses above 1, since the first epoch of passes that flow into
 * each other. Any bytes are safe:
 * PYECHO_BAD_STATE. Unless it returns PYECHO_OK, the buffer goes on as before; but after PYECHO_NO_MEMORY it may be
 * stopped, and can be loaded again. */
PYECHO_API pyecho_status pyecho_load(pyecho_buffer* buffer, const unsigned char* state, size_t size_bytes,
                                     uint64_t* taken);
/* Does nothing with NULL. */
PYECHO_API void pyecho_free(unsigned char* state);

/* ---- Without a buffer ---- */

/* Returns the name of a status and what it means; for any number. Never NULL. */
PYECHO_API const char* pyecho_status_string(pyecho_status status);
/* Returns what was wrong in this thread's last call that did not return PYECHO_OK, END, TIMEOUT or CLOSED: what was
 * needed, what came, and what to do. Valid until the next such call in this thread. Never NULL. */
PYECHO_API const char* pyecho_last_error(void);
/* Returns the version of the library, such as "0.1.0". */
PYECHO_API const char* pyecho_version(void);
/* Returns the functions above as a table, NULL for another version than PYECHO_ABI_VERSION. */
PYECHO_API const struct pyecho_api* pyecho_get_api(uint32_t version);

/* The functions above in the order of the table, which only grows: CALL(name, parameters, arguments) those of a buffer
 * that return a status, OTHER(result, name, parameters) the rest. `library_version` is pyecho_version(). */
/* clang-format off */
#define PYECHO_FUNCTIONS(CALL, OTHER) \
  OTHER(pyecho_status, create, (const pyecho_config* config, pyecho_buffer** buffer)) \
  CALL(retain, (pyecho_buffer* buffer), (buffer)) \
  OTHER(void, release, (pyecho_buffer* buffer)) \
  CALL(get_layout, (pyecho_buffer* buffer, pyecho_layout* layout), (buffer, layout)) \
  CALL(get_leaf, (pyecho_buffer* buffer, size_t index, pyecho_leaf* leaf), (buffer, index, leaf)) \
  CALL(get_stats, (pyecho_buffer* buffer, pyecho_stats* stats), (buffer, stats)) \
  CALL(reserve, (pyecho_buffer* buffer, pyecho_slot* slots, size_t wanted, int64_t timeout_ns, size_t* count), \
       (buffer, slots, wanted, timeout_ns, count)) \
  CALL(commit, (pyecho_buffer* buffer, const pyecho_slot* slots, size_t count), (buffer, slots, count)) \
  CALL(abort, (pyecho_buffer* buffer, const pyecho_slot* slots, size_t count), (buffer, slots, count)) \
  CALL(end_pass, (pyecho_buffer* buffer, int64_t timeout_ns), (buffer, timeout_ns)) \
  CALL(close, (pyecho_buffer* buffer), (buffer)) \
  CALL(fail, (pyecho_buffer* buffer, const char* message), (buffer, message)) \
  CALL(stop, (pyecho_buffer* buffer), (buffer)) \
  CALL(acquire, (pyecho_buffer* buffer, pyecho_batch* batch, int64_t timeout_ns), (buffer, batch, timeout_ns)) \
  CALL(release_batch, (pyecho_buffer* buffer, pyecho_batch* batch), (buffer, batch)) \
  CALL(begin, (pyecho_buffer* buffer, uint64_t epoch, uint64_t items), (buffer, epoch, items)) \
  CALL(save, (pyecho_buffer* buffer, unsigned char** state, size_t* size_bytes, uint64_t* taken), \
       (buffer, state, size_bytes, taken)) \
  CALL(load, (pyecho_buffer* buffer, const unsigned char* state, size_t size_bytes, uint64_t* taken), \
       (buffer, state, size_bytes, taken)) \
  OTHER(void, free, (unsigned char* state)) \
  OTHER(const char*, status_string, (pyecho_status status)) \
  OTHER(const char*, last_error, (void)) \
  OTHER(const char*, library_version, (void)) \
  CALL(set_shape, (pyecho_buffer* buffer, const pyecho_slot* slot, size_t leaf, const int64_t* shape, \
       unsigned char** data), (buffer, slot, leaf, shape, data)) \
  CALL(get_rows, (pyecho_buffer* buffer, const pyecho_batch* batch, size_t leaf, const unsigned char** data, \
       const int64_t** shapes), (buffer, batch, leaf, data, shapes))
/* clang-format on */

typedef struct pyecho_api {
  size_t struct_bytes;
  uint32_t version;
  uint32_t reserved;
#define PYECHO_CALL(name, parameters, arguments) pyecho_status(*name) parameters;
#define PYECHO_OTHER(result, name, parameters) result(*name) parameters;
  PYECHO_FUNCTIONS(PYECHO_CALL, PYECHO_OTHER)
#undef PYECHO_CALL
#undef PYECHO_OTHER
} pyecho_api;

#ifdef __cplusplus
}
#endif

#endif /* PYECHO_PYECHO_H */
