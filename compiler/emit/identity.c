/* Prints the plan-independent training settings that checkpoints record. */
#include "emit/print.h"

static void print_settings(Emit *e, const char *head, const Setting *at, int n, const char *tail) {
  Names items = {0};
  for (int i = 0; i < n; i++)
    push(&items, internf("%s, %s", string_literal(at[i].name), string_literal(at[i].value)));
  text_list(&e->out, 2, head, &items, tail);
}

/* The model's training settings and the command line's precision. */
static Identity identity_of(const Emit *e) {
  Identity x = {.function = e->identity->function};
  for (int i = 0; i < e->identity->settings.n; i++)
    push(&x.settings, e->identity->settings.at[i]);
  push(&x.settings, (Setting){"precision", precision_name(e->k->target.precision)});
  if (e->k->target.residual != RESIDUAL_F32)
    push(&x.settings, (Setting){"residual", residual_name(e->k->target.residual)});
  return x;
}

void identity_add_delays(Identity *to, const Pieces *p, const Plan *plan, const Program *programs) {
  Text text = {0};
  bool by_stage = programs[0].delay > 1;
  for (int i = 0; i < plan->pipeline.n_stages; i++) {
    const int first = plan->stage[plan_part_of(plan, i, 0)].first_piece;
    text_add(&text, "%s%s %lld", i ? ", " : "", p->at[first].name, (long long)programs[i].delay);
    by_stage |= programs[i].delay != programs[0].delay;
  }
  if (by_stage)
    push(&to->settings, (Setting){"delays of gradients", text.at});
}

void identity_tables(Emit *e) {
  const Identity x = identity_of(e);
  print_settings(e, "static const char *const function[] = {", x.function.at, x.function.n,
                 "}; /* the computed function, by part */\n");
  print_settings(e, "static const char *const settings[] = {", x.settings.at, x.settings.n,
                 "}; /* of training */\n\n");
}

void traits_table(Emit *e) {
  const Settings *x = &e->identity->traits;
  if (x->n)
    print_settings(e, "static const char *const traits[] = {", x->at, x->n,
                   "}; /* as Hugging Face's config.json has it */\n\n");
}

void traits_field(Emit *e) {
  if (e->identity->traits.n)
    text_add(&e->out, "  .traits = traits, .n_traits = %d,\n", e->identity->traits.n);
  if (e->g->adapter_config)
    text_add(&e->out, "  .adapter_config = %s,\n", string_literal(e->g->adapter_config));
}

void identity_fields(Emit *e) {
  text_add(&e->out, "  .function = function, .n_function = %d, .settings = settings, .n_settings = %d,\n",
           e->identity->function.n, identity_of(e).settings.n);
}
