/* Two instances on two threads, many times, against one alone:  threads WEIGHTS IMAGES.npy SAMPLES */
#include "common.h"
#include "model.h"

#include <pthread.h>

enum { TIMES = 50, THREADS = 2 };

static const char *weights;
static float *image, *alone;
static int64_t n;

static float *compute(void) {
  char why[MODEL_WHY];
  model *m = model_new(NULL, 0, 1, why);
  NEED(m, "%s", why);
  NEED(!model_load(m, weights, why), "%s", why);
  float *logits = calloc((size_t)(n * MODEL_LOGITS), sizeof *logits);
  const model_inputs in = {.image = image};
  const model_outputs out = {.logits = logits};
  NEED(!model_run(m, n, &in, &out, why), "%s", why);
  model_free(m);
  return logits;
}

/* Makes, runs and frees instances while the other thread does, too. */
static void *work(void *unused) {
  for (int i = 0; i < TIMES; i++) {
    float *logits = compute();
    NEED(!memcmp(logits, alone, (size_t)(n * MODEL_LOGITS) * sizeof *logits), "time %d has other logits", i);
    free(logits);
  }
  return unused;
}

int main(int argc, char **argv) {
  NEED(argc == 4, "three arguments");
  pthread_t thread[THREADS];
  weights = argv[1];
  n = atoi(argv[3]);
  image = read_floats(argv[2], n * MODEL_IMAGE);
  alone = compute();
  for (int i = 0; i < THREADS; i++) NEED(!pthread_create(&thread[i], NULL, work, NULL), "a thread");
  for (int i = 0; i < THREADS; i++) NEED(!pthread_join(thread[i], NULL), "a thread");
  free(image), free(alone);
  return 0;
}
