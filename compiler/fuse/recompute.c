/* Recomputation by layer (selective activation checkpointing). Adjacent recomputed pieces within a region are a
 * segment. Of a segment, only the values that other kernels read after the forward pass are saved: at most those that
 * enter or leave it. The backward pass repeats the segment's other forward kernels, before the first kernel that reads
 * their results. Repeated kernels have temporaries of the backward pass, so segments share memory. They compute what
 * the forward kernels computed, with the same random numbers, so no bit changes. */
#include "fuse/internal.h"

#include <string.h>

enum { OUTSIDE = -1 };

typedef struct Recompute {
  const Fuse *f;
  StageKernels *k;
  int n_buffers; /* before the copies */
  int *kernel;   /* by forward kernel: its segment; OUTSIDE: none, or several */
  int *writer;   /* by buffer: the segment of all its writers; OUTSIDE: none, several, or not a local value */
  int *region;   /* by segment */
  bool *
      saved; /* by buffer: the segment must not recompute it, because other regions read it after the forward pass */
  bool *again;       /* by buffer: its segment recomputes it */
  int *copy;         /* by buffer: its copy in the backward pass; -1: none yet */
  int *insert;       /* by segment: the backward kernel that its repeated kernels precede; backward.n: none */
  Kernels *repeated; /* by segment */
  Ints *group;       /* by segment: Built.group of these */
} Recompute;

static int segment_of_kernel(const Fuse *f, int kernel) {
  Direction d;
  const Group *group = group_of(f, FORWARD, kernel, &d);
  int segment = segment_of(f, f->items->of[d].at[group->items.at[0]].node);
  for (int i = 1; i < group->items.n; i++)
    if (segment_of(f, f->items->of[d].at[group->items.at[i]].node) != segment)
      return OUTSIDE;
  return segment;
}

static void note_writers(Recompute *r, const Kernels *kernels, const int *segment) {
  for (int i = 0; i < kernels->n; i++)
    for (Access a = {0}; next_access(&kernels->at[i], &a);) {
      const int at = segment ? segment[i] : OUTSIDE;
      int *writer = &r->writer[a.place->buffer];
      if (a.write)
        *writer = *writer == INT32_MAX || *writer == at ? at : OUTSIDE;
    }
}

/* Values local to the stage have the kind TEMPORARY until their lifetimes are known. */
static void find_writers(Recompute *r) {
  for (int i = 0; i < r->n_buffers; i++)
    r->writer[i] = INT32_MAX;
  note_writers(r, &r->k->setup, NULL);
  note_writers(r, &r->k->forward, r->kernel);
  note_writers(r, &r->k->backward, NULL);
  for (int i = 0; i < r->n_buffers; i++)
    if (r->writer[i] == INT32_MAX || r->k->buffers.at[i].kind != BUFFER_TEMPORARY)
      r->writer[i] = OUTSIDE;
}

/* By backward kernel: values that its own region's segments recompute, and values that must be saved. */
static void find_needed(Recompute *r) {
  for (int i = 0; i < r->k->backward.n; i++) {
    const Kernel *k = &r->k->backward.at[i];
    for (Access a = {0}; next_access(k, &a);) {
      const int buffer = a.place->buffer, segment = r->writer[buffer];
      if (segment < 0)
        continue;
      if (r->region[segment] == k->region)
        r->again[buffer] = true;
      else
        r->saved[buffer] = true;
    }
  }
}

static bool is_recomputed(const Recompute *r, int buffer) {
  return buffer < r->n_buffers && r->writer[buffer] >= 0 && r->again[buffer] && !r->saved[buffer];
}

/* Removes a loop's terms that no store depends on. */
static void drop_terms(Kernel *k) {
  const bool *live = live_terms(k);
  int *now = alloc((size_t)(k->terms.n + 1) * sizeof *now), n = 0;
  for (int i = 0; i < k->terms.n; i++) {
    if (!live[i])
      continue;
    Term t = k->terms.at[i];
    for (int j = 0; j < t.n_in; j++)
      t.in[j] = now[t.in[j]];
    now[i] = n;
    k->terms.at[n++] = t;
  }
  k->terms.n = n;
  for (int i = 0; i < k->stores.n; i++)
    k->stores.at[i].term = now[k->stores.at[i].term];
}

#define COPY(v) ((v)->at = alloc_copy((v)->at, (size_t)(v)->n * sizeof *(v)->at), (v)->room = (v)->n)

/* A copy of the forward kernel that writes only what is recomputed; false: nothing. A call writes all its results. */
static bool repeat(const Recompute *r, const Kernel *from, Kernel *to) {
  bool any = false;
  *to = *from;
  to->backward = to->again = true;
  COPY(&to->terms);
  COPY(&to->stores);
  COPY(&to->in);
  COPY(&to->out);
  to->stores.n = 0;
  for (int i = 0; i < from->stores.n; i++)
    if (is_recomputed(r, from->stores.at[i].place.buffer))
      to->stores.at[to->stores.n++] = from->stores.at[i];
  for (int i = 0; i < from->out.n; i++)
    any |= is_recomputed(r, from->out.at[i].buffer);
  if (to->kind == KERNEL_LOOP)
    drop_terms(to);
  return any || to->stores.n > 0;
}

static int copy_of(Recompute *r, int buffer) {
  if (r->copy[buffer] < 0) {
    Buffer b = r->k->buffers.at[buffer];
    b.kind = BUFFER_TEMPORARY;
    push(&r->k->buffers, b);
    r->copy[buffer] = r->k->buffers.n - 1;
  }
  return r->copy[buffer];
}

