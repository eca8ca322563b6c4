/* Prints the calls of a stage. Equal regions become one function called with different memory; all other kernels
 * are printed inline, in forward_pass and backward_pass. */
#include "emit/print.h"

#include <inttypes.h>
#include <string.h>

static bool own(const Emit *e, int buffer, int region) {
  const Buffer *b = &e->k->buffers.at[buffer];
  return b->region == region && (b->kind == BUFFER_TEMPORARY || struct_of(b->kind) >= 0);
}

/* ---- which regions share functions ----------------------------------------------------------- */

/* Whether a buffer of region a and its counterpart in region b are accessed in the same way. */
static bool same_role(const Emit *e, int x, int a, int y, int b) {
  const Buffer *p = &e->k->buffers.at[x], *q = &e->k->buffers.at[y];
  if (own(e, x, a) != own(e, y, b) || p->type != q->type || p->bf16 != q->bf16)
    return false;
  if (!own(e, x, a))
    return true;
  if (p->kind != q->kind || p->elements != q->elements)
    return false;
  if (p->kind == BUFFER_TEMPORARY)
    return p->backward == q->backward && e->allocation->buffer[x].offset == e->allocation->buffer[y].offset;
  return p->name == q->name;
}

static bool same_kernels(const Emit *e, int a, int b, PassKind pass, int *stands_for) {
  const Region *x = &e->k->regions.at[a], *y = &e->k->regions.at[b];
  int n = x->end[pass] - x->first[pass];
  if (n != y->end[pass] - y->first[pass])
    return false;
  for (int i = 0; i < n; i++) {
    const Lowered *k = &lowered_pass(e->lowered, pass)->at[x->first[pass] + i];
    const Lowered *l = &lowered_pass(e->lowered, pass)->at[y->first[pass] + i];
    const Ints *p = &k->arguments.buffers, *q = &l->arguments.buffers;
    if (k->kernel->signature != l->kernel->signature)
      return false;
    if (p->n != q->n)
      return false;
    for (int j = 0; j < p->n; j++) {
      int from = p->at[j], to = q->at[j];
      if ((stands_for[from] >= 0 && stands_for[from] != to) || !same_role(e, from, a, to, b))
        return false;
      stands_for[from] = to;
    }
  }
  return true;
}

/* By buffer of region a: its counterpart in region b; NULL: they cannot share functions. */
static int *correspondence(const Emit *e, int a, int b) {
  int *stands_for = alloc((size_t)(e->k->buffers.n + 1) * sizeof *stands_for);
  for (int i = 0; i < e->k->buffers.n; i++)
    stands_for[i] = -1;
  for (PassKind pass = 0; pass < PASS_KINDS; pass++)
    if (!same_kernels(e, a, b, pass, stands_for))
      return NULL;
  return stands_for;
}

/* Compares the whole structs of two regions, because they may have members that the regions' own kernels do not
 * use. A later region of h.0 may use parameters of h.0, and that part of h.1 may be on another stage. */
static bool same_structs(const Emit *e, int a, int b) {
  for (int which = 0; which < N_STRUCTS; which++)
    if (strcmp(region_members(e, which, a, 2), region_members(e, which, b, 2)))
      return false;
  return true;
}

/* The first region whose functions region r can share, else r itself. */
static int family_of(const Emit *e, int r) {
  for (int i = 0; i < r; i++)
    if (e->family[i] == i && e->k->regions.at[i].like == e->k->regions.at[r].like && same_structs(e, i, r) &&
        correspondence(e, i, r))
      return i;
  return r;
}

static Name region_function_name(const Emit *e, int region, PassKind pass) {
  static const char *const names[PASS_KINDS] = {"forward", "backward", "weight_gradients"};
  return internf("%s_%s", e->prefix[region], names[pass]);
}

static bool has_prefix(const Emit *e, Name name, int end) {
  for (int i = 0; i < end; i++)
    if (e->prefix[i] == name)
      return true;
  return false;
}

