/* A plan as a table for users. */
#include <string.h>

#include "ops/op.h"
#include "optimizers/optimizer.h"
#include "plan/cost/cost.h"

enum { COLUMNS = 13 };

static const char *const heads[COLUMNS] = {"stage",  "instances", "parameters", "forward ms", "backward ms",
                                           "sends",  "memory",    "weights",    "gradients",  "optimizer",
                                           "caches", "the rest",  "recompute"};

/* Columns for training or generation only. */
static const bool of_training[COLUMNS] = {[4] = true, [8] = true, [9] = true, [12] = true};
static const bool of_caches[COLUMNS] = {[10] = true};

static const char *instances(const Graph *g, const Pieces *p, const StagePlan *s) {
  Name first = p->at[s->first_piece].name, last = piece_last_instance(g, p, s->end_piece - 1);
  return first == last ? first : format("%s .. %s", first, last);
}

/* "6 of 12": recomputed pieces of the stage; "whole", "whole + 6 of 12": also its forward pass; "no". */
static const char *share_text(const Plan *plan, int part) {
  const StagePlan *s = &plan->stage[part];
  const bool whole = plan_recomputes(plan, part);
  int again = 0;
  for (int i = 0; s->again && s->again[i]; i++)
    again += s->again[i] == '1';
  if (!again)
    return whole ? "whole" : "no";
  return format("%s%d of %d", whole ? "whole + " : "", again, s->end_piece - s->first_piece);
}

/* "1"; with several chunks "1.0". */
static const char *stage_text(const Plan *plan, int part) {
  const int stage = plan_stage_of(plan, part);
  return plan->pipeline.chunks > 1 ? format("%d.%d", stage, pipeline_chunk(&plan->pipeline, part))
                                   : format("%d", stage);
}

static void stage_row(const Graph *g, const Pieces *p, const Plan *plan, int i, const char **cell) {
  const StagePlan *s = &plan->stage[i];
  int64_t rest = s->peak_bytes - s->weight_bytes - s->gradient_bytes - s->optimizer_bytes - s->cache_bytes;
  int c = 0;
  int stage = plan_stage_of(plan, i), replicas = plan->pipeline.replicas[stage];
  cell[c++] = replicas > 1 ? format("%d x%d", stage, replicas) : stage_text(plan, i);
  cell[c++] = instances(g, p, s);
  cell[c++] = with_commas(stage_parameters(g, p, s));
  cell[c++] = format("%.2f", s->forward_seconds * 1e3);
  cell[c++] = format("%.2f", s->backward_seconds * 1e3);
  cell[c++] = i + 1 < plan_parts(plan) ? bytes_text((int64_t)s->send_bytes) : "-";
  cell[c++] = bytes_text(s->peak_bytes);
  cell[c++] = bytes_text(s->weight_bytes);
  cell[c++] = bytes_text(s->gradient_bytes);
  cell[c++] = bytes_text(s->optimizer_bytes);
  cell[c++] = bytes_text(s->cache_bytes);
  cell[c++] = bytes_text(rest > 0 ? rest : 0);
  cell[c++] = share_text(plan, i);
  ensure(c == COLUMNS);
}

static void print_rows(const char *const *cell, int rows, const bool *left_out, FILE *out) {
  int width[COLUMNS] = {0};
  for (int i = 0; i < rows * COLUMNS; i++) {
    int n = (int)strlen(cell[i]);
    if (n > width[i % COLUMNS])
      width[i % COLUMNS] = n;
  }
  for (int row = 0; row < rows; row++) {
    for (int c = 0; c < COLUMNS; c++) {
      if (left_out[c])
        continue;
      const char *text = cell[row * COLUMNS + c], *gap = c ? "  " : "";
      if (c == 1)
        fprintf(out, "%s%-*s", gap, width[c], text);
      else
        fprintf(out, "%s%*s", gap, width[c], text);
    }
    fputc('\n', out);
  }
}

/* Settings beyond a plain pipeline, one line each. */
/* Number of stages, or cuts, within this level of the cluster. */
static int count_level(const Plan *plan, Name level, bool cuts) {
  int n = 0;
  for (int i = 0; i < plan_parts(plan); i++)
    n += (cuts ? plan->stage[i].crosses : i < plan->pipeline.n_stages ? plan->stage[i].spans : NULL) == level;
  return n;
}

