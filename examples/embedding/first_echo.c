/* Two threads put 1,000 numbers; the main thread takes batches of them, in which each number comes twice. */
#include <pthread.h>
#include <pyecho/pyecho.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define PRODUCERS 2
#define NUMBERS 1000

static pyecho_buffer* buffer;
static atomic_int next_number = 0;
static atomic_int at_work = PRODUCERS;

static void* produce(void* unused) {
  (void)unused;
  for (int i = atomic_fetch_add(&next_number, 1); i < NUMBERS; i = atomic_fetch_add(&next_number, 1)) {
    pyecho_slot slot;
    if (pyecho_reserve(buffer, &slot, 1, PYECHO_FOREVER, NULL) != PYECHO_OK) { /* waits for room */
      break;                                                                   /* the consumer has stopped */
    }
    const float number = (float)i;
    memcpy(slot.data, &number, sizeof(number));
    pyecho_commit(buffer, &slot, 1);
  }
  if (atomic_fetch_sub(&at_work, 1) == 1) { /* the last one to leave closes, as the others may still put some */
    pyecho_close(buffer);
  }
  return NULL;
}

int main(void) {
  pyecho_leaf leaf = PYECHO_LEAF_INIT; /* an example is one number */
  leaf.dtype = "<f4";
  pyecho_config config = PYECHO_CONFIG_INIT;
  config.leaves = &leaf;
  config.leaf_count = 1;
  config.factor = 2;
  config.batch_size = 32;
  config.shuffle_buffer = 320;
  if (pyecho_create(&config, &buffer) != PYECHO_OK) {
    puts(pyecho_last_error());
    return 1;
  }
  pthread_t producers[PRODUCERS];
  for (int i = 0; i < PRODUCERS; ++i) {
    if (pthread_create(&producers[i], NULL, produce, NULL) != 0) {
      puts("no thread could be started");
      return 1;
    }
  }
  unsigned rows = 0;
  double sum = 0;
  pyecho_status status;
  pyecho_batch batch = PYECHO_BATCH_INIT;
  while ((status = pyecho_acquire(buffer, &batch, PYECHO_FOREVER)) == PYECHO_OK) {
    const float* numbers = (const float*)batch.data;
    for (unsigned row = 0; row < batch.rows; ++row) {
      sum += numbers[row];
    }
    rows += batch.rows;
    pyecho_release_batch(buffer, &batch);
  }
  if (status != PYECHO_END) {
    puts(pyecho_last_error());
  }
  pyecho_stop(buffer); /* so that no producer waits for room any more, should this be an early end */
  for (int i = 0; i < PRODUCERS; ++i) {
    pthread_join(producers[i], NULL);
  }
  pyecho_release(buffer);
  printf("%u rows, sum %.0f\n", rows, sum);
  return status == PYECHO_END ? 0 : 1;
}
