/* Prints what a profile measured on the GPU: the algorithms of products and the engines of attention. */
#include <inttypes.h>

#include "emit/print.h"

static const Algorithms *algorithms_of(const Emit *e) {
  const Algorithms *a = e->plan->algorithms;
  return e->dialect->takes_algorithms && a && a->of.n ? a : NULL;
}

static const Attentions *attentions_of(const Emit *e) {
  const Attentions *a = e->plan->attentions;
  return e->dialect->takes_algorithms && a && a->of.n ? a : NULL;
}

static void print_algorithms(Emit *e, const Algorithms *a) {
  text_add(&e->out, "/* How cuBLASLt was fastest at products, when they were measured. */\n"
                    "static const struct pd_algorithm algorithms[] = {\n");
  for (int i = 0; i < a->of.n; i++) {
    Names fields = {0};
    for (int k = 0; k < ALGORITHM_NUMBERS; k++)
      if (a->of.at[i].number[k])
        push(&fields, internf(".%s = %" PRId64, algorithm_members[k], a->of.at[i].number[k]));
    text_add(&e->out, "  {.product = %s,\n", string_literal(a->of.at[i].product));
    text_list(&e->out, 3, "   ", &fields, "},\n");
  }
  text_add(&e->out, "};\n\n");
}

static void print_attentions(Emit *e, const AttentionList *all) {
  text_add(&e->out, "/* The attentions at which cuDNN was faster than the runtime's kernels. */\n"
                    "static const struct pd_planned_attention attentions[] = {\n");
  for (int i = 0; i < all->n; i++) {
    const Attention *a = &all->at[i];
    text_add(&e->out, "  {.attention = %s,\n", string_literal(a->attention));
    text_add(&e->out, "   .engine = %" PRId64 ", .workspace = %" PRId64 ", .n_knobs = %d", a->engine, a->workspace,
             a->n_knobs);
    for (int k = 0; k < 2 * a->n_knobs; k++)
      text_add(&e->out, "%s%" PRId64, k ? ", " : ", .knobs = {", a->knobs[k]);
    text_add(&e->out, a->n_knobs ? "}},\n" : "},\n");
  }
  text_add(&e->out, "};\n\n");
}

/* The tables, before setup(). */
void print_measured(Emit *e) {
  const Algorithms *algorithms = algorithms_of(e);
  const Attentions *attentions = attentions_of(e);
  if (algorithms)
    print_algorithms(e, algorithms);
  if (attentions)
    print_attentions(e, &attentions->of);
}

/* The statements of setup() that read the tables. */
void use_measured(Emit *e) {
  const Algorithms *algorithms = algorithms_of(e);
  const Attentions *attentions = attentions_of(e);
  if (algorithms)
    text_add(&e->out, "  pd_use_algorithms(algorithms, %d, %s, %" PRId64 ");\n", algorithms->of.n,
             string_literal(algorithms->library.device), algorithms->library.version);
  if (attentions)
    text_add(&e->out, "  pd_use_attentions(attentions, %d, %s, %" PRId64 ");\n", attentions->of.n,
             string_literal(attentions->library.device), attentions->library.version);
}
