/* Prints the arena as C structs, with the user's names and shapes, at the Allocation's offsets. */
#include "emit/print.h"

#include <inttypes.h>
#include <string.h>

static const BufferKind kind_of[N_STRUCTS] = {BUFFER_WEIGHT, BUFFER_FROZEN,   BUFFER_ACCUMULATOR, BUFFER_SAVED,
                                              BUFFER_KEPT,   BUFFER_DEFERRED, BUFFER_WEIGHT};
static const char *const noun_of[N_STRUCTS] = {"weights", "frozen",   "gradients", "saved",
                                               "kept",    "deferred", "masters"};

/* Parts of the arena that each chunk has separately. */
typedef struct ChunkPart {
  BufferKind kind;
  SectionKind section;
  const char *name, *slots, *comment;
  const char *of_parts; /* the comment when another part of this rank reads it */
} ChunkPart;
static const ChunkPart chunk_parts[] = {
    {BUFFER_INPUT, SECTION_INPUTS, "inputs", "INPUT_SLOTS", "a microbatch's data", NULL},
    {BUFFER_RECEIVED, SECTION_RECEIVED, "received", "RECEIVED_SLOTS", "activations of the stage before",
     "activations of the part before"},
    {BUFFER_SENT, SECTION_SENT, "sent", "SENT_SLOTS", "activations for the next stage",
     "activations for the next part"},
    {BUFFER_GRADIENT_RECEIVED, SECTION_GRADIENTS_RECEIVED, "gradients_received", "GRADIENT_SLOTS",
     "of sent activations", NULL},
    {BUFFER_GRADIENT_SENT, SECTION_GRADIENTS_SENT, "gradients_sent", "GRADIENT_SLOTS", "of received activations",
     NULL},
    {BUFFER_SAVED, SECTION_SAVED, "saved", "SAVED_SLOTS", "values that a forward pass saves for the backward pass",
     NULL},
    {BUFFER_KEPT, SECTION_KEPT, "kept", "KEPT_SLOTS", "saved values that the gradients of weights also need",
     NULL},
    {BUFFER_DEFERRED, SECTION_DEFERRED, "deferred", "DEFERRED_SLOTS",
     "results of a backward pass for the gradients of weights", NULL},
};
enum { N_CHUNK_PARTS = sizeof chunk_parts / sizeof *chunk_parts };

static const ChunkPart *chunk_part(BufferKind kind) {
  for (int i = 0; i < N_CHUNK_PARTS; i++)
    if (chunk_parts[i].kind == kind)
      return &chunk_parts[i];
  return NULL;
}

static Name of_chunk(const Emit *e, const char *name, int chunk) {
  return e->k->chunks.n > 1 ? internf("%s_%d", name, chunk) : intern(name);
}

Name chunk_member(const Emit *e, BufferKind kind, int chunk) { return of_chunk(e, chunk_part(kind)->name, chunk); }
static const char *slots_name(const Emit *e, BufferKind kind, int chunk) {
  const Slots *s = &e->p->slots[chunk];
  const bool apart = kind == BUFFER_GRADIENT_SENT && s->returned != s->gradients;
  return apart ? "RETURNED_SLOTS" : chunk_part(kind)->slots;
}

static int slots_of(const Emit *e, BufferKind kind, int chunk) {
  const Slots *s = &e->p->slots[chunk];
  switch (kind) {
  case BUFFER_INPUT: return s->inputs;
  case BUFFER_RECEIVED: return s->received;
  case BUFFER_SENT: return s->sent;
  case BUFFER_GRADIENT_RECEIVED: return s->gradients;
  case BUFFER_GRADIENT_SENT: return s->returned;
  case BUFFER_SAVED: return allocation_saved_slots(e->p, chunk);
  case BUFFER_KEPT: return s->saved;
  case BUFFER_DEFERRED: return s->deferred;
  default: BUG("this buffer has no slots of a chunk's");
  }
}

