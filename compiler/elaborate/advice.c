/* What to write instead of what other languages and libraries have, for those who come from there. */
#include "elaborate/internal.h"

#include <ctype.h>
#include <string.h>

typedef struct Advice {
  const char *name, *text;
} Advice;

/* By what was written: a function, a method, an argument, a constant, a setting. */
static const Advice table[] = {
    {"F", "layers and operations have no prefix: 'relu(x)'"},
    {"False", "it is written 'false'"},
    {"None", "it is written 'none'; shapes are those of one sample, and leave the batch out"},
    {"True", "it is written 'true'"},
    {"add_module", "a label names an instance: 'fc: linear(x, 64)'"},
    {"arange", "'iota(n)' counts from 0 to n - 1"},
    {"argmax",
     "'metric accuracy = accuracy(logits, target);' compares the largest with a target, 'output logits;' writes all"},
    {"batch", "shapes are those of one sample, and leave the batch out"},
    {"batch_size", "'batch' is the number of samples an update"},
    {"bce_loss", "of logits z and a target y in 0 to 1: 'softplus(z) - y * z'"},
    {"bmm", "'a @ b' multiplies matrices, the last two axes"},
    {"cat", "'concat(a, b, axis = -1)' joins values"},
    {"chunk", "'split(x, n)' cuts the last axis into n equal parts"},
    {"clamp", "'minimum(maximum(x, low), high)' keeps x between two numbers"},
    {"clip", "'minimum(maximum(x, low), high)' keeps x between two numbers"},
    {"dim", "axes are given by 'axis'; layers such as 'softmax' work along the last"},
    {"einsum", "'@', 'permute' and 'sum' say the same step by step"},
    {"epochs", "how long a run goes is said when it starts: '--steps N'"},
    {"gather", "'gather(table, tokens)' takes rows"},
    {"item", "'metric NAME = ...;' logs a figure"},
    {"keepdim", "a reduction keeps its axis, with size 1"},
    {"l1_loss", "'abs(x - target)' is the error of each element"},
    {"learning_rate", "it is the optimizer's: 'optimizer = adamw(lr = 0.001);'"},
    {"log_softmax", "'cross_entropy(logits, target)' takes logits, and no softmax before it"},
    {"lr", "it is the optimizer's: 'optimizer = adamw(lr = 0.001);'"},
    {"matmul", "'a @ b' multiplies matrices, the last two axes"},
    {"mm", "'a @ b' multiplies matrices, the last two axes"},
    {"mse", "'mse_loss(x, target)' is the squared error of each element"},
    {"nll_loss", "'cross_entropy(logits, target)' takes logits, and no softmax before it"},
    {"nn", "layers and operations have no prefix: 'linear(x, 10)'"},
    {"norm", "'sqrt(sum(square(x)))' is the norm along the last axis"},
    {"np", "layers and operations have no prefix: 'sqrt(x)'"},
    {"ones",
     "'param g[8] = ones;' declares a parameter of ones; where a value is needed, a number takes every shape"},
    {"ones_like", "a number takes every shape: '1 + x'"},
    {"print", "'metric NAME = ...;' logs a figure"},
    {"range", "'for i in 0..n { ... }' counts from 0 to n - 1"},
    {"repeat", "'expand(x, shape)' repeats along axes of size 1"},
    {"scheduler", "'lr_schedule = cosine(warmup, total, floor);' is one"},
    {"self", "a layer has no 'self': a label names an instance, as in 'fc: linear(x, 64)'"},
    {"squeeze", "'reshape(x, shape)' drops axes of size 1, and so does a number as a subscript: 'x[.., 0]'"},
    {"stack", "'concat(unsqueeze(a), unsqueeze(b), axis = -1)' puts values side by side on a new axis"},
    {"std", "'sqrt(mean(square(x - mean(x))))' is the deviation along the last axis"},
    {"t", "'x.T' swaps the last two axes"},
    {"tensor", "numbers are written as they are: '0.5 * x'"},
    {"tile", "'expand(x, shape)' repeats along axes of size 1"},
    {"to", "values have no device, nor a type to choose"},
    {"torch", "layers and operations have no prefix: 'concat(a, b)'"},
    {"var", "'mean(square(x - mean(x)))' is the variance along the last axis"},
    {"view", "'reshape(x, [4, -1])' gives another shape"},
    {"where", "'select(condition, a, b)' takes a where the condition is not 0, else b"},
    {"zeros",
     "'param b[8] = zeros;' declares a parameter of zeros; where a value is needed, a number takes every shape"},
    {"zeros_like", "a number takes every shape: '0 + x'"},
};

bool advise(Diagnostic *d, Name name) {
  for (size_t i = 0; i < sizeof table / sizeof *table; i++)
    if (strcmp(table[i].name, name) == 0) {
      help(d, "%s", table[i].text);
      return true;
    }
  return false;
}

Name snake_case(Name name) {
  Text t = {0};
  for (const char *p = name; *p; p++)
    text_add(&t, "%s%c", isupper((unsigned char)*p) && p > name && !isupper((unsigned char)p[-1]) ? "_" : "",
             tolower((unsigned char)*p));
  return intern(t.at);
}

void advise_method(Elaborator *e, const Frame *f, Diagnostic *d, Name value, Name method) {
  const Layer *layer;
  const Op *op;
  if (!advise(d, method) && (find_callable(e, f, method, &layer, &op) || builtin_known(method)))
    help(d, "values have no methods: '%s(%s, ...)' is a call", method, value);
}
