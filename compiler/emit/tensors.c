/* Tables of a stage program's tensors. The runtime searches them for a non-finite value or for a difference
 * between two runs of a pass; --audit keeps some for the second run. */
#include "emit/print.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

/* ---- tensors that an error can name ------------------------------------------------------------- */

/* "SAVED", with several chunks "SAVED_1": the macro of a chunk's slots of a kind. */
static Name slots_macro(const Emit *e, BufferKind kind, int chunk) {
  char *name = format("%s", chunk_member(e, kind, chunk));
  for (char *c = name; *c; c++)
    *c = (char)toupper((unsigned char)*c);
  return intern(name);
}

static bool is_rewritten(const Emit *e, int buffer) {
  for (int i = 0; i < e->k->backward.n; i++)
    for (Access a = {0}; next_access(&e->k->backward.at[i], &a);)
      if (a.write && a.place->buffer == buffer)
        return true;
  return false;
}

static void tensor_line(Emit *e, int buffer) {
  const Buffer *b = &e->k->buffers.at[buffer];
  Names fields = {0};
  push(&fields, internf(".name = %s", string_literal(b->comment)));
  if (in_workspace(e, b)) {
    push(&fields, internf(".offset = WORKSPACE + %" PRId64, workspace_offset(e, buffer)));
    push(&fields, internf(".slots = 1, .elements = %" PRId64, b->elements));
    if (b->bf16)
      push(&fields, intern(".bf16 = true"));
  } else {
    push(&fields, internf("%s(%s)", slots_macro(e, b->kind, b->chunk), member_path(e, buffer)));
  }
  if (b->chunk > 0)
    push(&fields, internf(".chunk = %d", b->chunk));
  if (b->kind == BUFFER_SAVED && is_rewritten(e, buffer))
    push(&fields, intern(".rewritten = true"));
  text_list(&e->out, 3, "  {", &fields, "},\n");
}

static const char in_slots[] =
    "#define IN_SLOTS(part, count, member) \\\n"
    "  .offset = offsetof(struct arena, part[0].member), .stride = sizeof(struct part), .slots = count, \\\n";
static const char plain_elements[] = "  .elements = sizeof ((struct part *)0)->member / sizeof(float)\n";
static const char typed_elements[] =
    "  .elements = sizeof ((struct part *)0)->member / sizeof *((struct part *)0)->member, \\\n"
    "  .bf16 = sizeof *((struct part *)0)->member == sizeof(pd_bf16)\n";

/* Macros of the fields that follow from a tensor's place: a part of the arena, or the workspace. */
static void tensor_macros(Emit *e, const Ints *tensors) {
  Names macros = {0};
  bool workspace = false;
  for (int i = 0; i < tensors->n; i++) {
    const Buffer *b = &e->k->buffers.at[tensors->at[i]];
    bool known = false;
    if (in_workspace(e, b)) {
      workspace = true;
      continue;
    }
    Name macro = internf("#define %s(member) IN_SLOTS(%s, %s, member)\n", slots_macro(e, b->kind, b->chunk),
                         chunk_member(e, b->kind, b->chunk), chunk_slots(e, b->kind, b->chunk));
    for (int j = 0; j < macros.n && !known; j++)
      known = macros.at[j] == macro;
    if (!known)
      push(&macros, macro);
  }
  if (macros.n)
    text_add(&e->out, "%s%s", in_slots,
             e->k->target.precision == PRECISION_BF16 ? typed_elements : plain_elements);
  for (int i = 0; i < macros.n; i++)
    text_add(&e->out, "%s", macros.at[i]);
  if (workspace)
    text_add(&e->out, "#define WORKSPACE offsetof(struct arena, workspace)\n");
  text_add(&e->out, "\n");
}

/* Tensors received, saved (in forward order) and, in training, sent by this stage. */
static Ints named_tensors(const Emit *e) {
  Ints tensors = {0};
  int n = e->k->forward.n, end = e->p->forward_only ? n : n + 1;
  for (int at = -1; at < end; at++)
    for (int i = 0; i < e->k->buffers.n; i++) {
      const Buffer *b = &e->k->buffers.at[i];
      bool saved = b->kind == BUFFER_SAVED || b->kind == BUFFER_KEPT;
      if (b->type == TYPE_F32 &&
          (at < 0   ? b->kind == BUFFER_RECEIVED
           : at < n ? saved && b->first == at
                    : b->kind == BUFFER_SENT && (!e->p->offload.on || program_sends(e->p, b->chunk))))
        push(&tensors, i);
    }
  return tensors;
}

int tensor_table(Emit *e) {
  Ints tensors = named_tensors(e);
  if (tensors.n == 0)
    return 0;
  text_add(
      &e->out,
      "/* Tensors in which the runtime finds the first non-finite value, and --audit the first that differs. */\n");
  tensor_macros(e, &tensors);
  text_add(&e->out, "static const struct pd_tensor tensors[] = {\n");
  for (int i = 0; i < tensors.n; i++)
    tensor_line(e, tensors.at[i]);
  text_add(&e->out, "};\n\n");
  return tensors.n;
}

