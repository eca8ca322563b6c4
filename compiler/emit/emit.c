/* Prints one stage's program in C, top to bottom: header, constants, memory, kernels, one microbatch forward and
 * backward, the update, the three loops. */
#include "emit/print.h"
#include "optimizers/optimizer.h"

#include <inttypes.h>
#include <string.h>

/* ---- numbers ------------------------------------------------------------------------------------- */

void print_constant(Emit *e, const char *name, int64_t value, const char *comment) {
  char *text = format("  %s = %" PRId64 ",", name, value);
  if (comment)
    text_add(&e->out, "%-21s /* %s */\n", text, comment);
  else
    text_add(&e->out, "%s\n", text);
}

static void training_constants(Emit *e) {
  const Program *p = e->p;
  const char *turns = p->chunks > 1 ? "turns" : "microbatches";
  print_constant(e, "MICROBATCHES", p->period / p->replicas,
                 p->replicas > 1
                     ? format("of a batch (an update) on this rank; %" PRId64 " on the stage's %d ranks",
                              p->period, p->replicas)
                     : "of a batch: an update");
  if (p->chunks > 1) {
    if (!p->offload.on)
      print_constant(e, "STAGES", p->n_stages, "ranks of the pipeline");
    print_constant(e, "CHUNKS", p->chunks, "parts of the model here; a microbatch's way through one is a turn");
    text_add(&e->out, "  TURNS = MICROBATCHES * CHUNKS, /* of a batch */\n");
  }
  print_constant(e, "IN_FLIGHT", p->in_flight,
                 format("%s between their forward and their backward here, at most", turns));
  print_constant(e, "VERSIONS", p->versions, "of the weights");
  print_constant(e, "DELAY", p->delay, "updates between the version a batch uses and the newest");
  print_constant(e, "LAG", p->lag, format("%s between a batch's last backward and its update", turns));
  if (p->split_backward)
    print_constant(e, "WEIGHTS_LAG", p->weights_lag,
                   format("%s by which weights' gradients follow their backward", turns));
  print_constant(e, "ACCUMULATORS", p->accumulators, "sets of gradients");
  if (is_sharded(e))
    print_constant(e, "STATE_PART", e->allocation->part_bytes, "bytes of a moment on this replica");
}

static void print_constants(Emit *e) {
  text_add(&e->out, "%s%s%senum {\n", text_of_precision(e->dialect, e->k->target.precision), e->dialect->includes,
           e->library ? format("#include \"library/library.h\"\n#include \"%s.h\"\n\n", e->library) : "");
  print_constant(e, "MICROBATCH", e->k->microbatch, "samples");
  if (!e->p->forward_only)
    training_constants(e);
  print_slot_constants(e);
  text_add(&e->out, "};\n\n");
}

/* ---- a microbatch ---------------------------------------------------------------------------- */

/* Purpose of a pass: training or inference of a microbatch, recomputation, validation. */
typedef enum { FOR_MICROBATCH, AGAIN, FOR_VALIDATION } Purpose;

/* In a model that offloads, values between two parts are written directly into the reader's slot. */
static Name slot_between(const Emit *e, BufferKind kind, int chunk, Purpose purpose) {
  const ChunkBuffers read = reader_between(kind, chunk);
  Name slot = purpose == FOR_VALIDATION ? intern("0") : internf("k %% %s", chunk_slots(e, read.kind, read.chunk));
  Name type = chunk_struct(e, kind, chunk);
  Name cast = type == chunk_struct(e, read.kind, read.chunk) ? intern("") : internf("(%s *)", type);
  return internf("%s&arena->%s[%s]", cast, chunk_member(e, read.kind, read.chunk), slot);
}

/* A chunk's slot of microbatch k; sent values use the slot that the reader provides. A recomputation writes them
 * to an extra slot that no message uses, a validation to the arena's slots. */
