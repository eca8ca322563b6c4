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

/* Calls the instance under way; frees it at the third token. */
struct inner {
  model *m;
  const char *weights;
  int n;
};

static int call_again(void *context, int32_t token) {
  struct inner *x = context;
  NEED(model_generate(x->m, &token, 1, 1, NULL, NULL, NULL, why) == -1 && says("is generating"), "generate");
  NEED(model_load(x->m, "absent", why) == -1 && says("is generating"), "load");
  NEED(model_load(x->m, x->weights, why) == -1 && says("is generating"), "load");
  if (++x->n == 3) model_free(x->m);
  return 0;
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
  NEED(model_generate(NULL, prompt, 1, 1, NULL, NULL, NULL, why) == -1 && says("the instance is NULL"),
       "no instance");
  NEED(model_generate(m, NULL, 1, 1, NULL, NULL, NULL, why) == -1 && says("an argument is NULL"), "no prompt");
  NEED(model_tokenizer(NULL, "x", why) == -1 && says("the instance is NULL"), "no instance");
  NEED(model_tokenizer(m, NULL, why) == -1 && says("an argument is NULL"), "no path");
  NEED(model_encode(NULL, "x", 1, NULL, 0, NULL) == -1 && model_decode(NULL, prompt, 1, NULL, 0, NULL) == -1,
       "no instance");
  NEED(model_generate_text(NULL, "x", 1, 1, NULL, NULL, NULL, NULL, why) == -1 && says("the instance is NULL"),
       "no instance");
  struct inner inner = {m, argv[1], -2};
  NEED(model_generate(m, prompt, 1, 4, NULL, call_again, &inner, why) == 4, "calls in a callback: %s", why);
  NEED(model_generate(m, prompt, 1, 4, NULL, NULL, NULL, why) == 4, "after them: %s", why);
  inner.n = 0;
  NEED(model_generate(m, prompt, 1, 9, NULL, call_again, &inner, why) == 3, "freed in a callback: %s", why);
  return 0;
}
