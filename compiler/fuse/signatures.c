/* Signatures are equal for kernels with the same code over different buffers, and for regions with the same
 * kernels. */
#include "fuse/internal.h"

/* Buffers in order of appearance: equal kernels differ in buffers, not in their pattern. */
typedef struct Pattern {
  Text *text;
  Ints seen;
  const StageKernels *k;
} Pattern;

static int slot_of(Pattern *p, int buffer) {
  for (int i = 0; i < p->seen.n; i++)
    if (p->seen.at[i] == buffer)
      return i;
  push(&p->seen, buffer);
  return p->seen.n - 1;
}

static void sign_place(Pattern *p, const Place *place) {
  const Buffer *b = &p->k->buffers.at[place->buffer];
  text_add(p->text, " %d%s%s+%lld", slot_of(p, place->buffer),
           b->type == TYPE_TOKEN ? "t"
           : b->bf16             ? "h"
                                 : "",
           b->kind == BUFFER_ACCUMULATOR ? "a" : "", (long long)place->offset);
  for (int i = 0; i < place->rank; i++)
    text_add(p->text, ",%lld:%lld", (long long)place->dim[i], (long long)place->stride[i]);
}

static void sign_attributes(Pattern *p, const Node *n) {
  for (int i = 0; i < MAX_ATTR && n->op->attr[i].name; i++) {
    text_add(p->text, " %s=%a", n->op->attr[i].name, n->attr[i].number);
    for (int j = 0; j < n->attr[i].n; j++)
      text_add(p->text, ",%lld", (long long)n->attr[i].list[j]);
  }
}

Name sign_kernel(const StageKernels *k, const Kernel *kernel) {
  Text t = {0};
  Pattern p = {.text = &t, .k = k};
  text_add(&t, "%d %d %d", kernel->kind, kernel->accumulate, kernel->bias);
  if (kernel->kind == KERNEL_CALL) {
    text_add(&t, " %s threads=%d", kernel->node->op->name, k->target.threads);
    if (kernel->part != CALL_WHOLE)
      text_add(&t, " part=%d", kernel->part);
    sign_attributes(&p, kernel->node);
    for (int i = 0; i < kernel->in.n; i++)
      sign_place(&p, &kernel->in.at[i]);
    for (int i = 0; i < kernel->out.n; i++)
      sign_place(&p, &kernel->out.at[i]);
    return internf("%.16s", sha256_hex(t.at, t.n));
  }
  text_add(&t, " p%d c%d s%d", kernel->parallel, kernel->tiles, kernel->samples);
  for (int i = 0; i < kernel->n_dims; i++)
    text_add(&t, " %lld", (long long)kernel->dim[i]);
  for (int i = 0; i < kernel->terms.n; i++) {
    const Term *term = &kernel->terms.at[i];
    text_add(&t, "\n%d %s %a", term->kind, term->op ? term->op->name : "", term->constant);
    for (int j = 0; j < term->n_in; j++)
      text_add(&t, " #%d", term->in[j]);
    if (term->kind == TERM_OP)
      sign_attributes(&p, term->node);
    if (term->kind == TERM_LOAD)
      sign_place(&p, &term->place);
    if (term->rounded)
      text_add(&t, " rounded");
  }
  for (int i = 0; i < kernel->stores.n; i++) {
    text_add(&t, "\n= #%d %d", kernel->stores.at[i].term, kernel->stores.at[i].accumulate);
    sign_place(&p, &kernel->stores.at[i].place);
  }
  return internf("%.16s", sha256_hex(t.at, t.n));
}

void sign_asking(const StageKernels *k) {
  const Kernels *lists[] = {&k->setup, &k->forward, &k->backward};
  for (int list = 0; list < 3; list++)
    for (int i = 0; i < lists[list]->n; i++) {
      Kernel *kernel = &lists[list]->at[i];
      if (kernel->kind == KERNEL_CALL && kernel->node->op->scratch)
        kernel->signature = sign_kernel(k, kernel);
    }
}

/* ---- regions -------------------------------------------------------------------------------- */

static void sign_use(Pattern *p, const Place *place, int region) {
  const Buffer *b = &p->k->buffers.at[place->buffer];
  bool own = b->region == region;
  text_add(p->text, " %d", slot_of(p, place->buffer));
  if (own)
    text_add(p->text, "%d%s", b->kind, b->name);
}

static Name sign_region(const StageKernels *k, int r) {
  Text t = {0};
  Pattern p = {.text = &t, .k = k};
  const Region *region = &k->regions.at[r];
  for (PassKind pass = 0; pass < PASS_KINDS; pass++) {
    for (int i = region->first[pass]; i < region->end[pass]; i++) {
      const Kernel *kernel = &pass_kernels(k, pass)->at[i];
      text_add(&t, "\n%s", kernel->signature);
      for (Access a = {0}; next_access(kernel, &a);)
        sign_use(&p, a.place, r);
    }
    text_add(&t, "\n--");
  }
  return intern(t.at);
}

void find_like_regions(StageKernels *k) {
  Name *signature = alloc(sizeof(Name) * (size_t)(k->regions.n + 1));
  for (int r = 0; r < k->regions.n; r++) {
    k->regions.at[r].like = r;
    signature[r] = k->regions.at[r].index >= 0 ? sign_region(k, r) : intern("");
    for (int s = 0; s < r && k->regions.at[r].like == r; s++)
      if (k->regions.at[r].index >= 0 && k->regions.at[s].family == k->regions.at[r].family &&
          signature[s] == signature[r])
        k->regions.at[r].like = s;
  }
}
