/* Programs as text and back: a line per fact, in a fixed order.
 *   program 0 of 2
 *     per_batch 0
 *     ...
 *     sharded                                     (optional)
 *     keeps 0 2                                   (optional)
 *     at_home                                     (optional)
 *     bucket 4194304                              (optional)
 *     loop "warm-up" "fill the pipeline" FORWARD SEND */
#include "schedule/program.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

typedef enum { FIELD_INT, FIELD_INT64, FIELD_BOOL } FieldKind;
typedef struct Field {
  const char *name;
  FieldKind kind;
  size_t offset;
} Field;

#define FIELD(kind, name) \
  { #name, kind, offsetof(Program, name) }
static const Field fields[] = {
    FIELD(FIELD_INT, replicas),
    FIELD(FIELD_INT, chunks),
    FIELD(FIELD_BOOL, split_backward),
    FIELD(FIELD_BOOL, forward_only),
    FIELD(FIELD_BOOL, per_batch),
    FIELD(FIELD_INT64, in_flight),
    FIELD(FIELD_INT64, period),
    FIELD(FIELD_INT64, delay),
    FIELD(FIELD_INT, versions),
    FIELD(FIELD_BOOL, waits),
    FIELD(FIELD_INT64, lag),
    FIELD(FIELD_INT64, weights_lag),
    FIELD(FIELD_INT, accumulators),
    FIELD(FIELD_INT, exchanges),
    {"spills", FIELD_BOOL, offsetof(Program, offload.on)},
    FIELD(FIELD_INT, part),
    FIELD(FIELD_INT, parts),
};
enum { N_FIELDS = sizeof fields / sizeof *fields };

#define SLOT(name) \
  { #name, FIELD_INT, offsetof(Slots, name) }
static const Field slots[] = {SLOT(saved),    SLOT(received), SLOT(sent),    SLOT(gradients),
                              SLOT(returned), SLOT(inputs),   SLOT(deferred)};
enum { N_SLOTS = sizeof slots / sizeof *slots };

static int64_t field_get(const void *of, const Field *f) {
  const void *at = (const char *)of + f->offset;
  switch (f->kind) {
  case FIELD_INT: return *(const int *)at;
  case FIELD_INT64: return *(const int64_t *)at;
  case FIELD_BOOL: return *(const bool *)at;
  }
  BUG("field %s", f->name);
}

static void field_set(void *of, const Field *f, int64_t value) {
  void *at = (char *)of + f->offset;
  switch (f->kind) {
  case FIELD_INT: *(int *)at = (int)value; break;
  case FIELD_INT64: *(int64_t *)at = value; break;
  case FIELD_BOOL: *(bool *)at = value != 0; break;
  }
}

void program_dump(const Program *p, FILE *out) {
  fprintf(out, "program %d of %d\n", p->stage, p->n_stages);
  for (int i = 0; i < N_FIELDS; i++)
    fprintf(out, "  %s %lld\n", fields[i].name, (long long)field_get(p, &fields[i]));
  if (p->sharded)
    fprintf(out, "  sharded\n");
  if (p->offload.keeps)
    fprintf(out, "  keeps");
  for (int c = 0; c < MAX_CHUNKS; c++)
    if (program_keeps(p, c))
      fprintf(out, " %d", c);
  if (p->offload.keeps)
    fputc('\n', out);
  if (p->offload.host_updates)
    fprintf(out, "  at_home\n");
  if (p->bucket)
    fprintf(out, "  bucket %lld\n", (long long)p->bucket);
  for (int c = 0; c < p->chunks; c++) {
    fprintf(out, "  slots");
    for (int i = 0; i < N_SLOTS; i++)
      fprintf(out, " %s %lld", slots[i].name, (long long)field_get(&p->slots[c], &slots[i]));
    fputc('\n', out);
  }
  for (int i = 0; i < N_LOOPS; i++) {
    const Loop *l = &p->loop[i];
    fprintf(out, "  loop \"%s\" \"%s\"", l->name, l->comment);
    for (int a = 0; a < l->n; a++)
      fprintf(out, " %s", action_name(l->action[a]));
    fputc('\n', out);
  }
}

/* ---- reading ------------------------------------------------------------------------------------ */

typedef struct Reader {
  const char *at;
  int file, line;
  bool failed;
} Reader;

static void expected(Reader *r, const char *what) {
  if (!r->failed)
    error_at((Span){r->file, r->line, 1, r->line, 1}, "PD0703", "a schedule's dump needs %s here", what);
  r->failed = true;
}

static void skip_blanks(Reader *r) {
  while (*r->at == ' ' || *r->at == '\t')
    r->at++;
}

static void end_of_line(Reader *r) {
  skip_blanks(r);
  if (*r->at == '\n') {
    r->at++;
    r->line++;
  } else if (*r->at) {
    expected(r, "the end of the line");
  }
}

static bool accept(Reader *r, const char *word) {
  skip_blanks(r);
  size_t n = strlen(word);
  if (strncmp(r->at, word, n) || isalnum((unsigned char)r->at[n]) || r->at[n] == '_')
    return false;
  r->at += n;
  return true;
}

static void expect(Reader *r, const char *word) {
  if (!r->failed && !accept(r, word))
    expected(r, format("'%s'", word));
}

/* Reads a number below 2^31, the range of every field. */
static int64_t number(Reader *r) {
  skip_blanks(r);
  if (r->failed || !isdigit((unsigned char)*r->at))
    return expected(r, "a number"), 0;
  int64_t value = 0;
  for (; isdigit((unsigned char)*r->at); r->at++) {
    value = 10 * value + (*r->at - '0');
    if (value > INT32_MAX)
      return expected(r, "a number below 2147483648"), 0;
  }
  return value;
}

static const char *quoted(Reader *r) {
  skip_blanks(r);
  if (r->failed || *r->at != '"')
    return expected(r, "a quoted text"), "";
  const char *start = ++r->at;
  while (*r->at && *r->at != '"' && *r->at != '\n')
    r->at++;
  if (*r->at != '"')
    return expected(r, "a closing quote"), "";
  return intern_n(start, (size_t)(r->at++ - start));
}

static bool read_action(Reader *r, Action *a) {
  for (Action i = DO_RECEIVE; i < N_ACTIONS; i++)
    if (accept(r, action_name(i)))
      return *a = i, true;
  return false;
}

static void read_loop(Reader *r, Loop *l) {
  expect(r, "loop");
  l->name = quoted(r);
  l->comment = quoted(r);
  for (Action a; !r->failed && read_action(r, &a);) {
    if (l->n == MAX_ACTIONS)
      expected(r, "fewer actions");
    else
      l->action[l->n++] = a;
  }
  if (!r->failed)
    end_of_line(r);
}

/* Reads a list of chunks as a bit mask. */
static uint64_t read_chunks(Reader *r) {
  uint64_t chunks = 0;
  for (skip_blanks(r); !r->failed && isdigit((unsigned char)*r->at); skip_blanks(r)) {
    int64_t chunk = number(r);
    if (chunk >= MAX_CHUNKS)
      expected(r, format("a chunk below %d", MAX_CHUNKS));
    else
      chunks |= (uint64_t)1 << chunk;
  }
  if (!r->failed)
    end_of_line(r);
  return chunks;
}

static Program read_one(Reader *r) {
  Program p = {0};
  expect(r, "program");
  p.stage = (int)number(r);
  expect(r, "of");
  p.n_stages = (int)number(r);
  end_of_line(r);
  for (int i = 0; i < N_FIELDS && !r->failed; i++) {
    expect(r, fields[i].name);
    field_set(&p, &fields[i], number(r));
    end_of_line(r);
  }
  if (!r->failed && accept(r, "sharded")) {
    p.sharded = true;
    end_of_line(r);
  }
  if (!r->failed && accept(r, "keeps"))
    p.offload.keeps = read_chunks(r);
  if (!r->failed && accept(r, "at_home")) {
    p.offload.host_updates = true;
    end_of_line(r);
  }
  if (!r->failed && accept(r, "bucket")) {
    p.bucket = number(r);
    end_of_line(r);
  }
  if (!r->failed && (p.chunks < 1 || p.chunks > MAX_CHUNKS))
    expected(r, format("1 to %d chunks", MAX_CHUNKS));
  for (int c = 0; c < p.chunks && !r->failed; c++) {
    expect(r, "slots");
    for (int i = 0; i < N_SLOTS && !r->failed; i++) {
      expect(r, slots[i].name);
      field_set(&p.slots[c], &slots[i], number(r));
    }
    end_of_line(r);
  }
  for (int i = 0; i < N_LOOPS && !r->failed; i++)
    read_loop(r, &p.loop[i]);
  char *why;
  if (!r->failed && !program_well_formed(&p, &why))
    expected(r, format("a program that ends (%s)", why));
  return p;
}

Program *program_read(const char *path, const char *text, int *n_stages) {
  Reader r = {.at = text, .file = source_add(path, text), .line = 1};
  Vec(Program) all = {0};
  while (!r.failed && (skip_blanks(&r), *r.at)) {
    Program p = read_one(&r);
    if (!r.failed && p.stage != all.n)
      expected(&r, format("the program of stage %d", all.n));
    push(&all, p);
  }
  if (!r.failed && (all.n == 0 || all.n != all.at[all.n - 1].n_stages))
    expected(&r, "one program for each stage");
  *n_stages = all.n;
  return r.failed ? NULL : all.at;
}