/* "3 within a server, 1 within a rack": each level once. */
static const char *levels_text(const Plan *plan, bool cuts) {
  Text t = {0};
  for (int i = 0; i < plan_parts(plan); i++) {
    Name level = cuts ? plan->stage[i].crosses : plan->stage[i].spans;
    bool known = !level;
    for (int k = 0; k < i; k++)
      known |= (cuts ? plan->stage[k].crosses : plan->stage[k].spans) == level;
    if (!known)
      text_add(&t, "%s%d within a %s", t.n ? ", " : "", count_level(plan, level, cuts), level);
  }
  return t.at;
}

static void print_placement(const Plan *plan, FILE *out) {
  const Placement *at = &plan->placement;
  const char *exchanges = levels_text(plan, false), *cuts = levels_text(plan, true);
  if (!plan->cluster || (!exchanges && !cuts))
    return;
  fprintf(out, "placement: stages in order");
  if (at->adjacent)
    fprintf(out, ", %d rank%s of each stage at a time, repeated", at->adjacent, at->adjacent == 1 ? "" : "s");
  if (at->backward)
    fprintf(out, ", starting at the last device");
  if (exchanges)
    fprintf(out, "; stages exchange gradients: %s", exchanges);
  if (cuts)
    fprintf(out, "; cuts: %s", cuts);
  fputc('\n', out);
}

/* Split parameters and collectives of a shard group. */
static void print_tensor(const Graph *g, FILE *out) {
  int split = 0, meetings = 0;
  int64_t elements = 0, all = 0;
  if (!g->shards)
    return;
  for (int i = 0; i < g->params.n; i++) {
    const Param *p = &g->params.at[i];
    split += p->layout.kind == LAYOUT_SPLIT;
    elements += p->layout.kind == LAYOUT_SPLIT ? param_elements(g, p) : 0;
    all += param_elements(g, p);
  }
  for (int i = 0; i < g->nodes.n; i++)
    meetings += g->nodes.at[i].op->collective > 0;
  fprintf(
      out,
      "tensor: each rank below is a group of %d ranks that share its layers; %d of %d parameters are split (%.0f%% of "
      "all weights); %d collectives per microbatch\n",
      g->shards, split, g->params.n, 100 * (double)elements / (double)all, meetings);
  if (g->spread)
    fprintf(out, "activations: split by positions between matrix products, to save memory\n");
}

static void print_form(const Graph *g, const Plan *plan, FILE *out) {
  const Pipeline *p = &plan->pipeline;
  if (!form_is_plain(p))
    fprintf(out, "ranks: %d, by stage %s\n", pipeline_ranks(p), replicas_text(p));
  print_placement(plan, out);
  if (p->first_part && p->chunks > 1)
    fprintf(out, "chunks: %d parts of the model, consecutive parts on each rank; part S.C is chunk C of rank S\n",
            plan_parts(plan));
  else if (p->chunks > 1)
    fprintf(out, "chunks: %d parts of the model per rank; part S.C is chunk C of rank S\n", p->chunks);
  print_tensor(g, out);
  if (p->shard_optimizer && !form_is_plain(p))
    fprintf(out, "sharded: each replica stores and updates a shard of the optimizer state\n");
  if (p->vertical_sync)
    fprintf(out, "vertical sync: a microbatch reads one version of all weights\n");
  for (int i = 0; i < p->n_stages; i++)
    if (p->ahead[i] > 1) {
      fprintf(out, "ahead: one additional microbatch in flight between stages hides transfers\n");
      break;
    }
  fputc('\n', out);
}

/* Bytes per token of a context. */
static void print_caches(const Graph *g, const Plan *plan, FILE *out) {
  long long samples = g->generation.samples;
  fprintf(out, "\ncaches: %s of keys and values, %s per token: %lld sample%s of %lld tokens\n",
          bytes_text(plan_cache_bytes(plan)), bytes_text((int64_t)(plan_cache_bytes_a_token(g, plan) + 0.5)),
          samples, samples == 1 ? "" : "s", (long long)g->generation.context);
}

/* A token passes all stages before the next one starts. */
static void predict_tokens(const Graph *g, const Plan *plan, FILE *out) {
  double seconds = 0;
  for (int i = 0; i < plan_parts(plan); i++)
    seconds += plan->stage[i].forward_seconds;
  double rate = seconds > 0 ? (double)g->generation.samples / seconds : 0;
  fprintf(out, "\npredicted: %.2f ms per token of each sample, %.0f tokens/s, without messages\n", seconds * 1e3,
          rate);
}

