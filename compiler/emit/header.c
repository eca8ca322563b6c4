/* Prints the comment at the top of a stage's program: stage, batch, weights, times and memory. */
#include "emit/print.h"

#include <inttypes.h>
#include <string.h>

static char *milliseconds(double seconds) { return format("%.3g ms", 1e3 * seconds); }

/* "wte .. h.1", with chunks separated by ";". */
static char *stage_range(const Emit *e, int stage) {
  Text out = {0};
  for (int c = 0; c < pipeline_chunks(&e->plan->pipeline, stage); c++) {
    const StagePlan *s = &e->plan->stage[plan_part_of(e->plan, stage, c)];
    Name first = e->pieces->at[s->first_piece].name, last = piece_last_instance(e->g, e->pieces, s->end_piece - 1);
    text_add(&out, "%s%s .. ", c ? "; " : "", comment_text(first));
    text_add(&out, "%s", comment_text(last));
  }
  return out.at;
}

static char *sections_text(const Emit *e) {
  Text out = {0};
  for (int i = 0; i < SECTION_COUNT; i++) {
    const Section *s = &e->allocation->section[i];
    if (s->copies == 0)
      continue;
    text_add(&out, "%s%s ", out.n ? ", " : "", s->name);
    if (s->copies > 1)
      text_add(&out, "%d x ", s->copies);
    text_add(&out, "%s", bytes_text(s->bytes));
  }
  return out.at;
}

/* "This stage     text", with continuation lines aligned to the text. */
static void header_entry(Emit *e, const char *label, const char *text) {
  size_t column = 0;
  char *words = comment_text(text);
  text_add(&e->out, " * %-10s", label);
  for (char *word = words; *word;) {
    size_t n = strcspn(word, " ");
    if (column > 0 && 13 + column + 1 + n > WIDTH) {
      text_add(&e->out, "\n * %-10s", "");
      column = 0;
    }
    text_add(&e->out, " %.*s", (int)n, word);
    column += 1 + n;
    word += n;
    while (*word == ' ')
      word++;
  }
  text_add(&e->out, "\n");
}

/* The weight versions that batch t uses, in words. */
static char *version_words(const Emit *e) {
  const Program *p = e->p;
  if (e->library)
    return format("read by %s_load()", e->library);
  if (p->forward_only)
    return format("read from a file at the start; nothing changes them");
  if (p->delay == 0)
    return format("one version; batch t uses W(t), and update t makes W(t + 1) = optimizer(W(t), its gradient)");
  if (p->period == 1)
    return format("%d versions; each microbatch is a batch and runs forward and backward with the same version, "
                  "microbatch k with W(max(k - %" PRId64 ", 0)); update t makes W(t + 1) = optimizer(W(t), the "
                  "gradient of microbatch t + 1) in the place of the oldest version, so that the pipeline never "
                  "drains",
                  p->versions, p->delay + 1);
  return format(
      "%d versions; batch t runs forward and backward with W(max(t - %" PRId64
      ", 0)), and update t makes W(t + 1) = "
      "optimizer(W(t), that gradient) in the place of the oldest version, so that the pipeline never drains",
      p->versions, p->delay);
}