void find_families(Emit *e) {
  int n = e->k->regions.n;
  e->family = alloc((size_t)(n + 1) * sizeof *e->family);
  e->prefix = alloc((size_t)(n + 1) * sizeof *e->prefix);
  for (int i = 0; i < n; i++)
    e->family[i] = e->k->regions.at[i].index >= 0 ? family_of(e, i) : -1;
  for (int i = 0; i < n; i++) {
    if (e->family[i] != i)
      continue;
    const Region *r = &e->k->regions.at[i];
    Name path = c_identifier(r->path);
    e->prefix[i] = c_identifier(r->family);
    if (has_prefix(e, e->prefix[i], i))
      e->prefix[i] = path;
    if (has_prefix(e, e->prefix[i], i) && r->chunk > 0) /* several chunks may hold parts of one instance */
      path = e->prefix[i] = internf("%s_chunk_%d", path, r->chunk);
    for (int n = 2; has_prefix(e, e->prefix[i], i); n++) /* the instance is called again */
      e->prefix[i] = internf("%s_%d", path, n);
    for (PassKind pass = 0; pass < PASS_KINDS; pass++)
      push(&e->taken, region_function_name(e, i, pass));
  }
}

/* ---- names in a function being printed ----------------------------------------------------------- */

typedef struct Body {
  Emit *e;
  PassKind pass;
  int chunk;
  int region; /* the region of the function; -1: the whole pass */
  Names taken;
  Name *text;                /* by buffer; NULL: no name yet */
  Ints locals;               /* buffers in the workspace that need a declaration */
  Ints outside;              /* of a region: buffers that are arguments of its function */
  Ints key_kernel, key_term; /* of a region: random keys that are arguments of its function */
  Names keys;
  bool uses[BUFFER_FIGURE + 1], first, scratch, work;
  bool constructed; /* calls with objects that setup() constructs */
} Body;

/* The parameters of passes and of regions' functions. */
static const char *const base_of[] = {
    [BUFFER_WEIGHT] = "w",
    [BUFFER_FROZEN] = "frozen",
    [BUFFER_ACCUMULATOR] = "g",
    [BUFFER_INPUT] = "in",
    [BUFFER_RECEIVED] = "received",
    [BUFFER_SENT] = "sent",
    [BUFFER_GRADIENT_RECEIVED] = "gradients_received",
    [BUFFER_GRADIENT_SENT] = "gradients_sent",
    [BUFFER_SAVED] = "s",
    [BUFFER_KEPT] = "kept",
    [BUFFER_DEFERRED] = "deferred",
};

static Name stage_text(Body *b, int buffer) {
  const Buffer *x = &b->e->k->buffers.at[buffer];
  if (x->kind == BUFFER_TABLE)
    return internf("arena->tables.%s", b->e->member[buffer]);
  if (x->kind == BUFFER_CACHE)
    return internf("arena->caches.%s", b->e->member[buffer]);
  if (x->kind == BUFFER_FIGURE)
    return internf("arena->figures.%s", b->e->member[buffer]);
  return internf("%s->%s", base_of[x->kind], member_path(b->e, buffer));
}

static Name name_buffer(Body *b, int buffer) {
  const Buffer *x = &b->e->k->buffers.at[buffer];
  bool mine = b->region >= 0 && own(b->e, buffer, b->region);
  b->uses[x->kind] = b->uses[x->kind] || b->region < 0 || mine;
  if (x->kind == BUFFER_TEMPORARY && (mine || b->region < 0)) {
    push(&b->locals, buffer);
    b->work = b->work || mine;
    return unique_name(&b->taken, x->name);
  }
  if (mine)
    return internf("%s->%s", base_of[x->kind], b->e->member[buffer]);
  if (b->region >= 0) {
    push(&b->outside, buffer);
    bool gradient =
        x->kind == BUFFER_ACCUMULATOR || x->kind == BUFFER_GRADIENT_RECEIVED || x->kind == BUFFER_GRADIENT_SENT;
    return unique_name(&b->taken, x->kind == BUFFER_ACCUMULATOR && gradient ? format("d_%s", x->name) : x->name);
  }
  if (in_workspace(b->e, x)) {
    push(&b->locals, buffer);
    return unique_name(&b->taken, x->name);
  }
  return stage_text(b, buffer);
}