/* Of a billion tokens, or a million samples. Idle ranks are not launched and cost nothing. */
static void print_expenses(const Plan *plan, double tokens_per_second, double samples_per_second, FILE *out) {
  const double hours = tokens_per_second > 0 ? 1e9 / tokens_per_second / 3600 : 1e6 / samples_per_second / 3600;
  const char *what = tokens_per_second > 0 ? "billion tokens" : "million samples";
  if (plan->price > 0)
    fprintf(out, "cost: %.4g per %s, at %.4g an hour for all devices\n", hours * plan->price, what, plan->price);
  if (plan->price > 0 && plan->watts > 0)
    fprintf(out, "energy: at most %.3g kWh per %s, at %.0f W for all devices\n", hours * plan->watts / 1000, what,
            plan->watts);
}

static void predict_batches(const Graph *g, const Plan *plan, FILE *out) {
  double per_second = plan->batch_seconds > 0 ? (double)plan->pipeline.batch / plan->batch_seconds : 0;
  int64_t tokens = graph_tokens_per_sample(g);
  fprintf(out, "\npredicted: %.2f ms a batch, ", plan->batch_seconds * 1e3);
  if (tokens)
    fprintf(out, "%.0f tokens/s", per_second * (double)tokens);
  else
    fprintf(out, "%.1f samples/s", per_second);
  fprintf(out, ", %.1f %% of the ranks' time spent waiting\n", plan_waiting(plan) * 100);
  if (per_second > 0)
    print_expenses(plan, per_second * (double)tokens, per_second, out);
}

/* The parameters by method, for optimizers with two methods. */
static void print_methods(const Graph *g, FILE *out) {
  const Optimizer *o = g->train.optimizer;
  Text matrices = {0};
  int hidden = 0, others = 0;
  int64_t elements = 0;
  for (int i = 0; i < g->params.n; i++) {
    const Param *p = &g->params.at[i];
    hidden += p->hidden;
    others += is_trained(p) && !p->hidden;
    elements += p->hidden ? shape_elements(&p->shape) : 0;
    if (is_trained(p) && !p->hidden && p->shape.rank == 2)
      text_add(&matrices, "%s%s", matrices.n ? ", " : "", p->name);
  }
  fprintf(out, "optimizer: %s for %d hidden matri%s of %s weights, %s for %d other parameter%s", o->name, hidden,
          hidden == 1 ? "x" : "ces", with_commas(elements), o->others, others, others == 1 ? "" : "s");
  fprintf(out, "%s%s\n", matrices.n ? ", among them the matrices " : "", matrices.n ? matrices.at : "");
}

/* Parameters padded with rows of zeros. */
static void print_padding(const Graph *g, FILE *out) {
  for (int i = 0; i < g->params.n; i++) {
    const Param *p = &g->params.at[i];
    if (p->padding)
      fprintf(out, "padded: %s has %s rows in memory, %lld of them zeros; its products are padded the same way\n",
              p->name, with_commas(p->shape.dim[0] + p->padding), (long long)p->padding);
  }
}

static void print_algorithms(const Plan *plan, FILE *out) {
  const Algorithms *a = plan->algorithms;
  if (a)
    fprintf(out, "products: %d with algorithms measured on %s with cuBLASLt %lld\n", a->of.n, a->library.device,
            (long long)a->library.version);
}

static void print_attentions(const Plan *plan, FILE *out) {
  const Attentions *a = plan->attentions;
  int64_t most = 0;
  for (int i = 0; a && i < a->of.n; i++)
    most = a->of.at[i].workspace > most ? a->of.at[i].workspace : most;
  if (a)
    fprintf(out, "attention: %d by cuDNN %lld, measured on %s, with a workspace of %s\n", a->of.n,
            (long long)a->library.version, a->library.device, bytes_text(most));
}

const char *plan_device_text(const Plan *plan) {
  if (plan->assumed)
    return format("device assumed: %s, in one server; change it with '--arch' or '--cluster'", plan->device);
  const char *cluster = plan->cluster ? format(" of cluster %s", plan->cluster) : "";
  return format("device %s%s", plan->device, cluster);
}

static void print_residual(const Plan *plan, FILE *out) {
  if (plan->target.residual == RESIDUAL_BF16)
    fprintf(out, "residual: the residual stream and its gradients are bf16\n");
}