static Name slot_text(const Emit *e, BufferKind kind, int chunk, Purpose purpose) {
  Name member = chunk_member(e, kind, chunk), slots = chunk_slots(e, kind, chunk);
  if (is_between(e, kind, chunk))
    return slot_between(e, kind, chunk, purpose);
  if (kind == BUFFER_SENT && purpose == AGAIN)
    return internf("&arena->%s[%s]", member, slots);
  if ((kind == BUFFER_SENT || kind == BUFFER_GRADIENT_SENT) && purpose != FOR_VALIDATION)
    return internf("(%s *)%s(%d, k)", chunk_struct(e, kind, chunk),
                   kind == BUFFER_SENT ? "pd_activations_slot" : "pd_gradients_slot", chunk);
  return internf("&arena->%s[k %% %s]", member, slots);
}

/* The arguments of a pass, in the order of its parameters. */
static Names pass_arguments(Emit *e, Pass pass, const char *weights, Purpose purpose) {
  PassParameters p = pass_parameters(e, pass);
  Names list = {0};
  if (p.encodes)
    push(&list, intern("pd_generation_encodes()"));
  if (p.first)
    push(&list, intern("(k - 1) % MICROBATCHES == 0"));
  for (int i = 0; i < p.kinds.n; i++) {
    BufferKind kind = (BufferKind)p.kinds.at[i];
    push(&list, kind == BUFFER_WEIGHT        ? intern(weights)
                : kind == BUFFER_FROZEN      ? intern("&arena->frozen")
                : kind == BUFFER_ACCUMULATOR ? intern("&arena->gradients[batch % ACCUMULATORS]")
                                             : slot_text(e, kind, pass.chunk, purpose));
  }
  return list;
}

static const char *used_weights(const Emit *e) {
  return e->p->forward_only ? "&arena->weights" : "&arena->weights[version(k) % VERSIONS]";
}

static bool uses_weights(const Emit *e, PassKind kind) {
  for (int c = 0; c < e->p->chunks; c++)
    if (pass_uses(e, (Pass){kind, c}, BUFFER_WEIGHT))
      return true;
  return false;
}

static bool has_version(const Emit *e) {
  return uses_weights(e, PASS_FORWARD) || uses_weights(e, PASS_BACKWARD) || uses_weights(e, PASS_WEIGHTS);
}

static void print_version(Emit *e) {
  if (!has_version(e))
    return;
  text_add(&e->out,
           "/* The version of the weights that microbatch k uses, forward and backward: that of its batch");
  text_add(&e->out, e->p->delay ? ", DELAY ago. */\n" : ". */\n");
  text_add(&e->out,
           "static int64_t version(int64_t k) {\n  const int64_t batch = (k - 1) / MICROBATCHES;\n  return "
           "%s;\n}\n\n",
           e->p->delay ? "batch > DELAY ? batch - DELAY : 0" : "batch");
}

static bool some_kernel_uses(const Emit *e, int buffer) {
  for (PassKind pass = 0; pass < PASS_KINDS; pass++) {
    const LoweredList *kernels = lowered_pass(e->lowered, pass);
    for (int i = 0; i < kernels->n; i++)
      for (int j = 0; j < kernels->at[i].arguments.buffers.n; j++)
        if (kernels->at[i].arguments.buffers.at[j] == buffer)
          return true;
  }
  return false;
}

/* Prints loads of the model inputs that a chunk reads, through `function`. */
static void print_loads(Emit *e, int indent, int chunk, const char *function, const char *k) {
  for (int i = 0; i < e->k->buffers.n; i++) {
    const Buffer *b = &e->k->buffers.at[i];
    if (b->kind != BUFFER_INPUT || b->chunk != chunk || !some_kernel_uses(e, i))
      continue;
    for (int j = 0; j < e->g->inputs.n; j++)
      if (e->g->inputs.at[j].value == b->value)
        text_add(&e->out, "%*s%s(%d, %s, arena->%s[k %% %s].%s);\n", indent, "", function, j, k,
                 chunk_member(e, BUFFER_INPUT, chunk), chunk_slots(e, BUFFER_INPUT, chunk), e->member[i]);
  }
}

