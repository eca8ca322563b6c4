/* Tokens behind a prompt:  generate WEIGHTS TEMPERATURE TOP_K TOP_P SEED TOKENS PROMPT...
 * Prints them with commas; computes them twice, and once again after another prompt. */
#include "common.h"
#include "model.h"

struct taken {
  int32_t token[MODEL_CONTEXT + 1];
  int64_t n, most;
};

static int take(void *context, int32_t token) {
  struct taken *t = context;
  t->token[t->n++] = token;
  return t->n == t->most;
}

int main(int argc, char **argv) {
  NEED(argc > 7, "arguments");
  char why[MODEL_WHY];
  int32_t prompt[MODEL_CONTEXT + 1];
  const int64_t n = argc - 7, most = atoi(argv[6]);
  const model_drawing how = {.temperature = (float)atof(argv[2]),
                             .top_k = atoi(argv[3]),
                             .top_p = (float)atof(argv[4]),
                             .seed = (uint64_t)atoi(argv[5])};
  model *m = model_new(NULL, 0, 0, why);
  NEED(m, "%s", why);
  NEED(!model_load(m, argv[1], why), "%s", why);
  for (int64_t i = 0; i < n; i++) prompt[i] = atoi(argv[7 + i]);
  struct taken first = {.most = -1}, again = {.most = -1}, few = {.most = 2};
  NEED(model_generate(m, prompt, n, most, &how, take, &first, why) == first.n, "%s", why);
  NEED(model_generate(m, prompt, n, most, &how, take, &again, why) == again.n, "%s", why);
  NEED(!memcmp(&first, &again, sizeof first - sizeof first.most), "another time, other tokens");
  const int32_t other = prompt[n - 1] == 1 ? 2 : 1; /* 0 may be padding */
  again.n = 0;
  NEED(model_generate(m, &other, 1, 3, NULL, NULL, NULL, why) == 3, "%s", why);
  NEED(model_generate(m, prompt, n, most, &how, take, &again, why) == again.n, "%s", why);
  NEED(!memcmp(&first, &again, sizeof first - sizeof first.most), "other tokens after another prompt");
  NEED(model_generate(m, prompt, n, most, &how, take, &few, why) == (first.n < 2 ? first.n : 2), "%s", why);
  for (int64_t i = 0; i < first.n; i++) printf("%s%d", i ? "," : "", first.token[i]);
  printf("\n");
  model_free(m);
  return 0;
}
