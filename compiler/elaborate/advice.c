/* What to write instead of what other languages and libraries have, for those who come from there. */
#include "elaborate/internal.h"

#include <ctype.h>
#include <string.h>

typedef struct Advice {
  const char *name, *text;
} Advice;

/* By what was written: a function, a method, an argument, a constant, a setting. */
static const Advice table[] = {
    {"BCELoss", "of logits z and a target y in 0 to 1: 'softplus(z) - y * z'"},
    {"BCEWithLogitsLoss", "of logits z and a target y in 0 to 1: 'softplus(z) - y * z'"},
    {"BatchNorm1d", "'batch_norm(x)' suits values of every shape"},
    {"BatchNorm2d", "'batch_norm(x)' suits values of every shape"},
    {"CrossEntropyLoss", "'cross_entropy(logits, target)' takes logits, and no softmax before it"},
    {"F", "layers and operations have no prefix: 'relu(x)'"},
    {"False", "it is written 'false'"},
    {"GRU", "'use recurrent;' has 'lstm(x, hidden_size)'"},
    {"L1Loss", "'abs(x - target)' is the error of each element"},
    {"MSELoss", "'mse_loss(x, target)' is the squared error of each element"},
    {"ModuleList", "a loop repeats layers: 'for i in 0..n { x = h[i]: linear(x, 64); }'"},
    {"MultiheadAttention", "'use transformer;' has 'attention(x, n_head)'"},
    {"NLLLoss", "'cross_entropy(logits, target)' takes logits, and no softmax before it"},
    {"None", "it is written 'none'; shapes are those of one sample, and leave the batch out"},
    {"Parameter", "'param w[8, 4];' declares a parameter"},
    {"RNN", "'use recurrent;' has 'lstm(x, hidden_size)'"},
    {"Sequential", "layers are called one after the other: 'x = relu(fc: linear(x, 64));'"},
    {"True", "it is written 'true'"},
    {"add_module", "a label names an instance: 'fc: linear(x, 64)'"},
    {"amax", "'max(x)' is the largest along the last axis"},
    {"amin", "'-max(-x)' is the smallest along the last axis"},
    {"arange", "'iota(n)' counts from 0 to n - 1"},
    {"argmax",
     "'metric accuracy = accuracy(logits, target);' compares the largest with a target, 'output logits;' writes all"},
    {"argsort",
     "no layer sorts: 'max(x)' is the largest along the last axis, 'accuracy' compares it with a target, 'output x;' writes all"},
    {"batch", "shapes are those of one sample, and leave the batch out"},
    {"batch_size", "'batch' is the number of samples an update"},
    {"bce_loss", "of logits z and a target y in 0 to 1: 'softplus(z) - y * z'"},
    {"bernoulli", "random numbers come from 'dropout', and from the 'init' of parameters"},
    {"binary_cross_entropy", "of logits z and a target y in 0 to 1: 'softplus(z) - y * z'"},
    {"binary_cross_entropy_with_logits", "of logits z and a target y in 0 to 1: 'softplus(z) - y * z'"},
    {"bmm", "'a @ b' multiplies matrices, the last two axes"},
    {"cat", "'concat(a, b, axis = -1)' joins values"},
    {"chunk", "'split(x, n)' cuts the last axis into n equal parts"},
    {"clamp", "'minimum(maximum(x, low), high)' keeps x between two numbers"},
    {"clip", "'minimum(maximum(x, low), high)' keeps x between two numbers"},
    {"cumprod", "'sum(x)' adds up the last axis; no layer has the products on the way"},
    {"cumsum", "'sum(x)' adds up the last axis; no layer has the sums on the way"},
    {"dim", "axes are given by 'axis'; layers such as 'softmax' work along the last"},
    {"einsum", "'@', 'permute' and 'sum' say the same step by step"},
    {"epochs", "how long a run goes is said when it starts: '--steps N'"},
    {"full", "a number takes every shape: '1 + x'"},
    {"gather", "'gather(table, tokens)' takes rows"},
    {"grad_clip", "'clip_norm = 1;' limits the norm of all gradients together"},
    {"gru", "'use recurrent;' has 'lstm(x, hidden_size)'"},
    {"index_add", "'one_hot(tokens).T @ x' adds rows up by token"},
    {"index_select", "'gather(table, tokens)' takes rows"},
    {"item", "'metric NAME = ...;' logs a figure"},
    {"keepdim", "a reduction keeps its axis, with size 1"},
    {"kthvalue",
     "no layer sorts: 'max(x)' is the largest along the last axis, 'accuracy' compares it with a target, 'output x;' writes all"},
    {"l1_loss", "'abs(x - target)' is the error of each element"},
    {"learning_rate", "it is the optimizer's: 'optimizer = adamw(lr = 0.001);'"},
    {"log_softmax", "'cross_entropy(logits, target)' takes logits, and no softmax before it"},
    {"logsumexp", "'m + log(sum(exp(x - m)))' of 'm = max(x)' is it, along the last axis"},
    {"lr", "it is the optimizer's: 'optimizer = adamw(lr = 0.001);'"},
    {"masked_fill", "'select(mask, value, x)' puts a value where the mask is not 0"},
    {"matmul", "'a @ b' multiplies matrices, the last two axes"},
    {"max_norm", "'clip_norm = 1;' limits the norm of all gradients together"},
    {"max_steps", "how long a run goes is said when it starts: '--steps N'"},
    {"median",
     "no layer sorts: 'max(x)' is the largest along the last axis, 'accuracy' compares it with a target, 'output x;' writes all"},
    {"microbatch_size", "it is an option: 'pdc --microbatch N'"},
    {"mm", "'a @ b' multiplies matrices, the last two axes"},
    {"momentum", "it is the optimizer's: 'optimizer = sgd(lr = 0.1, momentum = 0.9);'"},
    {"mse", "'mse_loss(x, target)' is the squared error of each element"},
    {"nll_loss", "'cross_entropy(logits, target)' takes logits, and no softmax before it"},
    {"nn", "layers and operations have no prefix: 'linear(x, 10)'"},
    {"no_grad", "'detach(x)' lets no gradient through"},
    {"norm", "'sqrt(sum(square(x)))' is the norm along the last axis"},
    {"np", "layers and operations have no prefix: 'sqrt(x)'"},
    {"numel", "'size(x, axis)' is the length of an axis"},
    {"ones",
     "'param g[8] = ones;' declares a parameter of ones; where a value is needed, a number takes every shape"},
    {"ones_like", "a number takes every shape: '1 + x'"},
    {"print", "'metric NAME = ...;' logs a figure"},
    {"rand", "random numbers come from 'dropout', and from the 'init' of parameters"},
    {"randn", "random numbers come from 'dropout', and from the 'init' of parameters"},
    {"range", "'for i in 0..n { ... }' counts from 0 to n - 1"},
    {"repeat", "'expand(x, shape)' repeats along axes of size 1"},
    {"requires_grad", "'freeze \"PATTERN\";' in 'train' keeps parameters as they are"},
    {"scatter", "'one_hot(tokens).T @ x' adds rows up by token"},
    {"scatter_add", "'one_hot(tokens).T @ x' adds rows up by token"},
    {"scheduler", "'lr_schedule = cosine(warmup, total, floor);' is one"},
    {"seed", "it is said when a run starts: '--seed S'"},
    {"self", "a layer has no 'self': a label names an instance, as in 'fc: linear(x, 64)'"},
    {"sort",
     "no layer sorts: 'max(x)' is the largest along the last axis, 'accuracy' compares it with a target, 'output x;' writes all"},
    {"squeeze", "'reshape(x, shape)' drops axes of size 1, and so does a number as a subscript: 'x[.., 0]'"},
    {"stack", "'concat(unsqueeze(a), unsqueeze(b), axis = -1)' puts values side by side on a new axis"},
    {"std", "'sqrt(mean(square(x - mean(x))))' is the deviation along the last axis"},
    {"steps", "how long a run goes is said when it starts: '--steps N'"},
    {"t", "'x.T' swaps the last two axes"},
    {"tensor", "numbers are written as they are: '0.5 * x'"},
    {"tile", "'expand(x, shape)' repeats along axes of size 1"},
    {"to", "values have no device, nor a type to choose"},
    {"topk",
     "no layer sorts: 'max(x)' is the largest along the last axis, 'accuracy' compares it with a target, 'output x;' writes all"},
    {"torch", "layers and operations have no prefix: 'concat(a, b)'"},
    {"tril", "'causal = true' of 'attention' hides what follows"},
    {"triu", "'causal = true' of 'attention' hides what follows"},
    {"var", "'mean(square(x - mean(x)))' is the variance along the last axis"},
    {"view", "'reshape(x, [4, -1])' gives another shape"},
    {"warmup", "it is a schedule's: 'lr_schedule = cosine(warmup, total, floor);' is one"},
    {"warmup_steps", "it is a schedule's: 'lr_schedule = cosine(warmup, total, floor);' is one"},
    {"weight_decay", "it is the optimizer's: 'optimizer = adamw(lr = 0.001, weight_decay = 0.1);'"},
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
    help(d, "values have no methods: write '%s(%s, ...)'", method, value);
}