/* The file name of a path, because the text must not depend on the model's directory. */
static const char *base(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

static const char *ranks_text(int replicas) { return replicas > 1 ? format(", %d ranks", replicas) : ""; }

static const char *in_flight_words(const Program *p) {
  if (p->forward_only)
    return "";
  return format("; at most %" PRId64 "%s in flight here", p->in_flight, p->chunks > 1 ? " turns" : "");
}

static const char *turns_text(const Emit *e) {
  return e->p->replicas > 1 ? format(", dealt in turn to this stage's %d ranks", e->p->replicas) : "";
}

static const char *precision_words(const Target *t) {
  if (t->residual == RESIDUAL_BF16)
    return "bf16: operands and results of library calls and the residual stream are stored in bf16, all sums are f32";
  switch (t->precision) {
  case PRECISION_F32: return "f32";
  case PRECISION_TF32: return "tf32: products round their operands to 10 bits, and add up in f32";
  case PRECISION_BF16: return "bf16: operands and results of library calls are stored in bf16, all sums are f32";
  }
  BUG("precision %d", t->precision);
}

static char *planned_words(const Emit *e, double forward, double backward, double update) {
  const Plan *plan = e->plan;
  const char *batch = milliseconds(plan->batch_seconds), *costs = plan->costs ? plan->costs : "counted";
  if (e->library)
    return format("%s a microbatch (%s)", milliseconds(forward), costs);
  if (e->p->forward_only)
    return format("forward %s a microbatch, a batch %s (%s)", milliseconds(forward), batch, costs);
  return format("forward %s, backward %s a microbatch, update %s, a batch %s (%s)%s", milliseconds(forward),
                milliseconds(backward), milliseconds(update), batch, costs,
                e->k->recompute ? "; the backward pass reruns the forward pass" : "");
}

/* The padding rows of parameters, in words; NULL: none. */
static const char *padding_words(const Emit *e) {
  Text words = {0};
  for (int i = 0; i < e->k->params.n; i++) {
    const Param *p = &e->g->params.at[e->k->params.at[i]];
    if (p->padding)
      text_add(&words, "%s%s has %" PRId64 " rows of zeros behind its %" PRId64, words.n ? ", " : "", p->name,
               p->padding, p->shape.dim[0]);
  }
  return words.at;
}

static void title(Emit *e) {
  const bool has_file = e->g->file && source_is_file(e->g->file);
  const char *file = comment_text(has_file ? base(e->g->file) : e->g->name);
  if (e->library)
    text_add(&e->out, "/* The library of %s (%s), compiled by pdc.\n *\n", comment_text(e->g->name), file);
  else
    text_add(&e->out, "/* Stage %d of %d of %s (%s), compiled by pdc.\n *\n", e->p->stage, e->p->n_stages,
             comment_text(e->g->name), file);
}

static void pipeline_entries(Emit *e) {
  const Pipeline *l = &e->plan->pipeline;
  for (int i = 0; i < l->n_stages && !e->library; i++)
    header_entry(e, format("Stage %d", i),
                 format("%s%s%s", stage_range(e, i), ranks_text(l->replicas[i]),
                        i == e->p->stage ? " (this program)" : ""));
  if (e->library)
    header_entry(e, "Microbatch",
                 format("%" PRId64 " sample%s", l->microbatch, l->microbatch == 1 ? "" : "s, computed together"));
  else
    header_entry(e, "Batch",
                 format("%" PRId64 " sample%s = %" PRId64 " x a microbatch of %" PRId64 "%s; schedule %s%s",
                        l->batch, l->batch == 1 ? "" : "s", l->microbatches, l->microbatch, turns_text(e),
                        l->schedule, in_flight_words(e->p)));
}

static void plan_entries(Emit *e) {
  double forward = 0, backward = 0, update = 0;
  for (int c = 0; c < e->p->chunks; c++) {
    const StagePlan *part = &e->plan->stage[plan_part_of(e->plan, e->p->stage, c)];
    forward += part->forward_seconds;
    backward += part->backward_seconds;
    update += part->update_seconds;
  }
  if (e->dialect->target)
    header_entry(e, "Target", format("%s; %s", e->dialect->target, precision_words(&e->k->target)));
  header_entry(e, "Weights", version_words(e));
  header_entry(e, "Planned", planned_words(e, forward, backward, update));
  if (e->p->offload.on)
    header_entry(e, "Memory",
                 format("%s at once: of the %s of parts and of values between them, one part's and the next "
                        "one's; the remainder is offloaded by --spill",
                        bytes_text(e->allocation->resident_bytes), bytes_text(e->allocation->spilled_bytes)));
  header_entry(e, e->p->offload.on ? "Addresses" : "Memory",
               format("%s: %s", bytes_text(e->allocation->bytes), sections_text(e)));
  if (padding_words(e))
    header_entry(e, "Padding", comment_text(padding_words(e)));
}

void print_header(Emit *e) {
  title(e);
  pipeline_entries(e);
  plan_entries(e);
  text_add(&e->out,
           e->library
               ? " *\n * From top to bottom: memory, the instance, fused loops, blocks, one microbatch, and the "
                 "functions of the\n * header. */\n"
           : e->p->forward_only
               ? " *\n * From top to bottom: memory, fused loops, blocks, one microbatch, and in main() the "
                 "pipeline. */\n"
               : " *\n * From top to bottom: memory, fused loops, blocks, one microbatch forward and "
                 "backward, the update, and in\n"
                 " * main() the pipeline. */\n");
}
