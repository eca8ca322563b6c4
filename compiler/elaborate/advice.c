/* Equivalents for names from other languages and libraries. */
#include "elaborate/internal.h"

#include <ctype.h>
#include <string.h>

typedef struct Advice {
  const char *name, *text;
} Advice;

/* By name: functions, methods, arguments, constants and settings. */
static const Advice table[] = {
    {"BCELoss", "for logits z and targets y from 0 to 1, write 'softplus(z) - y * z'"},
    {"BCEWithLogitsLoss", "for logits z and targets y from 0 to 1, write 'softplus(z) - y * z'"},
    {"BatchNorm1d", "use 'batch_norm(x)' for values of every shape"},
    {"BatchNorm2d", "use 'batch_norm(x)' for values of every shape"},
    {"CrossEntropyLoss", "use 'cross_entropy(logits, target)' on logits, without a softmax"},
    {"F", "layers and operations have no prefix; write 'relu(x)'"},
    {"False", "write 'false'"},
    {"L1Loss", "write 'abs(x - target)'"},
    {"MSELoss", "use 'mse_loss(x, target)'"},
    {"ModuleList", "use a loop to repeat layers: 'for i in 0..n { x = h[i]: linear(x, 64); }'"},
    {"MultiheadAttention", "write 'use transformer;' and 'multihead_attention(query, key, value, n_head)'"},
    {"NLLLoss", "use 'cross_entropy(logits, target)' on logits, without a softmax"},
    {"None", "write 'none'; shapes are per sample, without the batch"},
    {"Parameter", "declare a parameter with 'param w[8, 4] = ...;'"},
    {"Sequential", "call layers one after the other: 'x = relu(fc: linear(x, 64));'"},
    {"True", "write 'true'"},
    {"add_module", "name an instance with a label: 'fc: linear(x, 64)'"},
    {"amax", "use 'max(x)' for the largest value along the last axis"},
    {"amin", "use '-max(-x)' for the smallest value along the last axis"},
    {"arange", "use 'iota(n)' for the numbers from 0 to n - 1"},
    {"argmax",
     "use 'metric accuracy = accuracy(logits, target);' to compare the largest value with a target, or 'output logits;'"},
    {"argsort", "the language cannot sort: use 'max(x)', 'accuracy(x, target)' or 'output x;'"},
    {"batch", "shapes are per sample, without the batch"},
    {"batch_size", "use 'batch', the number of samples per update"},
    {"bce_loss", "for logits z and targets y from 0 to 1, write 'softplus(z) - y * z'"},
    {"bernoulli", "use 'rand_like(x) < p': 1 with probability p, else 0"},
    {"binary_cross_entropy", "for logits z and targets y from 0 to 1, write 'softplus(z) - y * z'"},
    {"bmm", "use 'a @ b' for matrix products of the last two axes"},
    {"cat", "use 'concat(a, b, axis = -1)'"},
    {"chunk", "use 'split(x, n)' for n equal parts of the last axis"},
    {"clip", "use 'minimum(maximum(x, low), high)'"},
    {"cumprod", "the language has no running products; 'sum(x)' adds up the last axis"},
    {"dim", "use 'axis'; layers such as 'softmax' work along the last axis"},
    {"epochs", "set the number of updates when the run starts: '--steps N'"},
    {"gather", "use 'gather(table, tokens)' for rows of a table"},
    {"grad_clip", "use 'clip_norm = 1;' to clip the global norm of gradients"},
    {"item", "use 'metric NAME = ...;' to log a value"},
    {"keepdim", "leave it out: the axis stays with size 1"},
    {"kthvalue", "the language cannot sort: use 'max(x)', 'accuracy(x, target)' or 'output x;'"},
    {"learning_rate", "set it in the optimizer: 'optimizer = adamw(lr = 0.001);'"},
    {"lr", "set it in the optimizer: 'optimizer = adamw(lr = 0.001);'"},
    {"masked_fill", "use 'select(mask, value, x)': value if the mask is not 0, else x"},
    {"matmul", "use 'a @ b' for matrix products of the last two axes"},
    {"max_norm", "use 'clip_norm = 1;' to clip the global norm of gradients"},
    {"max_steps", "set the number of updates when the run starts: '--steps N'"},
    {"median", "the language cannot sort: use 'max(x)', 'accuracy(x, target)' or 'output x;'"},
    {"microbatch_size", "use the option 'pdc --microbatch N'"},
    {"mm", "use 'a @ b' for matrix products of the last two axes"},
    {"momentum", "set it in the optimizer: 'optimizer = sgd(lr = 0.1, momentum = 0.9);'"},
    {"mse", "use 'mse_loss(x, target)'"},
    {"nll_loss", "use 'cross_entropy(logits, target)' on logits, without a softmax"},
    {"nn", "layers and operations have no prefix; write 'linear(x, 10)'"},
    {"no_grad", "use 'detach(x)' to stop the gradient"},
    {"norm", "use 'sqrt(sum(square(x)))' for the norm along the last axis"},
    {"np", "layers and operations have no prefix; write 'sqrt(x)'"},
    {"numel", "use 'size(x, axis)' for the size of an axis"},
    {"ones", "for a parameter write 'param g[8] = ones;'; for a value use a number, which broadcasts"},
    {"ones_like", "use a number, which broadcasts to every shape: '1 + x'"},
    {"print", "use 'metric NAME = ...;' to log a value"},
    {"rand", "use 'rand_like(x)' for random numbers in the shape of a value per sample"},
    {"randn", "use 'randn_like(x)' for random numbers in the shape of a value per sample"},
    {"range", "write 'for i in 0..n { ... }' to count from 0 to n - 1"},
    {"repeat", "use 'expand(x, shape)' to repeat along axes of size 1"},
    {"requires_grad", "write 'freeze \"PATTERN\";' or 'train_only \"PATTERN\";' in 'train'"},
    {"scatter", "write 'use functional;' and 'index_add(x, tokens, n)' to add rows by token"},
    {"scatter_add", "write 'use functional;' and 'index_add(x, tokens, n)' to add rows by token"},
    {"scheduler", "set a schedule, such as 'lr_schedule = cosine(warmup, total, floor);'"},
    {"seed", "set the seed when the run starts: '--seed S'"},
    {"self", "a layer has no 'self'; name an instance with a label: 'fc: linear(x, 64)'"},
    {"sort", "the language cannot sort: use 'max(x)', 'accuracy(x, target)' or 'output x;'"},
    {"squeeze", "use 'reshape(x, shape)' or a subscript such as 'x[.., 0]' to drop an axis of size 1"},
    {"stack", "use 'concat(unsqueeze(a), unsqueeze(b), axis = -1)'"},
    {"std", "use 'sqrt(mean(square(x - mean(x))))' for the standard deviation along the last axis"},
    {"steps", "set the number of updates when the run starts: '--steps N'"},
    {"t", "use 'x.T' to swap the last two axes"},
    {"tensor", "write numbers directly: '0.5 * x'"},
    {"tile", "use 'expand(x, shape)' to repeat along axes of size 1"},
    {"to", "leave it out: values have no device and no choice of type"},
    {"topk", "the language cannot sort: use 'max(x)', 'accuracy(x, target)' or 'output x;'"},
    {"torch", "layers and operations have no prefix; write 'concat(a, b)'"},
    {"tril", "use 'causal = true' of 'attention' to hide later positions"},
    {"triu", "use 'causal = true' of 'attention' to hide later positions"},
    {"var", "use 'mean(square(x - mean(x)))' for the variance along the last axis"},
    {"view", "use 'reshape(x, [4, -1])'"},
    {"warmup", "set it in the schedule: 'lr_schedule = cosine(warmup, total, floor);'"},
    {"warmup_steps", "set it in the schedule: 'lr_schedule = cosine(warmup, total, floor);'"},
    {"weight_decay", "set it in the optimizer: 'optimizer = adamw(lr = 0.001, weight_decay = 0.1);'"},
    {"where", "use 'select(condition, a, b)': a if the condition is not 0, else b"},
    {"zeros", "for a parameter write 'param b[8] = zeros;'; for a value use a number, which broadcasts"},
    {"zeros_like", "use a number, which broadcasts to every shape: '0 + x'"},
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