static void see_kernel(Body *b, int at) {
  const Arguments *a = &lowered_pass(b->e->lowered, b->pass)->at[at].arguments;
  b->first = b->first || a->first;
  b->scratch = b->scratch || a->scratch;
  b->constructed = b->constructed || kernel_takes_instance(&lowered_pass(b->e->lowered, b->pass)->at[at]);
  for (int i = 0; i < a->buffers.n; i++)
    if (!b->text[a->buffers.at[i]])
      b->text[a->buffers.at[i]] = name_buffer(b, a->buffers.at[i]);
  for (int i = 0; b->region >= 0 && i < a->keys.n; i++) {
    push(&b->key_kernel, at - b->e->k->regions.at[b->region].first[b->pass]);
    push(&b->key_term, a->keys.at[i]);
    unique_name(&b->taken, "key");
    push(&b->keys, b->taken.at[b->taken.n - 1]);
  }
}

static Body body_new(Emit *e, Pass pass, int region) {
  Body b = {.e = e, .pass = pass.kind, .chunk = pass.chunk, .region = region};
  b.text = alloc((size_t)(e->k->buffers.n + 1) * sizeof(Name));
  for (int i = 0; i < e->functions.n; i++)
    push(&b.taken, e->functions.at[i].name);
  for (int i = 0; i < e->taken.n; i++)
    push(&b.taken, e->taken.at[i]);
  return b;
}

/* The state after a pass over all kernels of a region. */
static Body region_body(Emit *e, int region, PassKind pass) {
  const Region *r = &e->k->regions.at[region];
  Body b = body_new(e, (Pass){pass, r->chunk}, region);
  for (int i = r->first[pass]; i < r->end[pass]; i++)
    see_kernel(&b, i);
  return b;
}

/* ---- libraries: functions take the instance instead of reading file scope ---------------------- */

/* Whether a region's function needs it. */
static bool takes_instance(const Body *b) { return b->e->library && (b->scratch || b->constructed); }

static void add_instance(const Emit *e, Names *parameters) {
  push(parameters, internf("struct %s *m", e->library));
}

static void declare_arena(const Emit *e, Text *out) {
  if (e->library)
    text_add(out, "  struct arena *arena = m->arena;\n");
}

/* An object of kernels in the text of a function. */
static Name object_text(const Emit *e, const Lowered *k, Name object) {
  return e->library && call_is_constructed(k) ? internf("m->%s", object) : object;
}

/* Programs advance their messages between layers. */
static const char *progress(const Emit *e) { return e->library ? "" : "  pd_progress();\n"; }

/* ---- calling regions ------------------------------------------------------------------------- */

/* The region that starts at a kernel and has a function, or -1. */
static int region_at(const Emit *e, int kernel, PassKind pass) {
  for (int i = 0; i < e->k->regions.n; i++) {
    const Region *r = &e->k->regions.at[i];
    if (e->family[i] >= 0 && r->first[pass] == kernel && r->end[pass] > kernel)
      return i;
  }
  return -1;
}

static void see_region(Body *b, int region) {
  Emit *e = b->e;
  int family = e->family[region];
  Body inner = region_body(e, family, b->pass);
  int *stands_for = correspondence(e, family, region);
  ensure(stands_for);
  b->first = b->first || inner.first;
  for (BufferKind kind = 0; kind <= BUFFER_FIGURE; kind++)
    b->uses[kind] |= struct_of(kind) >= 0 && inner.uses[kind];
  for (int i = 0; i < inner.outside.n; i++) {
    int buffer = stands_for[inner.outside.at[i]];
    if (!b->text[buffer])
      b->text[buffer] = name_buffer(b, buffer);
  }
}

static Body pass_body(Emit *e, Pass pass) {
  Body b = body_new(e, pass, -1);
  const Chunk *chunk = &e->k->chunks.at[pass.chunk];
  for (int i = chunk->first[pass.kind]; i < chunk->end[pass.kind];) {
    int region = region_at(e, i, pass.kind);
    if (region >= 0) {
      see_region(&b, region);
      i = e->k->regions.at[region].end[pass.kind];
    } else {
      see_kernel(&b, i++);
    }
  }
  return b;
}

/* Where a region's saved struct starts in the workspace. */
static int64_t saved_start(const Emit *e, int region) {
  int64_t start = -1;
  for (int i = 0; i < e->k->buffers.n; i++)
    if (e->k->buffers.at[i].kind == BUFFER_SAVED && e->k->buffers.at[i].region == region) {
      int64_t at = workspace_offset(e, i);
      start = start < 0 || at < start ? at : start;
    }
  return start;
}

static char *workspace_text(int64_t offset, bool operand) {
  if (offset == 0)
    return format("arena->workspace");
  return format(operand ? "(arena->workspace + %" PRId64 ")" : "arena->workspace + %" PRId64, offset);
}