static void print_figures(Emit *e, int indent, int chunk, const char *function, const char *k) {
  for (int i = 0; i < e->k->buffers.n; i++) {
    const Buffer *b = &e->k->buffers.at[i];
    if (b->kind != BUFFER_FIGURE || b->chunk != chunk)
      continue;
    if (e->g->figures.at[b->figure].output)
      text_add(&e->out, "%*spd_predict(%d, %s, arena->figures.%s);\n", indent, "",
               b->figure - graph_n_logged(e->g), k, e->member[i]);
    else
      text_add(&e->out, "%*s%s(%d, %s, arena->figures.%s, %s);\n", indent, "", function, b->figure, k,
               e->member[i], array_text(e, b));
  }
}

static void print_call_pass(Emit *e, int indent, Pass pass, const char *weights, Purpose purpose) {
  Names list = pass_arguments(e, pass, weights, purpose);
  const char *function = pass_name(e, pass), *caller = e->dialect->caller;
  char *head = caller ? format("%s(%s%s", caller, function, list.n ? ", " : "") : format("%s(", function);
  int more = caller ? (int)strlen(caller) + 1 : (int)strlen(head);
  text_list(&e->out, indent + more, format("%*s%s", indent, "", head), &list, ");\n");
}

/* Prefix of the runtime's functions that provide samples and receive figures. */
static const char *work_prefix(const Emit *e) {
  return e->g->generation.context ? "pd_generation" : e->p->forward_only ? "pd_evaluation" : "pd";
}

/* Whether DO_WEIGHTS has anything to compute here. */
static bool has_weights_pass(const Emit *e) { return e->k->weights.n > 0; }

/* Prints the computation of a turn. A recomputation logs no figures, and reloads inputs only with offload, which
 * evicts them. */
static void print_work(Emit *e, int indent, Pass pass, bool recomputing) {
  bool forward = pass.kind == PASS_FORWARD && !recomputing;
  if (forward || (recomputing && e->p->offload.on))
    print_loads(e, indent, pass.chunk, format("%s_load", work_prefix(e)), "k");
  if (pass_reads_now(e, pass))
    text_add(&e->out, "%*s%s\n", indent, "", e->dialect->at);
  if (pass_uses(e, pass, BUFFER_ACCUMULATOR))
    text_add(&e->out, "%*sconst int64_t batch = (k - 1) / MICROBATCHES;\n", indent, "");
  bool again = recomputing || (pass.kind == PASS_BACKWARD && program_recomputes_chunk(e->p, pass.chunk));
  print_call_pass(e, indent, pass, used_weights(e), again ? AGAIN : FOR_MICROBATCH);
  if (forward)
    print_figures(e, indent, pass.chunk,
                  format("%s_%s", work_prefix(e), e->g->generation.context ? "logits" : "figure"), "k");
}

typedef struct Work {
  const char *name, *work; /* "forward", "PD_FORWARD" */
  PassKind kind;
  bool recomputing, awaits; /* awaits: first waits for a free send slot */
  const char *comment;
} Work;

/* With one chunk: the function of a microbatch. */
static void print_work_of_microbatch(Emit *e, const Work *w, const char *await) {
  text_add(&e->out, "%sstatic void %s(int64_t k) {\n%s  while (pd_begin(%s, k)) {\n", w->comment, w->name, await,
           w->work);
  print_work(e, 4, (Pass){w->kind, 0}, w->recomputing);
  text_add(&e->out, "    pd_end();\n  }\n}\n\n");
}

