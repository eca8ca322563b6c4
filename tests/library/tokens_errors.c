/* Calls of a generator that must fail with a text:  tokens_errors WEIGHTS */
#include "common.h"
#include "model.h"

static char why[MODEL_WHY];

static int says(const char *text) {
  const int found = strstr(why, text) != NULL;
  if (!found) fprintf(stderr, "not '%s': '%s'\n", text, why);
  memset(why, 0, sizeof why);
  return found;
}

int main(int argc, char **argv) {
  NEED(argc == 2, "an argument");
  int32_t prompt[MODEL_CONTEXT + 1] = {0}, wrong[] = {0, MODEL_TOKENS}, negative[] = {-1};
  const model_drawing cold = {.temperature = -1}, sure = {.temperature = 1, .top_p = 2};
  model *m = model_new(NULL, 0, 0, why);
  NEED(m, "%s", why);
  NEED(model_generate(m, prompt, 1, 1, NULL, NULL, NULL, why) == -1 && says("no weights"), "before load");
  NEED(!model_load(m, argv[1], why), "%s", why);
  NEED(model_generate(m, prompt, 0, 1, NULL, NULL, NULL, why) == -1 && says("0 tokens"), "no prompt");
  NEED(model_generate(m, prompt, MODEL_CONTEXT + 1, 1, NULL, NULL, NULL, why) == -1 && says("context"), "long");
  NEED(model_generate(m, wrong, 2, 1, NULL, NULL, NULL, why) == -1 && says("token 1 of the prompt"), "token");
  NEED(model_generate(m, negative, 1, 1, NULL, NULL, NULL, why) == -1 && says("is -1"), "token");
  NEED(model_generate(m, prompt, 1, -2, NULL, NULL, NULL, why) == -1 && says("-2 new tokens"), "most");
  NEED(model_generate(m, prompt, 1, 1, &cold, NULL, NULL, why) == -1 && says("temperature"), "temperature");
  NEED(model_generate(m, prompt, 1, 1, &sure, NULL, NULL, why) == -1 && says("top_p"), "top_p");
  NEED(model_generate(m, prompt, MODEL_CONTEXT, 5, NULL, NULL, NULL, why) == 1, "a full context: %s", why);
  NEED(model_generate(m, prompt, 1, MODEL_CONTEXT + 9, NULL, NULL, NULL, why) == MODEL_CONTEXT, "to its end: %s",
       why);
  model_free(m);
  return 0;
}