/* The struct parameters of a region's function, in this order. */
static const BufferKind region_structs[] = {BUFFER_WEIGHT, BUFFER_FROZEN, BUFFER_ACCUMULATOR,
                                            BUFFER_SAVED,  BUFFER_KEPT,   BUFFER_DEFERRED};

/* The region's struct within the pass's struct of that kind. */
static Name struct_text(const Body *b, int region, BufferKind kind) {
  const Emit *e = b->e;
  int which = struct_of(kind);
  if (kind == BUFFER_SAVED && allocation_saved_packed(e->p, b->chunk))
    return internf("(%s *)%s", e->type[which][region], workspace_text(saved_start(e, region), true));
  return internf("&%s->%s", base_of[kind], e->path[which][region]);
}

static void call_region(Text *out, Body *b, int region) {
  Emit *e = b->e;
  int family = e->family[region];
  Body inner = region_body(e, family, b->pass);
  int *stands_for = correspondence(e, family, region);
  Names list = {0};
  if (takes_instance(&inner))
    push(&list, intern("m"));
  if (inner.first)
    push(&list, intern("first"));
  for (size_t i = 0; i < sizeof region_structs / sizeof *region_structs; i++)
    if (inner.uses[region_structs[i]])
      push(&list, struct_text(b, region, region_structs[i]));
  for (int i = 0; i < inner.outside.n; i++)
    push(&list, b->text[stands_for[inner.outside.at[i]]]);
  for (int i = 0; i < inner.keys.n; i++) {
    int first = e->k->regions.at[region].first[b->pass];
    const Kernel *k = &pass_kernels(e->k, b->pass)->at[first + inner.key_kernel.at[i]];
    push(&list, internf("0x%016" PRIx64 "u", node_key(k->terms.at[inner.key_term.at[i]].node)));
  }
  if (inner.work) {
    const Allocation *a = e->allocation;
    int64_t frame = (b->pass == PASS_BACKWARD ? a->frame_backward : a->frame)[region];
    push(&list, intern(workspace_text(frame - a->section[SECTION_WORKSPACE].offset, false)));
  }
  const char *function = region_function_name(e, family, b->pass);
  text_add(out, "\n  /* %s */\n", comment_text(e->k->regions.at[region].path));
  text_list(out, (int)strlen(function) + 3, format("  %s(", function), &list, ");\n");
  text_add(out, "%s", progress(e));
}

/* ---- printing bodies ------------------------------------------------------------------------- */

static Name kernel_function(const Emit *e, const Kernel *k) {
  for (int i = 0; i < e->functions.n; i++)
    if (e->functions.at[i].signature == k->signature)
      return e->functions.at[i].name;
  BUG("kernel '%s' was never printed", k->name);
}

static Name body_text(void *context, int buffer) {
  Body *b = context;
  ensure(b->text[buffer]);
  return b->text[buffer];
}

static void call_kernel(Text *out, Body *b, int at) {
  Emit *e = b->e;
  const Lowered *k = &lowered_pass(e->lowered, b->pass)->at[at];
  const Arguments *a = &k->arguments;
  Name function = kernel_function(e, k->kernel);
  if (k->call) {
    print_kernel_call(out, 2, e->dialect, k, object_text(e, k, function), body_text, b, e->library != NULL);
    return;
  }
  Names list = {0};
  if (a->first)
    push(&list, intern("first"));
  for (int i = 0; i < a->buffers.n; i++)
    push(&list, body_text(b, a->buffers.at[i]));
  for (int i = 0; i < a->keys.n; i++) {
    Name key = internf("0x%016" PRIx64 "u", node_key(k->kernel->terms.at[a->keys.at[i]].node));
    for (int j = 0; b->region >= 0 && j < b->keys.n; j++)
      if (b->key_term.at[j] == a->keys.at[i] &&
          b->key_kernel.at[j] == at - e->k->regions.at[b->region].first[b->pass])
        key = b->keys.at[j];
    push(&list, key);
  }
  if (a->scratch)
    push(&list, intern("scratch"));
  e->dialect->print_loop_call(out, 2, e->k, k, function, &list);
}

/* Whether the backward kernels [first, end) write saved values: a gradient reuses the memory of a dead value
 * (fuse/reuse.c). */