/* With several chunks: a function per chunk, and one that finds a turn's chunk and microbatch. */
static void print_work_of_turn(Emit *e, const Work *w, const char *await) {
  int chunks = e->p->chunks;
  for (int c = 0; c < chunks; c++) {
    if (w->recomputing && !program_recomputes_chunk(e->p, c))
      continue;
    Pass pass = {w->kind, c};
    PassParameters p = pass_parameters(e, pass);
    bool idle = !p.first && p.kinds.n == 0; /* frozen weights pass no gradient back */
    text_add(&e->out, "%sstatic void %s_%d(int64_t k) {\n%s", w->comment, w->name, c, idle ? "  (void)k;\n" : "");
    print_work(e, 2, pass, w->recomputing);
    text_add(&e->out, "}\n\n");
  }
  bool backward = w->kind != PASS_FORWARD || w->recomputing;
  if (w->recomputing && e->p->offload.keeps)
    await = format("%s  if (KEEPS >> (CHUNKS - 1 - chunk(turn)) & 1)\n    return;\n", await);
  text_add(&e->out,
           "static void %s(int64_t turn) {\n%s  while (pd_begin(%s, turn)) {\n"
           "    const int64_t k = microbatch(turn);\n    switch (%schunk(turn)) {\n",
           w->name, await, w->work, backward ? "CHUNKS - 1 - " : "");
  for (int c = 0; c < chunks; c++)
    if (!w->recomputing || program_recomputes_chunk(e->p, c))
      text_add(&e->out, "    case %d: %s_%d(k); break;\n", c, w->name, c);
  text_add(&e->out, "    }\n    pd_end();\n  }\n}\n\n");
}

static const char turn_functions[] =
    "/* Microbatches go in groups of STAGES, and each group through all chunks: forward from the first to the\n"
    " * last, backward from the last to the first. Both counts are over the run, from 1. */\n"
    "static int64_t chunk(int64_t turn) { return (turn - 1) / STAGES % CHUNKS; }\n"
    "static int64_t microbatch(int64_t turn) {\n"
    "  return (turn - 1) / (STAGES * CHUNKS) * STAGES + (turn - 1) % STAGES + 1;\n}\n\n";

static const char spilled_turn_functions[] =
    "/* All microbatches of a batch go through a part before the next one: forward from the first part to the\n"
    " * last, backward from the last to the first. Both counts are over the run, from 1. */\n"
    "static int64_t chunk(int64_t turn) { return (turn - 1) / MICROBATCHES % CHUNKS; }\n"
    "static int64_t microbatch(int64_t turn) {\n"
    "  return (turn - 1) / TURNS * MICROBATCHES + (turn - 1) % MICROBATCHES + 1;\n}\n\n";

/* Whether other ranks receive this rank's activations or gradients. */
static bool sends_activations(const Emit *e) {
  return e->k->sent.n > 0 && (!e->p->offload.on || e->p->stage < e->p->n_stages - 1);
}
static bool sends_gradients(const Emit *e) {
  return e->k->gradients_sent.n > 0 && (!e->p->offload.on || e->p->stage > 0);
}

static void print_microbatch(Emit *e) {
  const struct {
    bool there;
    Work work;
  } all[] = {
      {true, {"forward", "PD_FORWARD", PASS_FORWARD, false, sends_activations(e), ""}},
      {program_recomputes(e->p),
       {"recompute", "PD_RECOMPUTE", PASS_FORWARD, true, false,
        "/* Once more, with the same weights and random numbers, for what backward needs. */\n"}},
      {!e->p->forward_only, {"backward", "PD_BACKWARD", PASS_BACKWARD, false, sends_gradients(e), ""}},
      {has_weights_pass(e),
       {"weights", "PD_WEIGHTS", PASS_WEIGHTS, false, false,
        "/* Gradients of weights, which the backward pass leaves for idle time. */\n"}},
  };
  bool several = e->p->chunks > 1;
  if (!e->p->forward_only)
    print_version(e);
  if (e->p->offload.keeps && program_recomputes(e->p))
    text_add(&e->out,
             "static const uint64_t KEEPS = UINT64_C(0x%" PRIx64
             "); /* bit c: chunk c keeps its saved values and does not recompute them */\n\n",
             e->p->offload.keeps);
  if (several)
    text_add(&e->out, "%s", e->p->offload.on ? spilled_turn_functions : turn_functions);
  if (!e->p->forward_only)
    text_add(&e->out, "/* Each pass runs once, or twice if --audit compares the bytes that it wrote. */\n\n");
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    const Work *w = &all[i].work;
    bool forward = w->kind == PASS_FORWARD && !w->recomputing;
    const char *slot = !w->awaits ? ""
                                  : format("  pd_await_%s_slot(%s);\n", forward ? "activations" : "gradients",
                                           several ? "turn" : "k");
    const char *parts = "  pd_await_weights(version(k)); /* parts that other replicas updated */\n";
    const char *await = format("%s%s", slot, forward && is_sharded(e) && has_version(e) ? parts : "");
    if (all[i].there)
      (several ? print_work_of_turn : print_work_of_microbatch)(e, w, await);
  }
}

