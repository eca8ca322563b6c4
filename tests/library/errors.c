/* Calls that must fail with a text:  errors WEIGHTS FOLDER
 * FOLDER has damaged copies of the weights. The instance works afterwards. */
#include "common.h"
#include "model.h"

static char why[MODEL_WHY];

/* Whether the reason has this text; clears it. */
static int says(const char *text) {
  const int found = strstr(why, text) != NULL;
  if (!found) fprintf(stderr, "not '%s': '%s'\n", text, why);
  memset(why, 0, sizeof why);
  return found;
}

static void fails_to_load(model *m, const char *folder, const char *name, const char *text) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  NEED(model_load(m, path, why) == -1 && says(text), "%s", name);
  NEED(model_load(m, path, NULL) == -1, "%s without room for a reason", name);
}

static void fails_to_start(void) {
  const size_t bytes = model_bytes();
  char *memory = aligned_alloc(64, bytes + 64);
  NEED(!model_new(memory, bytes - 1, 0, why) && says("needs"), "too small");
  NEED(!model_new(memory + 8, bytes, 0, why) && says("aligned to 64"), "not aligned");
  NEED(!model_new(NULL, 0, 1000, why) && says("1000 threads"), "threads");
  NEED(!model_new(NULL, 0, -1, NULL), "threads");
  free(memory);
}

int main(int argc, char **argv) {
  NEED(argc == 3, "two arguments");
  static float image[2 * MODEL_IMAGE], logits[2 * MODEL_LOGITS];
  const model_inputs in = {.image = image}, none = {0};
  const model_outputs out = {.logits = logits};
  fails_to_start();
  model_free(NULL);
  model *m = model_new(NULL, 0, 0, why);
  NEED(m, "%s", why);
  NEED(model_run(m, 1, &in, &out, why) == -1 && says("no weights"), "run before load");
  fails_to_load(m, argv[2], "absent.safetensors", "cannot read");
  fails_to_load(m, argv[2], "short.safetensors", "cannot read");
  fails_to_load(m, argv[2], "empty.safetensors", "cannot read");
  fails_to_load(m, argv[2], "noise.safetensors", "cannot read");
  fails_to_load(m, argv[2], "reshaped.safetensors", "has shape");
  fails_to_load(m, argv[2], "fewer.safetensors", "no tensor");
  fails_to_load(m, argv[2], "no_model", "model.safetensors");
  fails_to_load(m, argv[2], "no_part", "cannot");
  fails_to_load(m, argv[2], "no_file", "no_file/model.safetensors': it is not a regular file");
  fails_to_load(m, argv[2], "no_index", "no_index/model.safetensors.index.json': it is not a regular file");
  NEED(model_load(NULL, argv[1], why) == -1 && says("the instance is NULL"), "no instance");
  NEED(model_load(m, NULL, why) == -1 && says("an argument is NULL"), "no path");
  NEED(model_run(NULL, 1, &in, &out, why) == -1 && says("the instance is NULL"), "no instance");
  NEED(!model_load(m, argv[1], why), "%s", why);
  NEED(model_run(m, 2, &none, &out, why) == -1 && says("'image' is missing"), "no input");
  NEED(model_run(m, -1, &in, &out, why) == -1 && says("-1 samples"), "samples");
  NEED(!model_run(m, 0, &in, &out, why), "no samples: %s", why);
  NEED(!model_run(m, 2, &in, &out, why), "%s", why);
  fails_to_load(m, argv[2], "fewer.safetensors", "no tensor");
  NEED(model_run(m, 1, &in, &out, why) == -1 && says("no weights"), "run after a load that failed");
  model_free(m);
  return 0;
}