bool backward_writes_saved(const Emit *e, int first, int end) {
  for (int i = first; i < end; i++)
    for (Access a = {0}; next_access(&e->k->backward.at[i], &a);)
      if (a.write && e->k->buffers.at[a.place->buffer].kind == BUFFER_SAVED)
        return true;
  return false;
}

/* Whether the function writes the buffer, so that it cannot be const. */
static bool writes(const Body *b, int buffer) {
  const Region *r = &b->e->k->regions.at[b->region];
  for (int i = r->first[b->pass]; i < r->end[b->pass]; i++) {
    const Arguments *a = &lowered_pass(b->e->lowered, b->pass)->at[i].arguments;
    for (int j = 0; j < a->buffers.n; j++)
      if (a->buffers.at[j] == buffer && a->written[j])
        return true;
  }
  return false;
}

static void declare_locals(Text *out, Body *b) {
  const Emit *e = b->e;
  for (int i = 0; i < b->locals.n; i++) {
    int buffer = b->locals.at[i];
    const Buffer *x = &e->k->buffers.at[buffer];
    const char *type = element_type(x);
    const char *base = b->region >= 0 ? "work" : "arena->workspace";
    int64_t offset = b->region >= 0 ? e->allocation->buffer[buffer].offset : workspace_offset(e, buffer);
    char *place = offset == 0 ? format("%s", base) : format("(%s + %" PRId64 ")", base, offset);
    text_add(out, "  %s *%s = (%s *)%s; /* [%s] */\n", type, b->text[buffer], type, place, array_comment(e, x));
  }
  if (b->scratch)
    text_add(out, "  char *scratch = %s;\n", e->allocation->scratch_bytes > 0 ? "arena->scratch" : "NULL");
  if (b->locals.n || b->scratch)
    text_add(out, "\n");
}

enum { CALLS_BETWEEN_PROGRESS = 4 };

/* Whether a region's kernels write the struct, so that it cannot be const. */
static bool struct_written(const Emit *e, int region, PassKind pass, BufferKind kind) {
  const Region *r = &e->k->regions.at[region];
  return kind == BUFFER_ACCUMULATOR || ((kind == BUFFER_SAVED || kind == BUFFER_KEPT) && pass == PASS_FORWARD) ||
         (kind == BUFFER_DEFERRED && pass == PASS_BACKWARD) ||
         (kind == BUFFER_SAVED && pass == PASS_BACKWARD && backward_writes_saved(e, r->first[pass], r->end[pass]));
}

static Names region_parameters(const Body *b) {
  const Emit *e = b->e;
  Names list = {0};
  if (takes_instance(b))
    add_instance(e, &list);
  if (b->first)
    push(&list, intern("bool first"));
  for (size_t i = 0; i < sizeof region_structs / sizeof *region_structs; i++) {
    BufferKind kind = region_structs[i];
    if (b->uses[kind])
      push(&list, internf("%s%s *%s", struct_written(e, b->region, b->pass, kind) ? "" : "const ",
                          e->type[struct_of(kind)][b->region], base_of[kind]));
  }
  for (int i = 0; i < b->outside.n; i++) {
    const Buffer *x = &e->k->buffers.at[b->outside.at[i]];
    push(&list, internf("%s%s *%s", writes(b, b->outside.at[i]) ? "" : "const ", element_type(x),
                        b->text[b->outside.at[i]]));
  }
  for (int i = 0; i < b->keys.n; i++)
    push(&list, internf("uint64_t %s", b->keys.at[i]));
  if (b->work)
    push(&list, intern("char *work"));
  return list;
}

/* Before the first of a run of kernels of recomputed layers, and before the first kernel behind them. */
static void print_again(Text *out, const Kernels *kernels, int first, int at) {
  const bool before = at > first && kernels->at[at - 1].again, again = kernels->at[at].again;
  if (again && !before)
    text_add(out, "  /* Recomputation: the forward pass saved only what enters these layers. */\n");
  if (before && !again)
    text_add(out, "  /* Backward pass. */\n");
}