/* ---- the update ------------------------------------------------------------------------------ */

static void print_validate(Emit *e) {
  text_add(&e->out,
           "/* Forward only, with the %s weights, in the slots of microbatch k, which has just "
           "gone backward. */\n",
           e->g->train.ema > 0 ? "averaged" : "newest");
  bool several = e->p->chunks > 1;
  text_add(&e->out, "static void validate(%sint64_t k) {\n  for (int64_t v = 1; pd_evaluation_next(v); v++) {\n",
           uses_weights(e, PASS_FORWARD) ? "const struct weights *w, " : "");
  for (int c = 0; c < e->p->chunks; c++) {
    const char *turn = several ? format("(v - 1) * CHUNKS + %d", c + 1) : "v";
    if (e->p->offload.on)
      text_add(&e->out, "    pd_promote(PD_VALIDATE, %d);\n", c + 1);
    if (chunk_buffers(e->k, &e->k->received, c).n && !is_between(e, BUFFER_RECEIVED, c))
      text_add(&e->out, "    pd_evaluation_receive(%s, k %% %s);\n", turn, chunk_slots(e, BUFFER_RECEIVED, c));
    print_loads(e, 4, c, "pd_evaluation_load", "v");
    if (e->dialect->at_says_training && pass_reads_now(e, (Pass){PASS_FORWARD, c}))
      text_add(&e->out, "    %s\n", e->dialect->at);
    print_call_pass(e, 4, (Pass){PASS_FORWARD, c}, "w", FOR_VALIDATION);
    print_figures(e, 4, c, "pd_evaluation_figure", "v");
    if (e->p->offload.on)
      text_add(&e->out, "    pd_demote(PD_VALIDATE, %d);\n", c + 1);
    if (chunk_buffers(e->k, &e->k->sent, c).n && !is_between(e, BUFFER_SENT, c))
      text_add(&e->out, "    pd_evaluation_send(%s, k %% %s);\n", turn, chunk_slots(e, BUFFER_SENT, c));
  }
  text_add(&e->out, "  }\n}\n\n");
}

static void print_optimizer(Emit *e) {
  Names list = {0};
  push(&list, intern("t"));
  push(&list, intern("scale"));
  push(&list, intern("from"));
  push(&list, intern("to"));
  push(&list,
       intern(e->allocation->section[SECTION_GRADIENTS].copies ? "&arena->gradients[t % ACCUMULATORS]" : "NULL"));
  text_list(&e->out, 14, "    pd_update(", &list, format("); /* %s */\n", update_rule(&e->g->train)->name));
}

/* The first argument of validate(), if it takes weights: the averages, if any. For averages in bf16 or in shards,
 * the runtime builds the newest copy (pd_read_averages). */
static const char *validated_weights(const Emit *e, const char *newest) {
  bool averages = e->allocation->section[SECTION_AVERAGES].copies > 0 && !has_masters(e) && !is_sharded(e);
  return !uses_weights(e, PASS_FORWARD) ? "" : averages ? "&arena->averages, " : newest;
}