/* The value of a slot constant that all chunks with such a part agree on; 0: they differ. */
static int common_slots(const Emit *e, const char *name) {
  int number = 0;
  for (int i = 0; i < N_CHUNK_PARTS; i++) {
    const ChunkPart *part = &chunk_parts[i];
    for (int chunk = 0; chunk < e->k->chunks.n; chunk++) {
      const int here = slots_of(e, part->kind, chunk);
      if (e->allocation->chunk_section[part->section][chunk].copies == 0 ||
          strcmp(slots_name(e, part->kind, chunk), name) != 0)
        continue;
      if (number && number != here)
        return 0;
      number = here;
    }
  }
  return number;
}

Name chunk_slots(const Emit *e, BufferKind kind, int chunk) {
  const char *name = slots_name(e, kind, chunk);
  return common_slots(e, name) ? intern(name) : of_chunk(e, name, chunk);
}

void print_slot_constants(Emit *e) {
  const char *comment = e->library ? NULL : "microbatch k uses slot k % slots, here and below";
  Names printed = {0};
  for (int i = 0; i < N_CHUNK_PARTS; i++)
    for (int chunk = 0; chunk < e->k->chunks.n; chunk++) {
      const BufferKind kind = chunk_parts[i].kind;
      const Name name = chunk_slots(e, kind, chunk);
      bool known = e->allocation->chunk_section[chunk_parts[i].section][chunk].copies == 0;
      for (int j = 0; j < printed.n && !known; j++)
        known = printed.at[j] == name;
      if (known)
        continue;
      print_constant(e, name, slots_of(e, kind, chunk), printed.n ? NULL : comment);
      push(&printed, name);
    }
}

int struct_of(BufferKind kind) {
  for (int i = 0; i < N_STRUCTS; i++)
    if (kind_of[i] == kind)
      return i;
  return -1;
}

bool in_workspace(const Emit *e, const Buffer *b) {
  return b->kind == BUFFER_TEMPORARY || (b->kind == BUFFER_SAVED && allocation_saved_packed(e->p, b->chunk));
}

int64_t workspace_offset(const Emit *e, int buffer) {
  const Buffer *b = &e->k->buffers.at[buffer];
  int64_t offset = e->allocation->buffer[buffer].offset;
  if (b->kind == BUFFER_TEMPORARY && b->region >= 0)
    offset += b->backward ? e->allocation->frame_backward[b->region] : e->allocation->frame[b->region];
  return offset - e->allocation->section[SECTION_WORKSPACE].offset;
}

/* "MICROBATCH * 128 * 256"; microbatch 0: the first size is a number. C multiplies these constants as int, unless
 * the first number has 64 bits. */
static char *product_text(int rank, const int64_t *dim, int64_t microbatch, bool fits) {
  Text out = {0};
  for (int i = 0; i < rank; i++) {
    if (i == 0 && microbatch && dim[0] == microbatch) {
      text_add(&out, "MICROBATCH");
    } else {
      text_add(&out, "%s%" PRId64 "%s", i ? " * " : "", dim[i], fits || dim[i] > INT32_MAX ? "" : "LL");
      fits = true;
    }
  }
  return out.n ? out.at : format("1");
}

static bool fits_int(int rank, const int64_t *dim) { return product(dim, 0, rank) <= INT32_MAX; }

static int64_t named_size(const Emit *e, const Buffer *b) {
  return b->value >= 0 && e->g->values.at[b->value].shape.batched ? e->k->microbatch : 0;
}

char *array_text(const Emit *e, const Buffer *b) {
  return product_text(b->rank, b->dim, named_size(e, b), fits_int(b->rank, b->dim));
}

char *array_comment(const Emit *e, const Buffer *b) {
  return product_text(b->rank, b->dim, named_size(e, b), true);
}

const char *element_type(const Buffer *b) {
  return b->type == TYPE_TOKEN ? "int32_t" : b->bf16 ? "pd_bf16" : "float";
}

bool is_sharded(const Emit *e) { return e->allocation->shard && e->allocation->part_bytes > 0; }
bool has_masters(const Emit *e) { return e->allocation->section[SECTION_MASTERS].copies > 0; }

