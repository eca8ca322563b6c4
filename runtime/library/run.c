/* Outputs of samples. Batches are padded as `infer` pads them: by their first sample. */
#include "data/data.h"
#include "kernels/pd_bf16.h"
#include "library/library.h"

#include <string.h>

/* ---- names ----------------------------------------------------------------------------------------------- */

/* Inputs that pdc's programs compute from others' tokens; noise and masks are the caller's. */
static bool is_derived(const struct pd_input *in) {
  return in->origin == PD_LENGTHS || in->origin == PD_PRESENT || in->origin == PD_SHIFTED ||
         in->origin == PD_SEGMENTS;
}

int pd_model_input(const struct pd_model *m, const char *name) {
  for (int i = 0, own = 0; i < m->n_inputs; i++) {
    if (is_derived(&m->inputs[i])) continue;
    if (!strcmp(m->inputs[i].name, name)) return own;
    own++;
  }
  return -1;
}

int pd_model_output(const struct pd_model *m, const char *name) {
  for (int i = 0; i < m->n_outputs; i++)
    if (!strcmp(m->outputs[i].name, name)) return i;
  return -1;
}

/* The caller's index of an input. */
static int own_index(const struct pd_model *m, int input) {
  int own = 0;
  for (int i = 0; i < input; i++) own += !is_derived(&m->inputs[i]);
  return own;
}

/* ---- inputs ---------------------------------------------------------------------------------------------- */

/* One sample of an input; all have four bytes an element. */
static const void *sample_of(const struct pd_model *m, const void *const *inputs, int input, int64_t sample) {
  return (const char *)inputs[own_index(m, input)] + sample * m->inputs[input].elements * 4;
}

static bool check_tokens(const struct pd_input *in, const int32_t *tokens, int64_t n, char *why) {
  for (int64_t i = 0; i < n; i++)
    if (tokens[i] < 0 || tokens[i] >= in->classes)
      return pd_refuse(why, "input '%s': sample %lld has token %d, which is not 0 to %lld", in->name,
                       (long long)(i / in->elements), tokens[i], (long long)in->classes - 1);
  return true;
}

static bool check_inputs(const struct pd_instance *x, int64_t samples, const void *const *inputs, char *why) {
  const struct pd_model *m = x->model;
  if (!x->loaded) return pd_refuse(why, "%s has no weights: load them first", m->name);
  if (samples < 0) return pd_refuse(why, "%s: %lld samples", m->name, (long long)samples);
  for (int i = 0; i < m->n_inputs; i++) {
    const struct pd_input *in = &m->inputs[i];
    if (is_derived(in)) continue;
    if (samples && !inputs[own_index(m, i)])
      return pd_refuse(why, "%s: the input '%s' is missing", m->name, in->name);
    if (in->token && !check_tokens(in, inputs[own_index(m, i)], samples * in->elements, why)) return false;
  }
  return true;
}

static void load_sample(const struct pd_instance *x, const void *const *inputs, int input, int64_t sample,
                        int64_t row) {
  const struct pd_model *m = x->model;
  const struct pd_input *in = &m->inputs[input];
  char *at = x->arena + m->inputs_at[input];
  void *to = in->bf16 ? (char *)x->sample : at + row * in->elements * 4;
  if (is_derived(in))
    pd_derive(m->inputs, input, sample_of(m, inputs, in->from, sample), 0, sample, to);
  else
    memcpy(to, sample_of(m, inputs, input, sample), (size_t)in->elements * 4);
  if (in->origin == PD_IMAGE) pd_normalise(in, to);
  if (in->bf16) pd_write((pd_out){at, PD_BF16}, row * in->elements, to, in->elements);
}

/* Samples from `first` on, and the first one again behind the last. A source of derived inputs alone has no place. */
static void load(const struct pd_instance *x, const void *const *inputs, int64_t first, int64_t n) {
  for (int i = 0; i < x->model->n_inputs; i++)
    for (int64_t row = 0; row < x->model->microbatch && x->model->inputs_at[i] != PD_NOWHERE; row++)
      load_sample(x, inputs, i, row < n ? first + row : first, row);
}

/* ---- the call -------------------------------------------------------------------------------------------- */

int pd_instance_run(struct pd_instance *x, int64_t samples, const void *const *inputs, float *const *outputs,
                    char *why) {
  char unseen[PD_WHY];
  why = PD_WHY_OR(why, unseen);
  if (!pd_instance_given(x, inputs, why)) return -1;
  const struct pd_model *m = x->model;
  if (!check_inputs(x, samples, inputs, why)) return -1;
  for (int64_t first = 0, n; first < samples; first += n) {
    n = samples - first < m->microbatch ? samples - first : m->microbatch;
    load(x, inputs, first, n);
    if (!pd_instance_forward(x, 0, why)) return -1;
    for (int i = 0; i < m->n_outputs; i++)
      if (outputs[i])
        memcpy(outputs[i] + first * m->outputs[i].elements, x->arena + m->outputs_at[i],
               (size_t)(n * m->outputs[i].elements) * sizeof(float));
  }
  return 0;
}
