/* The arena as C structs: the user's names and shapes, at the offsets that the Layout says. */
#include "emit/print.h"

#include <inttypes.h>
#include <string.h>

static const BufferKind kind_of[N_STRUCTS] = {BUFFER_WEIGHT, BUFFER_ACCUMULATOR, BUFFER_SAVED};
static const char *const noun_of[N_STRUCTS] = {"weights", "gradients", "saved"};

int struct_of(BufferKind kind) {
  for (int i = 0; i < N_STRUCTS; i++)
    if (kind_of[i] == kind)
      return i;
  return -1;
}

bool in_workspace(const Emit *e, const Buffer *b) {
  return b->kind == BUFFER_TEMPORARY || (b->kind == BUFFER_SAVED && e->p->slots[0].saved == 1);
}

int64_t workspace_offset(const Emit *e, int buffer) {
  const Buffer *b = &e->k->buffers.at[buffer];
  int64_t offset = e->l->buffer[buffer].offset;
  if (b->kind == BUFFER_TEMPORARY && b->region >= 0)
    offset += b->backward ? e->l->frame_backward[b->region] : e->l->frame[b->region];
  return offset - e->l->section[SECTION_WORKSPACE].offset;
}

char *array_text(const Emit *e, const Buffer *b) {
  Text out = {0};
  bool batched = b->value >= 0 && e->g->values.at[b->value].shape.batched;
  for (int i = 0; i < b->rank; i++) {
    if (i == 0 && batched && b->dim[0] == e->k->microbatch)
      text_add(&out, "MICROBATCH");
    else
      text_add(&out, "%s%" PRId64, i ? " * " : "", b->dim[i]);
  }
  return out.n ? out.at : format("1");
}

static bool nested(const Emit *e, int region) { return region >= 0 && e->k->regions.at[region].path[0]; }

/* ---- names ----------------------------------------------------------------------------------- */

/* How many accumulators of a parameter stand on this stage. */
static int uses_here(const Emit *e, int param) {
  int n = 0;
  for (int i = 0; i < e->k->buffers.n; i++)
    n += e->k->buffers.at[i].kind == BUFFER_ACCUMULATOR && e->k->buffers.at[i].param == param;
  return n;
}

static Name weight_member(const Emit *e, int param) {
  for (int i = 0; i < e->k->buffers.n; i++)
    if (e->k->buffers.at[i].kind == BUFFER_WEIGHT && e->k->buffers.at[i].param == param)
      return e->member[i];
  return NULL;
}

static Name wanted_member(const Emit *e, const Buffer *b) {
  Name weight = b->kind == BUFFER_ACCUMULATOR ? weight_member(e, b->param) : NULL;
  if (!weight)
    return b->name;
  return uses_here(e, b->param) == 1 ? weight : internf("%s_use_%d", weight, b->use + 1);
}

static void name_kind(Emit *e, BufferKind kind) {
  Ints members = layout_members(e->k, kind);
  Names taken = {0}, outside = {0};
  int last = -1;
  for (int i = 0; i < members.n; i++) {
    const Buffer *b = &e->k->buffers.at[members.at[i]];
    if (nested(e, b->region) && b->region != last)
      taken = (Names){0};
    last = b->region;
    e->member[members.at[i]] = unique_name(nested(e, b->region) ? &taken : &outside, wanted_member(e, b));
  }
}

/* The regions that have members of a struct, in order. */
static Ints regions_of(const Emit *e, Ints members) {
  Ints regions = {0};
  for (int i = 0; i < members.n; i++) {
    int r = e->k->buffers.at[members.at[i]].region;
    if (nested(e, r) && (regions.n == 0 || regions.at[regions.n - 1] != r))
      push(&regions, r);
  }
  return regions;
}

/* The end of the run of regions from `at` that stand in one array. */
static int run_end(const Emit *e, Ints regions, int at) {
  int family = e->family[regions.at[at]], end = at + 1;
  while (family >= 0 && end < regions.n && e->family[regions.at[end]] == family)
    end++;
  return end;
}

static void name_region_paths(Emit *e, int which) {
  Ints members = layout_members(e->k, kind_of[which]), regions = regions_of(e, members);
  Names taken = {0};
  for (int i = 0; i < members.n; i++)
    if (!nested(e, e->k->buffers.at[members.at[i]].region))
      push(&taken, e->member[members.at[i]]);
  e->path[which] = alloc((size_t)(e->k->regions.n + 1) * sizeof(Name));
  for (int i = 0, end; i < regions.n; i = end) {
    end = run_end(e, regions, i);
    const Region *r = &e->k->regions.at[regions.at[i]];
    Name name = unique_name(&taken, end - i > 1 ? r->family : r->path);
    for (int j = i; j < end; j++)
      e->path[which][regions.at[j]] = end - i > 1 ? internf("%s[%d]", name, j - i) : name;
  }
}