static bool nested(const Emit *e, int region) { return region >= 0 && e->k->regions.at[region].path[0]; }

/* ---- names ----------------------------------------------------------------------------------- */

/* Accumulators of a parameter on this stage. */
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

static void name_kind(Emit *e, BufferKind kind, int chunk) {
  Ints members = allocation_members(e->k, kind, chunk);
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

/* The regions with members in a struct, in order. */
static Ints regions_of(const Emit *e, Ints members) {
  Ints regions = {0};
  for (int i = 0; i < members.n; i++) {
    int r = e->k->buffers.at[members.at[i]].region;
    if (nested(e, r) && (regions.n == 0 || regions.at[regions.n - 1] != r))
      push(&regions, r);
  }
  return regions;
}

/* The end of the run of regions from `at` that share one array. */
static int run_end(const Emit *e, Ints regions, int at) {
  int family = e->family[regions.at[at]], end = at + 1;
  while (family >= 0 && end < regions.n && e->family[regions.at[end]] == family)
    end++;
  return end;
}

static void name_region_paths(Emit *e, int which, int chunk) {
  Ints members = allocation_members(e->k, kind_of[which], chunk), regions = regions_of(e, members);
  Names taken = {0};
  for (int i = 0; i < members.n; i++)
    if (!nested(e, e->k->buffers.at[members.at[i]].region))
      push(&taken, e->member[members.at[i]]);
  for (int i = 0, end; i < regions.n; i = end) {
    end = run_end(e, regions, i);
    const Region *r = &e->k->regions.at[regions.at[i]];
    Name name = unique_name(&taken, end - i > 1 ? r->family : r->path);
    for (int j = i; j < end; j++)
      e->path[which][regions.at[j]] = end - i > 1 ? internf("%s[%d]", name, j - i) : name;
  }
}

void name_members(Emit *e) {
  static const BufferKind of_all_chunks[] = {BUFFER_WEIGHT, BUFFER_FROZEN, BUFFER_ACCUMULATOR,
                                             BUFFER_TABLE,  BUFFER_CACHE,  BUFFER_FIGURE};
  e->member = alloc((size_t)(e->k->buffers.n + 1) * sizeof(Name));
  for (size_t i = 0; i < sizeof of_all_chunks / sizeof *of_all_chunks; i++)
    name_kind(e, of_all_chunks[i], -1);
  for (int i = 0; i < N_CHUNK_PARTS; i++)
    for (int chunk = 0; chunk < e->k->chunks.n; chunk++)
      name_kind(e, chunk_parts[i].kind, chunk);
}

void name_paths(Emit *e) {
  for (int which = 0; which < N_STRUCTS; which++) {
    e->path[which] = alloc((size_t)(e->k->regions.n + 1) * sizeof(Name));
    e->type[which] = alloc((size_t)(e->k->regions.n + 1) * sizeof(Name));
    bool by_chunk = chunk_part(kind_of[which]) != NULL;
    for (int chunk = by_chunk ? 0 : -1; chunk < (by_chunk ? e->k->chunks.n : 0); chunk++)
      name_region_paths(e, which, chunk);
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

/* which: IN_WEIGHTS .. IN_MASTERS; -1: any other struct. */
static void declare_member(const Emit *e, Text *out, int indent, int which, int buffer) {
  const Buffer *b = &e->k->buffers.at[buffer];
  text_add(out, "%*salignas(64) %s %s[%s];\n", indent, "", which == IN_MASTERS ? "float" : element_type(b),
           e->member[buffer], array_text(e, b));
}

char *region_members(const Emit *e, int which, int region, int indent) {
  Text out = {0};
  for (int i = 0; i < e->k->buffers.n; i++)
    if (e->k->buffers.at[i].kind == kind_of[which] && e->k->buffers.at[i].region == region)
      declare_member(e, &out, indent, which, i);
  return out.n ? out.at : format("%s", "");
}

/* The struct with the gradients' layout if each parameter has one use here: that of the f32 values. */
static int state_struct(const Emit *e) { return has_masters(e) ? IN_MASTERS : IN_WEIGHTS; }

/* Prints the structs of regions that have functions; gradients reuse the struct of the f32 weights if it is
 * equal. */
static void region_types(Emit *e, int which) {
  Ints members = allocation_members(e->k, kind_of[which], -1), regions = regions_of(e, members);
  for (int i = 0; i < regions.n; i++) {
    int r = regions.at[i], family = e->family[r];
    if (family < 0)
      continue;
    if (e->type[which][family]) {
      e->type[which][r] = e->type[which][family];
      continue;
    }
    char *body = region_members(e, which, r, 2);
    int state = state_struct(e);
    char *like = which == IN_GRADIENTS ? region_members(e, state, r, 2) : NULL;
    if (like && e->type[state][family] && !strcmp(like, body)) {
      e->type[which][family] = e->type[which][r] = e->type[state][family];
      continue;
    }
    Name type = internf("struct %s_%s", e->prefix[family], noun_of[which]);
    e->type[which][family] = e->type[which][r] = type;
    text_add(&e->out, "%s {\n%s};\n\n", type, body);
  }
}

/* The members of weights, gradients, saved or deferred values of a chunk; chunk -1: of all chunks. */
static char *struct_body(const Emit *e, int which, int chunk) {
  Ints members = allocation_members(e->k, kind_of[which], chunk), regions = regions_of(e, members);
  Text out = {0};
  for (int i = 0, at = 0; i < members.n; i++) {
    int r = e->k->buffers.at[members.at[i]].region;
    if (!nested(e, r)) {
      declare_member(e, &out, 2, which, members.at[i]);
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
      text_add(&out, "  struct {\n%s  } %s; /* %s */\n", region_members(e, which, r, 4), path, first);
    at = end;
  }
  return out.n ? out.at : NULL;
}

/* The members of a kind without regions, a declaration a line; NULL: none. */
static char *flat_body(const Emit *e, BufferKind kind, int chunk) {
  Ints members = allocation_members(e->k, kind, chunk);
  Text out = {0};
  for (int i = 0; i < members.n; i++)
    declare_member(e, &out, 2, -1, members.at[i]);
  return out.at;
}

bool is_between(const Emit *e, BufferKind kind, int chunk) {
  switch (kind) {
  case BUFFER_RECEIVED:
  case BUFFER_GRADIENT_SENT: return e->p->offload.on && !program_receives(e->p, chunk);
  case BUFFER_SENT:
  case BUFFER_GRADIENT_RECEIVED: return e->p->offload.on && !program_sends(e->p, chunk);
  default: return false;
  }
}

ChunkBuffers reader_between(BufferKind kind, int chunk) {
  switch (kind) {
  case BUFFER_SENT: return (ChunkBuffers){BUFFER_RECEIVED, chunk + 1};
  case BUFFER_GRADIENT_SENT: return (ChunkBuffers){BUFFER_GRADIENT_RECEIVED, chunk - 1};
  default: return (ChunkBuffers){kind, chunk};
  }
}

static Name own_struct(const Emit *e, BufferKind kind, int chunk) {
  return internf("struct %s", chunk_member(e, kind, chunk));
}

Name chunk_struct(const Emit *e, BufferKind kind, int chunk) {
  if (is_between(e, kind, chunk)) {
    const ChunkBuffers read = reader_between(kind, chunk);
    const char *body = flat_body(e, kind, chunk), *there = flat_body(e, read.kind, read.chunk);
    if (body && there && !strcmp(body, there))
      return own_struct(e, read.kind, read.chunk);
  }
  return own_struct(e, kind, chunk);
}

static void flat_struct(Emit *e, BufferKind kind, int chunk, const char *type, const char *comment) {
  const char *body = flat_body(e, kind, chunk);
  if (body)
    text_add(&e->out, "%s { /* %s */\n%s};\n\n", type, comment, body);
}

static void exchanged_struct(Emit *e) {
  if (e->allocation->section[SECTION_EXCHANGED].copies == 0)
    return;
  text_add(&e->out, "struct exchanged { /* gradients that other ranks computed */\n");
  for (int i = 0; i < e->allocation->exchanged.n; i++) {
    const Exchanged *x = &e->allocation->exchanged.at[i];
    const Param *p = &e->g->params.at[x->param];
    text_add(&e->out, "  alignas(64) float %s_use_%d[%s];\n", c_identifier(p->name), x->use + 1,
             product_text(p->shape.rank, p->shape.dim, 0, fits_int(p->shape.rank, p->shape.dim)));
  }
  if (e->allocation->reduced_bytes > 0)
    text_add(&e->out, "  alignas(64) char reduced[%" PRId64 "]; /* a %s of each other replica's */\n",
             e->allocation->reduced_bytes, is_sharded(e) ? "part" : "shard");
  text_add(&e->out, "};\n\n");
}

static const char *own_moment_name(const Emit *e, const OwnMoment *m) {
  return format("%s_%d", c_identifier(e->g->params.at[m->param].name), m->moment + 1);
}

const char *own_moment_member(const Emit *e, const OwnMoment *m) {
  const char *name = own_moment_name(e, m);
  return is_sharded(e) ? format("of_%d.%s", m->replica, name) : name;
}

/* NULL: the replica has none. */
static char *own_moment_members(const Emit *e, int replica, int indent) {
  Text out = {0};
  for (int i = 0; i < e->allocation->own_moments.n; i++) {
    const OwnMoment *m = &e->allocation->own_moments.at[i];
    if (m->replica == replica)
      text_add(&out, "%*salignas(64) float %s[%" PRId64 "];\n", indent, "", own_moment_name(e, m),
               shape_elements(&m->shape));
  }
  return out.at;
}

/* Replicas that shard the state each have a struct. */
static void own_moments_struct(Emit *e) {
  if (e->allocation->own_moments.n == 0)
    return;
  if (!is_sharded(e)) {
    text_add(&e->out,
             "struct own_moments { /* the optimizer's, in shapes that are not the parameters' */\n%s};\n\n",
             own_moment_members(e, 0, 2));
    return;
  }
  text_add(&e->out,
           "union own_moments { /* the optimizer's, in shapes that are not the parameters': a part each */\n");
  for (int r = 0; r < e->p->replicas; r++) {
    char *members = own_moment_members(e, r, 4);
    if (members)
      text_add(&e->out, "  struct {\n%s  } of_%d;\n", members, r);
  }
  text_add(&e->out, "};\n\n");
}

/* ---- the arena ------------------------------------------------------------------------------- */

typedef struct Part {
  const Section *section;
  const char *type, *name, *copies, *comment;
} Part;
typedef Vec(Part) Parts;

static void add_part(Parts *parts, const Section *section, const char *type, const char *name, const char *copies,
                     const char *comment) {
  if (section->copies > 0)
    push(parts, (Part){section, type, name, copies, comment});
}

static void add_chunk_parts(const Emit *e, Parts *parts, SectionKind first, SectionKind last) {
  for (int i = 0; i < N_CHUNK_PARTS; i++) {
    const ChunkPart *part = &chunk_parts[i];
    for (int chunk = 0; chunk < e->k->chunks.n; chunk++) {
      const Section *section = &e->allocation->chunk_section[part->section][chunk];
      const char *slots = chunk_slots(e, part->kind, chunk), *comment = NULL;
      bool again = part->kind == BUFFER_SENT && section->copies > e->p->slots[chunk].sent;
      if (part->section < first || part->section > last)
        continue;
      if (again)
        comment = "the last: recomputation's";
      else if (part->kind == BUFFER_INPUT || part->kind == BUFFER_SAVED)
        comment = format("of microbatch k: [k %% %s]", slots);
      else if (part->kind == BUFFER_RECEIVED)
        comment = "likewise";
      add_part(parts, section, chunk_struct(e, part->kind, chunk), chunk_member(e, part->kind, chunk),
               again ? format("%s + 1", slots) : slots, comment);
    }
  }
}

/* Copies of the struct of all trained weights, or of this replica's shard of it. */
static void add_state(const Emit *e, Parts *parts, SectionKind kind, const char *name, int copies,
                      const char *comment) {
  const Section *section = &e->allocation->section[kind];
  const char *number = kind == SECTION_MOMENTS ? format("%d", copies) : NULL;
  if (is_sharded(e))
    add_part(parts, section, "alignas(64) char", name,
             format("%s%sSTATE_PART", number ? number : "", number ? "][" : ""),
             format("%s: this replica's part", comment));
  else
    add_part(parts, section, e->state_type, name, number, comment);
}

static Parts arena_parts(const Emit *e) {
  const Allocation *l = e->allocation;
  const Section *s = l->section;
  Parts parts = {0};
  if (e->p->forward_only)
    add_part(&parts, &s[SECTION_WEIGHTS], "struct weights", "weights", NULL, NULL);
  else
    add_part(&parts, &s[SECTION_WEIGHTS], "struct weights", "weights", "VERSIONS",
             "version v in weights[v % VERSIONS]");
  add_part(&parts, &s[SECTION_FROZEN], "struct frozen", "frozen", NULL, "of all versions");
  add_part(&parts, &s[SECTION_GRADIENTS], e->gradients_type, "gradients", "ACCUMULATORS",
           "of batch t: gradients[t % ACCUMULATORS]");
  add_state(e, &parts, SECTION_MOMENTS, "moments", l->n_moments, "the optimizer's");
  add_part(&parts, &s[SECTION_OWN_MOMENTS], is_sharded(e) ? "union own_moments" : "struct own_moments",
           "own_moments", NULL, "the optimizer's, too");
  add_state(e, &parts, SECTION_MASTERS, "masters", 1, "the newest weights in f32");
  add_state(e, &parts, SECTION_AVERAGES, "averages", 1, "of the weights, over the updates");
  add_part(&parts, &s[SECTION_EXCHANGED], "struct exchanged", "exchanged", format("%d", e->p->exchanges),
           e->p->exchanges > 1 ? format("of batch t: exchanged[t %% %d]", e->p->exchanges) : NULL);
  add_chunk_parts(e, &parts, SECTION_INPUTS, SECTION_GRADIENTS_SENT);
  add_part(&parts, &s[SECTION_TABLES], "struct tables", "tables", NULL, NULL);
  add_part(&parts, &s[SECTION_CACHES], "struct caches", "caches", NULL, "kept from one microbatch to the next");
  add_part(&parts, &s[SECTION_FIGURES], "struct figures", "figures", NULL, NULL);
  add_chunk_parts(e, &parts, SECTION_SAVED, SECTION_DEFERRED);
  add_part(&parts, &s[SECTION_WORKSPACE], "alignas(64) char", "workspace",
           format("%" PRId64, s[SECTION_WORKSPACE].bytes), "values whose lifetimes do not meet share it");
  add_part(&parts, &s[SECTION_SCRATCH], "alignas(64) char", "scratch", format("%" PRId64, l->scratch_bytes),
           "within one kernel");
  add_part(&parts, &s[SECTION_MEETING], "alignas(64) char", "meeting", format("%" PRId64, l->meeting_bytes),
           "of a collective between its begin and its end");
  return parts;
}

static void print_arena(Emit *e) {
  Parts parts = arena_parts(e);
  int64_t bytes = e->allocation->bytes;
  if (e->p->offload.on)
    text_add(
        &e->out,
        "/* Addresses of all buffers; at most %s are in memory at once. Weights, gradients, moments and values\n"
        " * between two parts are loaded with their part. */\nstruct arena {\n",
        bytes_text(e->allocation->resident_bytes));
  else
    text_add(&e->out, "/* All the memory %s uses, %s. */\nstruct arena {\n",
             e->library ? "an instance" : "this program", bytes_text(bytes));
  for (int i = 0; i < parts.n; i++) {
    const Part *p = &parts.at[i];
    text_add(&e->out, "  %s %s%s;%s\n", p->type, p->name, p->copies ? format("[%s]", p->copies) : "",
             p->comment ? format(" /* %s */", p->comment) : "");
  }
  text_add(&e->out, e->library ? "};\n\n" : "};\nstatic struct arena *arena;\n\n");
  for (int i = 0; i < parts.n; i++)
    text_add(&e->out, "static_assert(offsetof(struct arena, %s) == %" PRId64 ", \"as planned\");\n",
             parts.at[i].name, parts.at[i].section->offset);
  text_add(&e->out, "static_assert(sizeof(struct arena) == %" PRId64 ", \"as planned\");\n\n", bytes);
}

static void print_slots(Emit *e, BufferKind kind) {
  const ChunkPart *part = chunk_part(kind);
  int which = struct_of(kind);
  for (int chunk = 0; chunk < e->k->chunks.n; chunk++) {
    if (which < 0) {
      const bool between = part->of_parts && is_between(e, kind, chunk);
      const Name type = chunk_struct(e, kind, chunk);
      if (type == own_struct(e, kind, chunk)) /* not the readers' struct */
        flat_struct(e, kind, chunk, type, between ? part->of_parts : part->comment);
      continue;
    }
    int copies = e->allocation->chunk_section[part->section][chunk].copies;
    char *body = copies > 0 ? struct_body(e, which, chunk) : NULL;
    if (body)
      text_add(&e->out, "%s { /* %s */\n%s};\n\n", chunk_struct(e, kind, chunk), part->comment, body);
  }
}

void print_structs(Emit *e) {
  text_add(&e->out, "/* ---- memory ---- */\n\n");
  region_types(e, IN_WEIGHTS);
  char *weights = struct_body(e, IN_WEIGHTS, -1);
  if (weights)
    text_add(&e->out, "struct weights {\n%s};\n\n", weights);
  region_types(e, IN_FROZEN);
  char *frozen = struct_body(e, IN_FROZEN, -1);
  if (frozen)
    text_add(&e->out, "struct frozen { /* parameters that are not trained */\n%s};\n\n", frozen);
  e->state_type = intern("struct weights");
  if (has_masters(e)) {
    region_types(e, IN_MASTERS);
    e->state_type = intern("struct masters");
    text_add(&e->out,
             "struct masters { /* the weights in f32: the optimizer's; those above are copies */\n%s};\n\n",
             struct_body(e, IN_MASTERS, -1));
  }
  region_types(e, IN_GRADIENTS);
  char *state = struct_body(e, state_struct(e), -1), *gradients = struct_body(e, IN_GRADIENTS, -1);
  bool same = state && gradients && !strcmp(state, gradients);
  e->gradients_type = same ? e->state_type : intern("struct gradients");
  if (gradients && !same)
    text_add(&e->out, "struct gradients { /* sums over a batch; one for each use of a parameter */\n%s};\n\n",
             gradients);
  own_moments_struct(e);
  print_slots(e, BUFFER_INPUT);
  print_slots(e, BUFFER_RECEIVED);
  print_slots(e, BUFFER_SENT);
  print_slots(e, BUFFER_GRADIENT_RECEIVED);
  print_slots(e, BUFFER_GRADIENT_SENT);
  flat_struct(e, BUFFER_TABLE, -1, "struct tables", "made once");
  flat_struct(e, BUFFER_CACHE, -1, "struct caches", "keys and values of earlier positions");
  flat_struct(e, BUFFER_FIGURE, -1, "struct figures", "a microbatch's");
  exchanged_struct(e);
  region_types(e, IN_SAVED);
  print_slots(e, BUFFER_SAVED);
  region_types(e, IN_KEPT);
  print_slots(e, BUFFER_KEPT);
  region_types(e, IN_DEFERRED);
  print_slots(e, BUFFER_DEFERRED);
  print_arena(e);
}
