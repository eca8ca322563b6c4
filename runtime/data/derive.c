/* Inputs that are computed from another input's tokens, a sample at a time (pd_runtime.h lists them). Philox,
 * keyed by a seed and counted by sample and position, makes random choices, so that inputs with common choices
 * agree, independent of the plan. */
#include "data/data.h"
#include "kernels/pd_math.h"

bool pd_is_derived(const struct pd_input *in) { return in->origin != PD_FILE && in->origin != PD_IMAGE; }

bool pd_is_random(const struct pd_input *in) {
  return in->origin == PD_NORMAL_NOISE || in->origin == PD_UNIFORM_NOISE || in->origin == PD_RANDOM_INT;
}

bool pd_is_weight(const struct pd_input *in) { return in->origin == PD_COUNTED || in->origin == PD_CHOSEN; }

int64_t pd_ignored(const struct pd_input *inputs, int n, int input) {
  for (int i = 0; i < n; i++)
    if (inputs[i].origin == PD_COUNTED && inputs[i].from == input && inputs[i].numbers[0] < 0)
      return (int64_t)inputs[i].numbers[0];
  return 0;
}

int pd_derived_from(const struct pd_input *inputs, int input) {
  int from = inputs[input].from;
  return inputs[input].origin == PD_CHOSEN ? inputs[from].from : from;
}

static int64_t length_of(const int32_t *x, int64_t n, double pad) {
  while (n > 0 && x[n - 1] == (int32_t)pad) n--;
  return n;
}

static void find_segments(const int32_t *x, int64_t n, const double *numbers, int32_t *to) {
  int64_t length = length_of(x, n, numbers[1]);
  int32_t segment = 0;
  for (int64_t i = 0; i < n; i++) {
    to[i] = i < length ? segment : 0;
    if (x[i] == (int32_t)numbers[0]) segment = 1;
  }
}

/* ---- corruption of masked language models ------------------------------------------------------ */

/* Random words of a position of a sample: word 0 chooses the position, word 1 the kind of change, word 2 a token.
 * `masked`: index of the PD_MASKED input. */
static pd_random draw(uint64_t seed, int masked, int64_t sample, int64_t position) {
  enum { MASKED = 0x6d61736b }; /* separates the key from other keys */
  return pd_philox((uint32_t)position, (uint32_t)masked, (uint32_t)sample, (uint32_t)(sample >> 32),
                   pd_mix(seed, MASKED));
}

static bool is_chosen(const struct pd_input *masked, pd_random r, int32_t token) {
  for (int i = 2; i < masked->n_numbers; i++)
    if (token == (int32_t)masked->numbers[i]) return false;
  return pd_uniform(r.word[0]) < (float)masked->numbers[1];
}

/* 80 % of the chosen positions become the mask, 10 % a random token, 10 % are unchanged (Devlin et al., "BERT",
 * 2019, 3.1). */
static int32_t corrupt(const struct pd_input *masked, pd_random r, int32_t token) {
  float what = pd_uniform(r.word[1]);
  if (what < 0.8f) return (int32_t)masked->numbers[0];
  return what < 0.9f ? (int32_t)((uint64_t)r.word[2] * (uint64_t)masked->classes >> 32) : token;
}

/* ---- all of them --------------------------------------------------------------------------------- */

void pd_derive(const struct pd_input *inputs, int input, const int32_t *x, uint64_t seed, int64_t sample,
               void *to) {
  const struct pd_input *in = &inputs[input];
  int64_t n = inputs[pd_derived_from(inputs, input)].elements, length;
  int32_t *tokens = to;
  float *numbers = to;
  switch (in->origin) {
  case PD_FILE:
  case PD_IMAGE:
  case PD_NORMAL_NOISE:
  case PD_UNIFORM_NOISE:
  case PD_RANDOM_INT:
  case PD_ABSENT: break;
  case PD_LENGTHS: tokens[0] = (int32_t)length_of(x, n, in->numbers[0]); break;
  case PD_PRESENT:
    length = length_of(x, n, in->numbers[0]);
    for (int64_t i = 0; i < n; i++) numbers[i] = i < length;
    break;
  case PD_COUNTED:
    for (int64_t i = 0; i < n; i++) numbers[i] = x[i] != (int32_t)in->numbers[0];
    break;
  case PD_SHIFTED:
    for (int64_t i = 0; i < n; i++) tokens[i] = i ? x[i - 1] : (int32_t)in->numbers[0];
    break;
  case PD_SEGMENTS: find_segments(x, n, in->numbers, tokens); break;
  case PD_MASKED:
    for (int64_t i = 0; i < n; i++) {
      pd_random r = draw(seed, input, sample, i);
      tokens[i] = is_chosen(in, r, x[i]) ? corrupt(in, r, x[i]) : x[i];
    }
    break;
  case PD_CHOSEN:
    for (int64_t i = 0; i < n; i++)
      numbers[i] = is_chosen(&inputs[in->from], draw(seed, in->from, sample, i), x[i]);
  }
}