static void region_function(Emit *e, int region, PassKind pass) {
  static const char *const titles[PASS_KINDS] = {"Forward pass", "Backward pass", "Gradients of the weights"};
  const Region *r = &e->k->regions.at[region];
  const Kernels *kernels = pass_kernels(e->k, pass);
  if (r->end[pass] == r->first[pass])
    return;
  Body b = region_body(e, region, pass);
  Names list = region_parameters(&b);
  const char *what = e->p->n_stages > 1 ? "the blocks of this stage" : "the blocks";
  text_comment(&e->out, 0, format("%s of %s that look like %s, one call each.", titles[pass], what, r->path));
  const char *function = region_function_name(e, region, pass);
  text_list(&e->out, (int)strlen(function) + 13, format("static void %s(", function), &list, ") {\n");
  if (b.scratch && e->allocation->scratch_bytes > 0)
    declare_arena(e, &e->out);
  declare_locals(&e->out, &b);
  int calls = 0;
  for (int i = r->first[pass]; i < r->end[pass]; i++) {
    print_again(&e->out, kernels, r->first[pass], i);
    call_kernel(&e->out, &b, i);
    calls += kernels->at[i].kind == KERNEL_CALL;
    if (calls == CALLS_BETWEEN_PROGRESS && i + 1 < r->end[pass]) {
      text_add(&e->out, "%s", progress(e));
      calls = 0;
    }
  }
  text_add(&e->out, "}\n\n");
}

void print_region_functions(Emit *e) {
  for (PassKind pass = 0; pass < PASS_KINDS; pass++)
    for (int r = 0; r < e->k->regions.n; r++)
      if (e->family[r] == r)
        region_function(e, r, pass);
}

/* ---- passes ---------------------------------------------------------------------------------- */

Name pass_name(const Emit *e, Pass pass) {
  static const char *const names[PASS_KINDS] = {"forward_pass", "backward_pass", "weights_pass"};
  return e->p->chunks > 1 ? internf("%s_%d", names[pass.kind], pass.chunk) : intern(names[pass.kind]);
}

static bool is_argument(const Emit *e, const Body *b, BufferKind kind) {
  return b->uses[kind] && !(kind == BUFFER_SAVED && allocation_saved_packed(e->p, b->chunk));
}

bool pass_uses(const Emit *e, Pass pass, BufferKind kind) {
  Body b = pass_body((Emit *)e, pass);
  return is_argument(e, &b, kind);
}

bool pass_reads_now(const Emit *e, Pass pass) {
  const Chunk *chunk = &e->k->chunks.at[pass.chunk];
  for (int i = chunk->first[pass.kind]; i < chunk->end[pass.kind]; i++)
    if (lowered_pass(e->lowered, pass.kind)->at[i].arguments.now)
      return true;
  return false;
}

/* The struct parameter of a kind of a pass, "struct saved_1" with several chunks; const if the pass only reads
 * it. */
static Name pass_type(const Emit *e, Pass pass, BufferKind kind) {
  if (kind == BUFFER_WEIGHT)
    return intern("const struct weights");
  if (kind == BUFFER_FROZEN)
    return intern("const struct frozen");
  if (kind == BUFFER_ACCUMULATOR)
    return e->gradients_type;
  bool forward = kind == BUFFER_SAVED || kind == BUFFER_KEPT || kind == BUFFER_SENT;
  bool backward = kind == BUFFER_DEFERRED || kind == BUFFER_GRADIENT_SENT;
  bool written = forward ? pass.kind == PASS_FORWARD : backward && pass.kind == PASS_BACKWARD;
  const Chunk *c = &e->k->chunks.at[pass.chunk];
  written |= kind == BUFFER_SAVED && pass.kind == PASS_BACKWARD &&
             backward_writes_saved(e, c->first[PASS_BACKWARD], c->end[PASS_BACKWARD]);
  return internf("%s%s", written ? "" : "const ", chunk_struct(e, kind, pass.chunk));
}

static bool kernel_is_once(const Emit *e, const Kernel *k) {
  return k->region >= 0 && e->k->regions.at[k->region].once;
}

/* Whether the pass has kernels that run in steps with new samples alone. */
static bool pass_has_once(const Emit *e, Pass pass) {
  const Chunk *chunk = &e->k->chunks.at[pass.chunk];
  for (int i = chunk->first[pass.kind]; i < chunk->end[pass.kind]; i++)
    if (kernel_is_once(e, &pass_kernels(e->k, pass.kind)->at[i]))
      return true;
  return false;
}