void name_members(Emit *e) {
  static const BufferKind kinds[] = {
    BUFFER_WEIGHT, BUFFER_ACCUMULATOR, BUFFER_SAVED, BUFFER_INPUT, BUFFER_RECEIVED, BUFFER_SENT,
    BUFFER_GRADIENT_RECEIVED, BUFFER_GRADIENT_SENT, BUFFER_TABLE, BUFFER_LOSS,
  };
  e->member = alloc((size_t)(e->k->buffers.n + 1) * sizeof(Name));
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    name_kind(e, kinds[i]);
  for (int which = 0; which < N_STRUCTS; which++) {
    name_region_paths(e, which);
    e->type[which] = alloc((size_t)(e->k->regions.n + 1) * sizeof(Name));
  }
}

Name member_path(const Emit *e, int buffer) {
  const Buffer *b = &e->k->buffers.at[buffer];
  int which = struct_of(b->kind);
  if (which >= 0 && nested(e, b->region))
    return internf("%s.%s", e->path[which][b->region], e->member[buffer]);
  return e->member[buffer];
}

/* ---- structs --------------------------------------------------------------------------------- */

static void declare_member(const Emit *e, Text *out, int indent, int buffer) {
  const Buffer *b = &e->k->buffers.at[buffer];
  text_add(out, "%*s_Alignas(64) %s %s[%s];\n", indent, "", b->type == TYPE_TOKEN ? "int32_t" : "float",
           e->member[buffer], array_text(e, b));
}

static char *region_body(const Emit *e, Ints members, int region, int indent) {
  Text out = {0};
  for (int i = 0; i < members.n; i++)
    if (e->k->buffers.at[members.at[i]].region == region)
      declare_member(e, &out, indent, members.at[i]);
  return out.at;
}

/* The structs of regions that have functions; gradients that look like the weights use theirs. */
static void region_types(Emit *e, int which) {
  Ints members = layout_members(e->k, kind_of[which]), regions = regions_of(e, members);
  for (int i = 0; i < regions.n; i++) {
    int r = regions.at[i], family = e->family[r];
    if (family < 0)
      continue;
    if (e->type[which][family]) {
      e->type[which][r] = e->type[which][family];
      continue;
    }
    char *body = region_body(e, members, r, 2);
    Ints weights = layout_members(e->k, BUFFER_WEIGHT);
    char *like = which == IN_GRADIENTS ? region_body(e, weights, r, 2) : NULL;
    if (like && e->type[IN_WEIGHTS][family] && !strcmp(like, body)) {
      e->type[which][family] = e->type[which][r] = e->type[IN_WEIGHTS][family];
      continue;
    }
    Name type = internf("struct %s_%s", e->prefix[family], noun_of[which]);
    e->type[which][family] = e->type[which][r] = type;
    text_add(&e->out, "%s {\n%s};\n\n", type, body);
  }
}

/* The members of weights, gradients or saved. */
static char *struct_body(const Emit *e, int which) {
  Ints members = layout_members(e->k, kind_of[which]), regions = regions_of(e, members);
  Text out = {0};
  for (int i = 0, at = 0; i < members.n; i++) {
    int r = e->k->buffers.at[members.at[i]].region;
    if (!nested(e, r)) {
      declare_member(e, &out, 2, members.at[i]);
      continue;
    }
    if (at >= regions.n || regions.at[at] != r)
      continue;
    int end = run_end(e, regions, at);
    char *path = format("%s", e->path[which][r]);
    path[strcspn(path, "[")] = 0;
    const char *first = comment_text(e->k->regions.at[r].path);
    const char *last = comment_text(e->k->regions.at[regions.at[end - 1]].path);
    if (end - at > 1)
      text_add(&out, "  %s %s[%d]; /* %s .. %s */\n", e->type[which][r], path, end - at, first, last);
    else if (e->type[which][r])
      text_add(&out, "  %s %s; /* %s */\n", e->type[which][r], path, first);
    else
      text_add(&out, "  struct {\n%s  } %s; /* %s */\n", region_body(e, members, r, 4), path, first);
    at = end;
  }
  return out.n ? out.at : NULL;
}

static void flat_struct(Emit *e, BufferKind kind, const char *name, const char *comment) {
  Ints members = layout_members(e->k, kind);
  if (members.n == 0)
    return;
  text_add(&e->out, "struct %s { /* %s */\n", name, comment);
  for (int i = 0; i < members.n; i++)
    declare_member(e, &e->out, 2, members.at[i]);
  text_add(&e->out, "};\n\n");
}

static void exchanged_struct(Emit *e) {
  if (e->l->exchanged.n == 0)
    return;
  text_add(&e->out, "struct exchanged { /* gradients of tied parameters' uses on other stages */\n");
  for (int i = 0; i < e->l->exchanged.n; i++) {
    const Exchanged *x = &e->l->exchanged.at[i];
    text_add(&e->out, "  _Alignas(64) float %s_use_%d[%" PRId64 "];\n",
             c_identifier(e->g->params.at[x->param].name), x->use + 1, x->elements);
  }
  text_add(&e->out, "};\n\n");
}

