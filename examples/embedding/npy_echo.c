/* Reads the rows of a .npy file with several threads and echoes them, in C alone.
 *
 *     npy_echo rows.npy [epochs [factor]]
 *
 * Each thread reserves slots and the rows that belong there under one lock, so the order is that of the file. It then
 * reads the rows straight into the slots, while other threads do the same with the next ones. Prints the sum of all
 * bytes of all batches, which tells whether each row came as often as it should. */
#include <fcntl.h>
#include <pthread.h>
#include <pyecho/pyecho.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#define THREADS 2
#define MAX_AXES 8

/* A file of rows. */
typedef struct {
  int file;
  off_t data; /* where the rows begin */
  char dtype[16];
  int64_t shape[MAX_AXES]; /* of a row */
  uint32_t ndim;
  int64_t rows;
  size_t row_bytes;
} npy;

/* What the reading threads share. */
typedef struct {
  const npy* source;
  pyecho_buffer* buffer;
  pthread_mutex_t lock;
  int64_t next_row; /* guarded by lock */
} reading;

static void die(const char* what) {
  fprintf(stderr, "npy_echo: %s\n", what);
  exit(1);
}

static void check(pyecho_status status) {
  if (status != PYECHO_OK) {
    fprintf(stderr, "npy_echo: %s (%s)\n", pyecho_last_error(), pyecho_status_string(status));
    exit(1);
  }
}

/* Opens a file of format version 1 or 2: a magic, the length of a header, and the header, a Python dict as text. */
static npy open_npy(const char* path) {
  npy source = {.file = open(path, O_RDONLY)};
  unsigned char start[12];
  if (source.file < 0 || pread(source.file, start, sizeof(start), 0) != (ssize_t)sizeof(start) ||
      memcmp(start, "\x93NUMPY", 6) != 0) {
    die("not a .npy file");
  }
  const size_t prefix = start[6] == 1 ? 10 : 12;
  size_t length = start[8] | (size_t)start[9] << 8;
  if (start[6] > 1) {
    length |= (size_t)start[10] << 16 | (size_t)start[11] << 24;
  }
  char* header = calloc(1, length + 1);
  if (header == NULL || pread(source.file, header, length, (off_t)prefix) != (ssize_t)length) {
    die("the header is cut off");
  }
  source.data = (off_t)(prefix + length);
  const char* descr = strstr(header, "'descr': '");
  const char* shape = strstr(header, "'shape': (");
  if (descr == NULL || shape == NULL || strstr(header, "'fortran_order': False") == NULL ||
      sscanf(descr, "'descr': '%15[^']'", source.dtype) != 1) {
    die("rows must lie one after the other, of one plain dtype");
  }
  shape += strlen("'shape': (");
  for (int axis = 0; *shape != ')'; ++axis) {
    char* end;
    const int64_t extent = strtoll(shape, &end, 10);
    if (end == shape || axis > MAX_AXES) {
      die("the shape cannot be read");
    }
    if (axis == 0) {
      source.rows = extent;
    } else {
      source.shape[source.ndim++] = extent;
    }
    shape = end + strspn(end, ", ");
  }
  free(header);
  return source;
}

static void* read_rows(void* argument) {
  reading* shared = argument;
  const npy* source = shared->source;
  for (;;) {
    pyecho_slot slots[PYECHO_MAX_GROUP];
    size_t count = 0;
    pthread_mutex_lock(&shared->lock);
    const int64_t first = shared->next_row;
    const int64_t left = source->rows - first;
    pyecho_status status = PYECHO_END;
    if (left > 0) {
      const size_t wanted = left < PYECHO_MAX_GROUP ? (size_t)left : PYECHO_MAX_GROUP;
      status = pyecho_reserve(shared->buffer, slots, wanted, PYECHO_FOREVER, &count);
      shared->next_row += (int64_t)count;
    }
    pthread_mutex_unlock(&shared->lock);
    if (status != PYECHO_OK) { /* all rows are reserved; those that are being read may still be committed */
      check(pyecho_close(shared->buffer));
      return NULL;
    }
    for (size_t i = 0; i < count; ++i) {
      const off_t at = source->data + (off_t)((size_t)(first + (int64_t)i) * source->row_bytes);
      if (pread(source->file, slots[i].data, source->row_bytes, at) != (ssize_t)source->row_bytes) {
        check(pyecho_abort(shared->buffer, slots + i, count - i));
        check(pyecho_fail(shared->buffer, "the file is shorter than its header says"));
        return NULL;
      }
      check(pyecho_commit(shared->buffer, slots + i, 1));
    }
  }
}

int main(int argc, char** argv) {
  if (argc < 2) {
    die("usage: npy_echo rows.npy [epochs [factor]]");
  }
  npy source = open_npy(argv[1]);
  const int epochs = argc > 2 ? atoi(argv[2]) : 1;

  pyecho_leaf leaf = PYECHO_LEAF_INIT;
  leaf.name = "row";
  leaf.dtype = source.dtype;
  leaf.shape = source.shape;
  leaf.ndim = source.ndim;
  pyecho_config config = PYECHO_CONFIG_INIT;
  config.leaves = &leaf;
  config.leaf_count = 1;
  config.items = (uint64_t)source.rows;
  config.factor = argc > 3 ? atof(argv[3]) : 2;
  config.batch_size = 32;
  config.shuffle_buffer = 320;
  pyecho_buffer* buffer;
  check(pyecho_create(&config, &buffer));
  check(pyecho_get_leaf(buffer, 0, &leaf)); /* which pyecho has checked and measured */
  source.row_bytes = leaf.size_bytes;

  for (int epoch = 0; epoch < epochs; ++epoch) {
    if (epoch > 0) {
      check(pyecho_begin(buffer, (uint64_t)epoch, (uint64_t)source.rows));
    }
    reading shared = {.source = &source, .buffer = buffer, .lock = PTHREAD_MUTEX_INITIALIZER};
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; ++i) {
      if (pthread_create(&threads[i], NULL, read_rows, &shared) != 0) {
        die("no thread could be started");
      }
    }
    uint64_t sum = 0;
    uint64_t rows = 0;
    pyecho_batch batch = PYECHO_BATCH_INIT;
    pyecho_status status;
    while ((status = pyecho_acquire(buffer, &batch, PYECHO_FOREVER)) == PYECHO_OK) {
      for (size_t i = 0; i < batch.rows * source.row_bytes; ++i) {
        sum += batch.data[i];
      }
      rows += batch.rows;
      check(pyecho_release_batch(buffer, &batch));
    }
    if (status != PYECHO_END) {
      check(status);
    }
    for (int i = 0; i < THREADS; ++i) {
      pthread_join(threads[i], NULL);
    }
    printf("epoch %d: %llu rows, sum %llu\n", epoch, (unsigned long long)rows, (unsigned long long)sum);
  }
  pyecho_release(buffer);
  close(source.file);
  return 0;
}