PassParameters pass_parameters(const Emit *e, Pass pass) {
  static const BufferKind kinds[] = {
      BUFFER_WEIGHT,        BUFFER_FROZEN,   BUFFER_INPUT,       BUFFER_RECEIVED,
      BUFFER_SAVED,         BUFFER_KEPT,     BUFFER_SENT,        BUFFER_GRADIENT_RECEIVED,
      BUFFER_GRADIENT_SENT, BUFFER_DEFERRED, BUFFER_ACCUMULATOR,
  };
  Body b = pass_body((Emit *)e, pass);
  PassParameters p = {.first = b.first, .encodes = pass_has_once(e, pass)};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (is_argument(e, &b, kinds[i]))
      push(&p.kinds, kinds[i]);
  return p;
}

static Names declared_parameters(const Emit *e, Pass pass) {
  PassParameters p = pass_parameters(e, pass);
  Names list = {0};
  if (e->library)
    add_instance(e, &list);
  if (p.encodes)
    push(&list, intern("bool encodes"));
  if (p.first)
    push(&list, intern("bool first"));
  for (int i = 0; i < p.kinds.n; i++) {
    BufferKind kind = (BufferKind)p.kinds.at[i];
    push(&list, internf("%s *%s", pass_type(e, pass, kind), base_of[kind]));
  }
  if (list.n == 0)
    push(&list, intern("void"));
  return list;
}

/* Printed after the kernel that completes a bucket of gradients; the end of the pass completes the last bucket. */
static void print_complete(Text *out, const Body *b, int kernel) {
  const Allocation *a = b->e->allocation;
  for (int i = 0; i < a->buckets.n && a->buckets.n > 1 && b->pass == PASS_BACKWARD; i++)
    if (a->buckets.at[i].behind == kernel && kernel + 1 < b->e->k->backward.n)
      text_add(out, "  pd_bucket_complete(%d);\n", i);
}

/* The end of the run of kernels from `first` on that all run once, or that none does. */
static int end_of_run(const Emit *e, const Body *b, int first) {
  const Kernels *all = pass_kernels(e->k, b->pass);
  int i = first;
  while (i < e->k->chunks.at[b->chunk].end[b->pass] &&
         kernel_is_once(e, &all->at[i]) == kernel_is_once(e, &all->at[first]))
    i++;
  return i;
}

/* Appends lines, indented by two more. */
static void add_indented(Text *out, const char *lines) {
  for (const char *line = lines, *end; *line; line = end) {
    end = strchr(line, '\n') + 1;
    text_add(out, "%s%.*s", *line == '\n' || *line == '#' ? "" : "  ", (int)(end - line), line);
  }
}

/* Kernels [first, last) of a pass. */
static char *run_calls(Emit *e, Body *b, int first, int last) {
  Text calls = {0};
  int heavy = 0;
  for (int i = first; i < last;) {
    int region = region_at(e, i, b->pass);
    if (region >= 0) {
      call_region(&calls, b, region);
      i = e->k->regions.at[region].end[b->pass];
      print_complete(&calls, b, i - 1);
      heavy = 0;
      if (i < last && region_at(e, i, b->pass) < 0)
        text_add(&calls, "\n");
      continue;
    }
    heavy += pass_kernels(e->k, b->pass)->at[i].kind == KERNEL_CALL;
    print_again(&calls, pass_kernels(e->k, b->pass), first, i);
    call_kernel(&calls, b, i++);
    print_complete(&calls, b, i - 1);
    if (heavy == CALLS_BETWEEN_PROGRESS) {
      text_add(&calls, "%s", progress(e));
      heavy = 0;
    }
  }
  return calls.n ? calls.at : format("");
}

static char *pass_calls(Emit *e, Body *b) {
  const Chunk *chunk = &e->k->chunks.at[b->chunk];
  Text calls = {0};
  for (int i = chunk->first[b->pass], end; i < chunk->end[b->pass]; i = end) {
    end = end_of_run(e, b, i);
    const char *lines = run_calls(e, b, i, end);
    const bool once = kernel_is_once(e, &pass_kernels(e->k, b->pass)->at[i]);
    if (i > chunk->first[b->pass] && (once || *lines != '\n'))
      text_add(&calls, "\n");
    if (!once) {
      text_add(&calls, "%s", lines);
      continue;
    }
    text_add(&calls, "  if (encodes) {\n");
    add_indented(&calls, *lines == '\n' ? lines + 1 : lines);
    text_add(&calls, "  }\n");
  }
  return calls.n ? calls.at : format("");
}