static void print_update(Emit *e) {
  bool weights = e->allocation->section[SECTION_WEIGHTS].copies > 0;
  print_validate(e);
  if (e->p->versions > 1)
    text_add(&e->out,
             "/* Update t: W(t + 1) is written over the oldest version, which no microbatch will use again: "
             "batch t's\n"
             " * backward passes were its last readers. k: the microbatch that went backward last. */\n");
  else
    text_add(&e->out, "/* Update t, in place. k: the microbatch that went backward last. */\n");
  text_add(&e->out, "static void update(int64_t t, int64_t k) {\n");
  text_add(&e->out, weights ? "  const float scale = pd_gradient_scale(t);\n" : "  pd_gradient_scale(t);\n");
  if (weights) {
    text_add(&e->out, "  const struct weights *from = &arena->weights[t %% VERSIONS]; /* W(t) */\n"
                      "  struct weights *to = &arena->weights[(t + 1) %% VERSIONS];    /* W(t + 1) */\n");
    text_add(&e->out, "  while (pd_begin(PD_UPDATE, t)) {\n");
    print_optimizer(e);
    text_add(&e->out, "    pd_end();\n  }\n");
    if (is_sharded(e))
      text_add(&e->out, "  pd_share_weights(t + 1); /* exchange updated parts between replicas */\n");
  }
  text_add(&e->out, "  if (pd_updated(t))\n    validate(%sk);\n}\n\n", validated_weights(e, "to, "));
}

/* ---- the pipeline ---------------------------------------------------------------------------- */

static const char *batch_of(const Emit *e) { return e->p->chunks > 1 ? "TURNS" : "MICROBATCHES"; }

/* The last microbatch whose backward pass ended. */
static const char *last_backward(const Emit *e) { return e->p->chunks > 1 ? "microbatch(b - 1)" : "b - 1"; }

/* The count of turns whose gradients are complete. */
static const char *done(const Emit *e) { return e->p->split_backward ? "w - 1" : "b - 1"; }

static void print_weights(Emit *e, int indent, int loop) {
  if (loop < 3)
    text_add(&e->out, "%*sif (b - w > WEIGHTS_LAG)\n%*s", indent, "", indent + 2, "");
  else
    text_add(&e->out, "%*s", indent, "");
  text_add(&e->out, has_weights_pass(e) ? "weights(w++);\n" : "w++;\n");
}

static void print_exchange(Emit *e, int indent, int loop) {
  /* At the start of a batch w has not advanced, so there is nothing to exchange. */
  const char *begun = e->p->split_backward && loop < 3 ? format("w - 1 > u * %s && ", batch_of(e)) : "";
  text_add(&e->out, "%*sif (%s(%s) %% %s == 0)\n%*s  pd_exchange((%s) / %s - 1);\n", indent, "", begun, done(e),
           batch_of(e), indent, "", done(e), batch_of(e));
}

static void print_action(Emit *e, int indent, int loop, Action a) {
  const char *turn = loop == 0 ? "PD_FORWARD, f" : "PD_BACKWARD, b";
  const struct {
    bool there;
    const char *text;
  } line[] = {
      [DO_PROMOTE] = {true, format("pd_promote(%s);", turn)},
      [DO_DEMOTE] = {true, format("pd_demote(%s);", turn)},
      [DO_RECEIVE] = {e->k->received.n > 0, "pd_receive_activations(f);"},
      [DO_FORWARD] = {true, "forward(f);"},
      [DO_SEND] = {sends_activations(e), "pd_send_activations(f);"},
      [DO_RECEIVE_GRADIENT] = {e->k->gradients_received.n > 0, "pd_receive_gradients(b);"},
      [DO_RECOMPUTE] = {true, "recompute(b);"},
      [DO_BACKWARD] = {true, "backward(b);"},
      [DO_SEND_GRADIENT] = {sends_gradients(e), "pd_send_gradients(b);"},
      [DO_WEIGHTS] = {0},
      [DO_UPDATE] = {0},
      [DO_EXCHANGE] = {0},
  };
  if (line[a].there)
    text_add(&e->out, "%*s%s\n", indent, "", line[a].text);
  switch (a) {
  case DO_SEND: text_add(&e->out, "%*sf++;\n", indent, ""); break;
  case DO_SEND_GRADIENT: text_add(&e->out, "%*sb++;\n", indent, ""); break;
  case DO_WEIGHTS: print_weights(e, indent, loop); break;
  case DO_EXCHANGE: print_exchange(e, indent, loop); break;
  case DO_UPDATE:
    text_add(&e->out, "%*sif (%s == (u + 1) * %s + LAG)\n%*s  update(u++, %s);\n", indent, "", done(e),
             batch_of(e), indent, "", last_backward(e));
    break;
  default: break;
  }
}