/* Marks what a repeated kernel reads: values of its own segment are recomputed too, those of others are saved. */
static void note_reads(Recompute *r, const Kernel *k, int segment) {
  for (Access a = {0}; next_access(k, &a);) {
    const int buffer = a.place->buffer;
    if (a.write || r->writer[buffer] < 0)
      continue;
    if (r->writer[buffer] == segment)
      r->again[buffer] = true;
    else
      r->saved[buffer] = true;
  }
}

/* From the last kernel to the first, because a repeated kernel's operands may be recomputed too. Saved values of this
 * segment are known: their readers are in later segments and in the backward pass. */
static void repeat_segment(Recompute *r, int segment) {
  Kernels reversed = {0};
  Ints group = {0};
  for (int i = r->k->forward.n - 1; i >= 0; i--) {
    Kernel k;
    if (r->kernel[i] != segment || !repeat(r, &r->k->forward.at[i], &k))
      continue;
    note_reads(r, &k, segment);
    push(&reversed, k);
    push(&group, ~i);
  }
  for (int i = reversed.n - 1; i >= 0; i--) {
    push(&r->repeated[segment], reversed.at[i]);
    push(&r->group[segment], group.at[i]);
  }
}

static void use_copies(Recompute *r, const Kernel *k, bool all_outputs) {
  for (Access a = {0}; next_access(k, &a);)
    if (is_recomputed(r, a.place->buffer) || (a.write && all_outputs))
      a.place->buffer = copy_of(r, a.place->buffer);
}

/* Lets the backward pass use the copies, and finds where segments must be repeated. */
static void redirect(Recompute *r) {
  for (int s = 0; s < r->f->survey->segments; s++)
    r->insert[s] = r->k->backward.n;
  for (int i = r->k->backward.n - 1; i >= 0; i--) {
    const Kernel *k = &r->k->backward.at[i];
    for (Access a = {0}; next_access(k, &a);)
      if (is_recomputed(r, a.place->buffer))
        r->insert[r->writer[a.place->buffer]] = i;
    use_copies(r, k, false);
  }
  for (int s = 0; s < r->f->survey->segments; s++)
    for (int i = 0; i < r->repeated[s].n; i++)
      use_copies(r, &r->repeated[s].at[i], true);
}

static void insert(Recompute *r) {
  Kernels backward = {0};
  Ints group = {0};
  for (int i = 0; i < r->k->backward.n; i++) {
    for (int s = r->f->survey->segments - 1; s >= 0; s--)
      for (int j = 0; r->insert[s] == i && j < r->repeated[s].n; j++) {
        push(&backward, r->repeated[s].at[j]);
        push(&group, r->group[s].at[j]);
      }
    push(&backward, r->k->backward.at[i]);
    push(&group, r->f->built->group[BACKWARD].at[i]);
  }
  r->k->backward = backward;
  r->f->built->group[BACKWARD] = group;
}

/* Removes stores, calls and loops of the forward pass that only served the backward pass. */
static void trim_forward(const Recompute *r) {
  Kernels *forward = &r->k->forward;
  Ints *group = &r->f->built->group[FORWARD];
  bool *read = alloc((size_t)r->n_buffers);
  int first = forward->n;
  for (int i = forward->n - 1; i >= 0; i--) {
    Kernel *k = &forward->at[i];
    int stores = 0;
    bool used = k->kind == KERNEL_LOOP;
    for (int j = 0; j < k->out.n; j++)
      used |= !is_recomputed(r, k->out.at[j].buffer) || read[k->out.at[j].buffer];
    for (int j = 0; j < k->stores.n; j++)
      if (!is_recomputed(r, k->stores.at[j].place.buffer) || read[k->stores.at[j].place.buffer])
        k->stores.at[stores++] = k->stores.at[j];
    if (!used)
      continue;
    if (stores < k->stores.n) {
      k->stores.n = stores;
      drop_terms(k);
    }
    for (Access a = {0}; next_access(k, &a);)
      read[a.place->buffer] |= !a.write;
    first--;
    forward->at[first] = *k;
    group->at[first] = group->at[i];
  }
  forward->n -= first;
  group->n -= first;
  memmove(forward->at, forward->at + first, (size_t)forward->n * sizeof *forward->at);
  memmove(group->at, group->at + first, (size_t)group->n * sizeof *group->at);
}

static Recompute recompute_new(const Fuse *f) {
  const size_t buffers = (size_t)f->k->buffers.n + 1, segments = (size_t)f->survey->segments + 1;
  Recompute r = {.f = f,
                 .k = f->k,
                 .n_buffers = f->k->buffers.n,
                 .kernel = alloc((size_t)(f->k->forward.n + 1) * sizeof *r.kernel),
                 .writer = alloc(buffers * sizeof *r.writer),
                 .region = alloc(segments * sizeof *r.region),
                 .saved = alloc(buffers),
                 .again = alloc(buffers),
                 .copy = alloc(buffers * sizeof *r.copy),
                 .insert = alloc(segments * sizeof *r.insert),
                 .repeated = alloc(segments * sizeof *r.repeated),
                 .group = alloc(segments * sizeof *r.group)};
  memset(r.copy, 0xff, buffers * sizeof *r.copy);
  for (int i = 0; i < f->k->forward.n; i++) {
    r.kernel[i] = segment_of_kernel(f, i);
    if (r.kernel[i] >= 0)
      r.region[r.kernel[i]] = f->k->forward.at[i].region;
  }
  return r;
}

void recompute_pieces(const Fuse *f) {
  Recompute r = recompute_new(f);
  find_writers(&r);
  find_needed(&r);
  for (int s = f->survey->segments - 1; s >= 0; s--)
    repeat_segment(&r, s);
  redirect(&r);
  insert(&r);
  trim_forward(&r);
}