void print_pass(Emit *e, Pass pass) {
  Body b = pass_body(e, pass);
  Names list = declared_parameters(e, pass);
  const char *function = pass_name(e, pass);
  text_list(&e->out, (int)strlen(function) + 13, format("static void %s(", function), &list, ") {\n");
  const char *text = pass_calls(e, &b);
  declare_arena(e, &e->out);
  declare_locals(&e->out, &b);
  bool blank = text[0] == '\n' && (e->out.at[e->out.n - 2] == '\n' || e->out.at[e->out.n - 2] == '{');
  text_add(&e->out, "%s}\n\n", blank ? text + 1 : text);
}

/* ---- setup, loops and objects ---------------------------------------------------------------- */

static Name function_of(const void *context, const Lowered *k) { return kernel_function(context, k->kernel); }

static void print_kernel(Emit *e, Text *loops, const KernelText *t) {
  const Lowered *k = t->kernel;
  const ScanTexts texts = {e->dialect, e->library, !e->library, &e->taken, function_of, e};
  Name name = unique_kernel_name(&e->taken, t->wanted);
  push(&e->functions, (Function){k->kernel->signature, name});
  if (k->scan)
    print_scan(loops, &texts, t->stage, k, name);
  else if (k->call)
    print_call_object(e->library && call_is_constructed(k) ? &e->members : &e->out, k, name, e->library != NULL);
  else
    e->dialect->print_loop(loops, t->stage, k, name);
}

void print_loops_and_objects(Emit *e) {
  Text loops = {0};
  KernelTexts kernels = {0};
  collect_kernels(e->lowered, NULL, &kernels);
  text_add(&e->out, "/* ---- arguments of the runtime's kernels ---- */\n\n");
  if (!e->p->forward_only)
    text_add(&e->out, "/* Arrays of two: [1] overwrites, for a batch's first microbatch; [0] adds. */\n");
  for (int i = 0; i < kernels.n; i++)
    print_kernel(e, &loops, &kernels.at[i]);
  text_add(&e->out, "\n");
  if (e->library)
    text_add(&e->out,
             "struct %s { /* an instance */\n  struct pd_instance instance;\n  struct arena *arena;\n%s};\n\n",
             e->library, e->members.n ? e->members.at : "");
  if (loops.n == 0)
    return;
  text_add(&e->out, "/* ---- fused loops ---- */\n\n");
  text_add(&e->out, "%s", loops.at);
}

/* body: the statements that follow, or NULL. */
static void open_setup(Emit *e, const char *body) {
  if (!e->library) {
    text_add(
        &e->out,
        "/* Before the first microbatch. */\nstatic void setup(void) {\n  arena = (struct arena *)pd.arena;\n");
    return;
  }
  text_add(&e->out,
           "/* Before the first microbatch. */\nstatic void setup(void *instance) {\n"
           "  struct %s *m = (struct %s *)instance;\n  m->arena = (struct arena *)m->instance.arena;\n",
           e->library, e->library);
  if (body && strstr(body, "arena->"))
    declare_arena(e, &e->out);
}

void print_setup(Emit *e) {
  Text body = {0};
  KernelTexts kernels = {0};
  collect_kernels(e->lowered, NULL, &kernels);
  for (int i = 0; i < kernels.n; i++) {
    const Lowered *k = kernels.at[i].kernel;
    if (k->call && !k->scan)
      print_call_setup(&body, e->dialect, k, object_text(e, k, kernel_function(e, k->kernel)));
  }
  for (int j = 0; j < e->k->setup.n; j++) {
    const Lowered *k = &lowered_setup(e->lowered)->at[j];
    const Arguments *a = &k->arguments;
    Body b = body_new(e, (Pass){PASS_FORWARD, k->kernel->chunk}, -1);
    Names list = {0};
    ensure(!k->call && !a->first && !a->keys.n);
    for (int i = 0; i < a->buffers.n; i++)
      push(&list, stage_text(&b, a->buffers.at[i]));
    if (a->scratch)
      push(&list, intern("arena->scratch"));
    e->dialect->print_loop_call(&body, 2, e->k, k, kernel_function(e, k->kernel), &list);
  }
  print_measured(e);
  open_setup(e, body.at);
  use_measured(e);
  text_add(&e->out, "%s}\n\n", body.n ? body.at : "");
}