static void print_loop_of(Emit *e, int indent, int i) {
  static const char *const conditions[2][N_LOOPS] = {
      {"pd_goes_on(f) && f - b < IN_FLIGHT - 1", "pd_goes_on(f)", "b < f", "w < f"},
      {"f <= last && f - b < IN_FLIGHT - 1", "f <= last", "b <= last", "w <= last"}};
  const Loop *l = &e->p->loop[i];
  if (l->n == 0)
    return;
  char *title = format("%s: %s", l->name, l->comment);
  if (title[0] >= 'a' && title[0] <= 'z')
    title[0] = (char)(title[0] - 'a' + 'A');
  const char *condition = conditions[e->p->per_batch][i];
  text_add(&e->out, "\n%*s/* %s. */\n%*swhile (%s) {\n", indent, "", comment_text(title), indent, "", condition);
  for (int j = 0; j < l->n; j++)
    print_action(e, indent + 2, i, l->action[j]);
  text_add(&e->out, "%*s}\n", indent, "");
}

/* Inference has only the steady state. */
static void print_stream(Emit *e) {
  const Loop *l = &e->p->loop[1];
  text_add(&e->out,
           "/* k: %s, counted from 1. */\nint main(int argc, char **argv) {\n"
           "  pd_start(&stage, argc, argv);\n  setup();\n  for (int64_t k = 1; %s_next(k); k++) {\n",
           e->g->generation.context ? "the step"
           : e->p->replicas > 1     ? "this rank's microbatches"
                                    : "the microbatch",
           work_prefix(e));
  for (int i = 0; i < l->n; i++)
    switch (l->action[i]) {
    case DO_RECEIVE: text_add(&e->out, "    pd_receive_activations(k);\n"); break;
    case DO_FORWARD: text_add(&e->out, "    forward(k);\n"); break;
    case DO_SEND: text_add(&e->out, e->k->sent.n > 0 ? "    pd_send_activations(k);\n" : ""); break;
    default: BUG("'%s' in a program for inference", action_name(l->action[i]));
    }
  text_add(&e->out, "  }\n  return pd_finish();\n}\n");
}

static void print_main(Emit *e) {
  const Program *p = e->p;
  const char *batch = batch_of(e), *what = p->chunks > 1     ? "turn"
                                           : p->replicas > 1 ? "of this rank's microbatches"
                                                             : "microbatch";
  int indent = p->per_batch ? 4 : 2;
  text_add(&e->out,
           "/* f: the next %s to go forward, b: %sto go backward, both counted from 1 over the run;\n%s"
           " * u: the next update, from 0. */\n",
           what, p->replicas > 1 ? "" : "the next ",
           p->split_backward ? " * w: the next whose weights' gradients are due, likewise;\n" : "");
  text_add(&e->out,
           "int main(int argc, char **argv) {\n  pd_start(&stage, argc, argv);\n  setup();\n"
           "  int64_t u = pd.first_step, f = u * %s + 1, b = f%s;\n",
           batch, p->split_backward ? ", w = f" : "");
  text_add(&e->out, "  if (pd.evaluate) /* --evaluate: no training */\n    validate(%s0);\n",
           validated_weights(e, "&arena->weights[u % VERSIONS], "));
  if (p->per_batch)
    text_add(&e->out, "  while (u < pd.steps) {\n    const int64_t last = (u + 1) * %s;\n", batch);
  for (int i = 0; i < N_LOOPS; i++)
    print_loop_of(e, indent, i);
  if (p->per_batch)
    text_add(&e->out, "  }\n");
  if (p->lag > 0)
    text_add(&e->out,
             "\n  /* Updates whose gradients from other %s are still on their way. */\n  while (u < pd.steps)\n"
             "    update(u++, %s);\n",
             p->replicas > 1 ? "ranks" : "stages", last_backward(e));
  text_add(&e->out, "  return pd_finish();\n}\n");
}