/* ---- parts of the arena that passes write -------------------------------------------------------- */

static const char part_macro[] =
    "#define PART(part, count) \\\n"
    "  .offset = offsetof(struct arena, part), .bytes = sizeof(struct part), .slots = count\n";

/* A chunk's slots of a kind, written by these passes: "1 << PD_FORWARD". */
static void chunk_part_line(Emit *e, BufferKind kind, SectionKind section, int chunk, const char *passes) {
  if (!e->allocation->chunk_section[section][chunk].copies)
    return;
  Names fields = {0};
  Name part = chunk_member(e, kind, chunk);
  push(&fields, internf(".name = \"%s\"", part));
  push(&fields, internf("PART(%s, %s)", part, chunk_slots(e, kind, chunk)));
  if (chunk > 0)
    push(&fields, internf(".chunk = %d", chunk));
  push(&fields, internf(".passes = %s", passes));
  text_list(&e->out, 3, "  {", &fields, "},\n");
}

/* The extra slot in which a recomputation writes sent values again. */
static void extra_slot_line(Emit *e, int chunk) {
  const char *part = chunk_member(e, BUFFER_SENT, chunk), *slots = chunk_slots(e, BUFFER_SENT, chunk);
  if (e->allocation->chunk_section[SECTION_SENT][chunk].copies > e->p->slots[chunk].sent)
    text_add(
        &e->out,
        "  {.name = \"%s\", .offset = offsetof(struct arena, %s[%s]), .bytes = sizeof(struct %s), .slots = 1,\n"
        "   %s.passes = 1 << PD_RECOMPUTE},\n",
        part, part, slots, part, chunk > 0 ? format(".chunk = %d, ", chunk) : "");
}

static bool forward_accumulates(const Emit *e) {
  bool any = false;
  for (int c = 0; c < e->p->chunks; c++)
    any |= pass_uses(e, (Pass){PASS_FORWARD, c}, BUFFER_ACCUMULATOR);
  return any;
}

/* Parts of the arena that all chunks share. */
static void shared_part_lines(Emit *e, const char *forward) {
  const Section *s = e->allocation->section;
  const char *chunk = e->p->chunks > 1 ? ".chunk = PD_EVERY_CHUNK, " : "";
  const char *backward = format("1 << PD_BACKWARD%s", e->p->split_backward ? " | 1 << PD_WEIGHTS" : "");
  if (s[SECTION_GRADIENTS].copies)
    text_add(&e->out,
             "  {.name = \"gradients\", .offset = offsetof(struct arena, gradients), .bytes = sizeof(%s),\n"
             "   .slots = ACCUMULATORS, .by_batch = true, %s.passes = %s%s%s},\n",
             e->gradients_type, chunk, forward_accumulates(e) ? forward : "", forward_accumulates(e) ? " | " : "",
             backward);
  if (s[SECTION_FIGURES].copies)
    text_add(&e->out, "  {.name = \"figures\", PART(figures, 1),%s%s.passes = %s},\n", *chunk ? "\n   " : " ",
             chunk, forward);
  if (s[SECTION_WORKSPACE].copies)
    text_add(&e->out,
             "  {.name = \"workspace\", .offset = offsetof(struct arena, workspace), .bytes = %" PRId64
             ", .slots = 1,\n   %s.passes = %s | %s},\n",
             s[SECTION_WORKSPACE].bytes, chunk, forward, backward);
}

void part_table(Emit *e) {
  const char *forward = program_recomputes(e->p) ? "1 << PD_FORWARD | 1 << PD_RECOMPUTE" : "1 << PD_FORWARD";
  text_add(&e->out, "/* Memory that passes write, for --audit. */\n%sstatic const struct pd_part parts[] = {\n",
           part_macro);
  for (int c = 0; c < e->p->chunks; c++) {
    chunk_part_line(e, BUFFER_INPUT, SECTION_INPUTS, c, "1 << PD_FORWARD");
    const Chunk *chunk = &e->k->chunks.at[c];
    bool both = backward_writes_saved(e, chunk->first[PASS_BACKWARD], chunk->end[PASS_BACKWARD]);
    chunk_part_line(e, BUFFER_SAVED, SECTION_SAVED, c, both ? format("%s | 1 << PD_BACKWARD", forward) : forward);
    chunk_part_line(e, BUFFER_KEPT, SECTION_KEPT, c, forward);
    chunk_part_line(e, BUFFER_SENT, SECTION_SENT, c, "1 << PD_FORWARD");
    extra_slot_line(e, c);
    chunk_part_line(e, BUFFER_DEFERRED, SECTION_DEFERRED, c, "1 << PD_BACKWARD");
    chunk_part_line(e, BUFFER_GRADIENT_SENT, SECTION_GRADIENTS_SENT, c, "1 << PD_BACKWARD");
  }
  shared_part_lines(e, forward);
  text_add(&e->out, "};\n\n");
}