typedef struct Part { SectionKind section; const char *declaration, *name, *comment; } Part;

static void print_arena(Emit *e) {
  const Layout *l = e->l;
  const Part parts[] = {
      {SECTION_WEIGHTS, "struct weights weights[VERSIONS]", "weights", "version v in weights[v % VERSIONS]"},
      {SECTION_GRADIENTS, format("%s gradients[ACCUMULATORS]", e->gradients_type), "gradients",
       "of batch t: gradients[t % ACCUMULATORS]"},
      {SECTION_MOMENTS, format("struct weights moments[%d]", l->n_moments), "moments", "the optimizer's"},
      {SECTION_EXCHANGED, "struct exchanged exchanged", "exchanged", NULL},
      {SECTION_INPUTS, "struct inputs inputs[INPUT_SLOTS]", "inputs", "of microbatch k: [k % INPUT_SLOTS]"},
      {SECTION_RECEIVED, "struct received received[RECEIVED_SLOTS]", "received", "likewise"},
      {SECTION_SENT,
       format("struct sent sent[SENT_SLOTS%s]",
              l->section[SECTION_SENT].copies > e->p->slots[0].sent ? " + 1" : ""),
       "sent", l->section[SECTION_SENT].copies > e->p->slots[0].sent ? "the last: recomputation's" : NULL},
      {SECTION_GRADIENTS_RECEIVED, "struct gradients_received gradients_received[GRADIENT_SLOTS]",
       "gradients_received", NULL},
      {SECTION_GRADIENTS_SENT, "struct gradients_sent gradients_sent[GRADIENT_SLOTS]", "gradients_sent",
       NULL},
      {SECTION_TABLES, "struct tables tables", "tables", NULL},
      {SECTION_LOSSES, "struct losses losses", "losses", NULL},
      {SECTION_SAVED, "struct saved saved[SAVED_SLOTS]", "saved", "microbatch k's: [k % SAVED_SLOTS]"},
      {SECTION_WORKSPACE,
       format("_Alignas(64) char workspace[%" PRId64 "]", l->section[SECTION_WORKSPACE].bytes), "workspace",
       "values whose lifetimes do not meet share it"},
      {SECTION_SCRATCH, format("_Alignas(64) char scratch[%" PRId64 "]", l->scratch_bytes), "scratch",
       "within one kernel"},
  };
  int n = sizeof parts / sizeof *parts;
  text_add(&e->out, "/* All the memory this program uses, %s. */\nstruct arena {\n", bytes_text(l->bytes));
  for (int i = 0; i < n; i++)
    if (l->section[parts[i].section].copies > 0)
      text_add(&e->out, parts[i].comment ? "  %s; /* %s */\n" : "  %s;\n", parts[i].declaration,
               parts[i].comment);
  text_add(&e->out, "};\nstatic struct arena *arena;\n\n");
  for (int i = 0; i < n; i++)
    if (l->section[parts[i].section].copies > 0)
      text_add(&e->out, "_Static_assert(offsetof(struct arena, %s) == %" PRId64 ", \"as planned\");\n",
               parts[i].name, l->section[parts[i].section].offset);
  text_add(&e->out, "_Static_assert(sizeof(struct arena) == %" PRId64 ", \"as planned\");\n\n", l->bytes);
}

void print_structs(Emit *e) {
  text_add(&e->out, "/* ---- memory ---- */\n\n");
  region_types(e, IN_WEIGHTS);
  char *weights = struct_body(e, IN_WEIGHTS);
  if (weights)
    text_add(&e->out, "struct weights {\n%s};\n\n", weights);
  region_types(e, IN_GRADIENTS);
  char *gradients = struct_body(e, IN_GRADIENTS);
  bool same = weights && gradients && !strcmp(weights, gradients);
  e->gradients_type = intern(same ? "struct weights" : "struct gradients");
  if (gradients && !same)
    text_add(&e->out, "struct gradients { /* sums over a batch; one for each use of a parameter */\n%s};\n\n",
             gradients);
  flat_struct(e, BUFFER_INPUT, "inputs", "a microbatch's data");
  flat_struct(e, BUFFER_RECEIVED, "received", "activations of the stage before");
  flat_struct(e, BUFFER_SENT, "sent", "activations for the next stage");
  flat_struct(e, BUFFER_GRADIENT_RECEIVED, "gradients_received", "of what was sent");
  flat_struct(e, BUFFER_GRADIENT_SENT, "gradients_sent", "of what was received");
  flat_struct(e, BUFFER_TABLE, "tables", "made once");
  flat_struct(e, BUFFER_LOSS, "losses", "a microbatch's");
  exchanged_struct(e);
  region_types(e, IN_SAVED);
  char *saved = e->p->slots[0].saved > 1 ? struct_body(e, IN_SAVED) : NULL;
  if (saved)
    text_add(&e->out, "struct saved { /* what a forward pass keeps for the backward pass */\n%s};\n\n",
             saved);
  print_arena(e);
}