/* ---- the file -------------------------------------------------------------------------------- */

/* Reserves the names of per-chunk functions and tables. */
static void take_chunk_names(Emit *e) {
  static const char *const names[] = {"forward", "backward", "recompute", "weights"};
  static const BufferKind crossing[] = {BUFFER_RECEIVED, BUFFER_SENT, BUFFER_GRADIENT_RECEIVED,
                                        BUFFER_GRADIENT_SENT};
  for (int c = 0; c < e->p->chunks; c++) {
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
      push(&e->taken, internf("%s_%d", names[i], c));
    for (PassKind kind = 0; kind < PASS_KINDS; kind++)
      push(&e->taken, pass_name(e, (Pass){kind, c}));
    for (size_t i = 0; i < sizeof crossing / sizeof *crossing; i++)
      push(&e->taken, internf("%s_values", chunk_member(e, crossing[i], c)));
  }
}

static bool some_pass_reads_now(const Emit *e) {
  for (PassKind kind = 0; kind < PASS_KINDS; kind++)
    for (int c = 0; c < e->p->chunks; c++)
      if (pass_reads_now(e, (Pass){kind, c}))
        return true;
  return false;
}

/* Prints the file up to the passes. */
static void print_kernels(Emit *e) {
  if (e->p->chunks > 1)
    take_chunk_names(e);
  name_members(e);
  find_families(e);
  name_paths(e);
  print_header(e);
  print_constants(e);
  print_structs(e);
  if (some_pass_reads_now(e))
    text_add(&e->out, "%s", e->dialect->now);
  print_loops_and_objects(e);
  print_setup(e);
  text_add(&e->out, "/* ---- one microbatch ---- */\n\n");
  print_region_functions(e);
  PassKind end = e->p->forward_only ? PASS_BACKWARD : has_weights_pass(e) ? PASS_KINDS : PASS_WEIGHTS;
  for (PassKind kind = 0; kind < end; kind++)
    for (int c = 0; c < e->p->chunks; c++)
      print_pass(e, (Pass){kind, c});
}

static Emit emit_new(const Graph *g, const Pieces *pieces, const Plan *plan, const LoweredStage *lowered,
                     const Program *p, const Allocation *a) {
  return (Emit){.g = g,
                .pieces = pieces,
                .plan = plan,
                .lowered = lowered,
                .k = lowered->kernels,
                .p = p,
                .allocation = a,
                .dialect = dialect_of(lowered->kernels)};
}

char *emit_stage(const Graph *g, const Pieces *pieces, const Plan *plan, const LoweredStage *lowered,
                 const Program *p, const Allocation *a, const Identity *identity, const char *plan_hash) {
  Emit e = emit_new(g, pieces, plan, lowered, p, a);
  e.identity = identity;
  e.plan_hash = plan_hash;
  print_kernels(&e);
  print_microbatch(&e);
  if (!p->forward_only) {
    text_add(&e.out, "/* ---- the update ---- */\n\n");
    print_update(&e);
  }
  print_tables(&e);
  text_add(&e.out, "/* ---- the pipeline ---- */\n\n");
  (p->forward_only ? print_stream : print_main)(&e);
  return e.out.at;
}

LibraryText emit_library(const Graph *g, const Pieces *pieces, const Plan *plan, const LoweredStage *lowered,
                         const Program *p, const Allocation *a, const char *name) {
  Emit e = emit_new(g, pieces, plan, lowered, p, a);
  e.library = intern(name);
  ensure(p->forward_only && p->n_stages == 1 && p->chunks == 1 && !some_pass_reads_now(&e));
  library_names(&e);
  print_kernels(&e);
  library_functions(&e);
  return (LibraryText){e.out.at, library_header(&e)};
}
