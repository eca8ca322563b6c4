/* Outputs of images:  run WEIGHTS IMAGES.npy SAMPLES THREADS
 * Writes out.logits and others as floats. Threads are the library's; with memory of the caller if their number is odd. */
#include "common.h"
#include "model.h"

int main(int argc, char **argv) {
  NEED(argc == 5, "four arguments");
  char why[MODEL_WHY];
  const int64_t n = atoi(argv[3]);
  const int threads = atoi(argv[4]);
  void *memory = threads % 2 ? aligned_alloc(64, model_bytes()) : NULL;
  model *m = model_new(memory, memory ? model_bytes() : 0, threads, why);
  NEED(m, "%s", why);
  NEED(!model_load(m, argv[1], why), "%s", why);
  float *image = read_floats(argv[2], n * MODEL_IMAGE);
  float *logits = malloc(sizeof *logits * (size_t)(n * MODEL_LOGITS));
  float *features = malloc(sizeof *features * (size_t)(n * MODEL_FEATURES));
  float *flipped = malloc(sizeof *flipped * (size_t)(n * MODEL_FLIPPED));
  const model_inputs in = {.image = image};
  const model_outputs out = {.logits = logits, .features = features, .flipped = flipped};
  NEED(!model_run(m, n, &in, &out, why), "%s", why);
  write_floats("out.logits", logits, n * MODEL_LOGITS);
  write_floats("out.features", features, n * MODEL_FEATURES);
  write_floats("out.flipped", flipped, n * MODEL_FLIPPED);
  /* By position, one output alone. */
  float *again = malloc(sizeof *again * (size_t)(n * MODEL_LOGITS));
  const void *inputs[1];
  float *outputs[4] = {0};
  NEED(model_input("image") == 0 && model_input("label") == -1, "inputs");
  NEED(model_output("logits") >= 0 && model_output("image") == -1, "outputs");
  inputs[model_input("image")] = image;
  outputs[model_output("logits")] = again;
  NEED(!model_run(m, n, (const model_inputs *)inputs, (const model_outputs *)outputs, why), "%s", why);
  NEED(!memcmp(again, logits, sizeof *again * (size_t)(n * MODEL_LOGITS)), "other logits by position");
  model_free(m);
  free(memory), free(image), free(logits), free(features), free(flipped), free(again);
  return 0;
}