/* Recomputation of each stage, one line each; not of offload, whose table says it. */
static void print_recomputed(const Graph *g, const Pieces *p, const Plan *plan, FILE *out) {
  for (int i = 0; i < plan_parts(plan) && !schedule_traits(plan->pipeline.schedule).spills; i++)
    if (part_recomputes(plan, i))
      fprintf(out, "recomputed in stage %s: %s; %s\n", stage_text(plan, i), recomputed_text(g, p, plan, i),
              recomputed_worth(plan, i));
}

void plan_table(const Graph *g, const Pieces *p, const Plan *plan, FILE *out) {
  const Pipeline *l = &plan->pipeline;
  fprintf(out, "%s: %d stage%s, schedule %s, batch %lld in %lld microbatch%s of %lld, %s; costs %s; %s\n",
          plan->model, l->n_stages, l->n_stages == 1 ? "" : "s", l->schedule, (long long)l->batch,
          (long long)l->microbatches, l->microbatches == 1 ? "" : "es", (long long)l->microbatch,
          backend_of(&plan->target)->device->rank_text(&plan->target), plan->costs, plan_device_text(plan));
  print_form(g, plan, out);
  int parts = plan_parts(plan);
  const char **cell = alloc((size_t)(parts + 1) * COLUMNS * sizeof *cell);
  memcpy(cell, heads, sizeof heads);
  for (int i = 0; i < parts; i++)
    stage_row(g, p, plan, i, cell + (size_t)(i + 1) * COLUMNS);
  bool left_out[COLUMNS], caches = plan_cache_bytes(plan) > 0;
  for (int c = 0; c < COLUMNS; c++)
    left_out[c] = (g->inference && of_training[c]) || (!caches && of_caches[c]);
  print_rows(cell, parts + 1, left_out, out);
  if (caches)
    print_caches(g, plan, out);
  if (g->generation.context)
    predict_tokens(g, plan, out);
  else
    predict_batches(g, plan, out);
  print_recomputed(g, p, plan, out);
  print_padding(g, out);
  print_residual(plan, out);
  print_algorithms(plan, out);
  print_attentions(plan, out);
  if (g->train.optimizer->others && !g->inference)
    print_methods(g, out);
  if (plan->why && *plan->why)
    fprintf(out, "why: %s\n", plan->why);
}

const char *recomputed_text(const Graph *g, const Pieces *p, const Plan *plan, int part) {
  const StagePlan *s = &plan->stage[part];
  Text t = {0};
  const Patterns all = pieces_describe(g, p, part_recomputed(p, s), s->first_piece, s->end_piece);
  text_add(&t, "%s", plan_recomputes(plan, part) ? "the whole stage" : "");
  for (int i = 0; i < all.n; i++)
    text_add(&t, "%s%s", t.n ? ", " : "", all.at[i]);
  return t.at;
}

const char *recomputed_worth(const Plan *plan, int part) {
  const int64_t bytes = plan->stage[part].again_bytes;
  return format("saves about %s a rank and adds %.2f ms a microbatch", bytes_text(bytes > 0 ? bytes : 0),
                recomputed_seconds(plan, part) * 1e3);
}

void plan_runner_up(const Pieces *p, const Plan *chosen, const Plan *other, FILE *out) {
  int64_t most = 0;
  Text cuts = {0}, again = {0};
  for (int i = 0; i < plan_parts(other); i++) {
    const StagePlan *s = &other->stage[i];
    most = s->peak_bytes > most ? s->peak_bytes : most;
    if (i > 0)
      text_add(&cuts, "%s%s", cuts.n ? ", " : "", p->at[s->first_piece].name);
    if (part_recomputes(other, i))
      text_add(&again, "%s%d", again.n ? ", " : "", i);
  }
  fprintf(out, "  %8.2f ms  %+5.1f %%  microbatch %-3lld  at most %-10s", other->batch_seconds * 1e3,
          chosen->batch_seconds > 0 ? (other->batch_seconds / chosen->batch_seconds - 1) * 100 : 0,
          (long long)other->pipeline.microbatch, bytes_text(most));
  if (!form_is_plain(&other->pipeline))
    fprintf(out, "  replicas %s", replicas_text(&other->pipeline));
  if (cuts.n)
    fprintf(out, "  cut at %s", cuts.at);
  if (again.n)
    fprintf(out, "  recomputing stage%s %s", strchr(again.at, ',') ? "s" : "", again.at);
  fputc('\n', out);
}
