/* Names for people, signatures for machines, regions and lifetimes. */
#include <ctype.h>
#include <string.h>

#include "fuse/internal.h"

/* ---- identifiers ----------------------------------------------------------------------------- */

static const char *const reserved[] = {
    "auto", "break", "case", "char", "const", "continue", "default", "do", "double", "else", "enum", "extern",
    "float", "for", "goto", "if", "inline", "int", "long", "main", "register", "restrict", "return", "short",
    "signed", "sizeof", "static", "struct", "switch", "typedef", "union", "unsigned", "void", "volatile", "while"};

/* A C identifier from any text: what C does not know becomes '_'. */
static Name identifier(const char *text) {
  Text t = {0};
  if (!isalpha((unsigned char)text[0]) && text[0] != '_')
    text_add(&t, "v_");
  for (; *text; text++)
    text_add(&t, "%c", isalnum((unsigned char)*text) ? *text : '_');
  for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
    if (!strcmp(reserved[i], t.at))
      text_add(&t, "_");
  return intern(t.at);
}

typedef struct Taken { Name name; int group; Name signature; } Taken;
typedef Vec(Taken) Names;

/* The name, or with a number behind it when another of the group has it. The same signature (where it
 * has one) may share. */
static Name unique(Names *taken, Name name, int group, Name signature) {
  for (int number = 1;; number++) {
    Name tried = number == 1 ? name : internf("%s_%d", name, number);
    bool free = true;
    for (int i = 0; i < taken->n && free; i++) {
      const Taken *t = &taken->at[i];
      free = t->name != tried || t->group != group;
      if (!free && signature && t->signature == signature)
        return tried;
    }
    if (free) {
      push(taken, (Taken){tried, group, signature});
      return tried;
    }
  }
}

/* "attn.c_attn" of scope "h.3.attn.c_attn" in region "h.3". */
static const char *relative(const char *path, const char *region) {
  size_t n = strlen(region);
  if (n == 0 || strncmp(path, region, n) || (path[n] && path[n] != '.'))
    return path;
  return path[n] ? path + n + 1 : "";
}

static Name scope_path(const Fuse *f, int node) { return f->g->scopes.at[node_at(f, node)->scope].path; }

/* ---- lifetimes ------------------------------------------------------------------------------- */

typedef struct Touch { bool any, several; int region; } Touch;

static void touch(StageKernels *k, Touch *t, int buffer, int region, PassKind pass, int at) {
  Buffer *b = &k->buffers.at[buffer];
  Touch *x = &t[buffer];
  x->several |= x->any && x->region != region;
  x->any = true;
  x->region = region;
  b->late |= pass == PASS_WEIGHTS;
  bool saved = b->kind == BUFFER_SAVED || b->kind == BUFFER_KEPT;
  if (b->first < 0 && !(saved && pass != PASS_FORWARD))
    b->first = at;
  if (!(saved && pass == PASS_FORWARD))
    b->last = at;
}

static void touch_kernels(StageKernels *k, Touch *t, const Kernels *kernels, PassKind pass) {
  for (int i = 0; i < kernels->n; i++) {
    const Kernel *kernel = &kernels->at[i];
    for (Access a = {0}; next_access(kernel, &a);)
      touch(k, t, a.place->buffer, kernel->region, pass, i);
  }
}

static int param_region(const StageKernels *k, Name name) {
  for (int r = 0; r < k->regions.n; r++)
    if (k->regions.at[r].path[0] && relative(name, k->regions.at[r].path) != name)
      return r;
  return -1;
}

static void find_lifetimes(Fuse *f) {
  StageKernels *k = f->k;
  Touch *t = alloc(sizeof *t * (size_t)(k->buffers.n + 1));
  touch_kernels(k, t, &k->setup, PASS_FORWARD);
  for (int i = 0; i < k->buffers.n; i++)
    if (k->buffers.at[i].kind != BUFFER_TABLE)
      k->buffers.at[i].first = k->buffers.at[i].last = -1;
  for (PassKind pass = 0; pass < PASS_KINDS; pass++)
    touch_kernels(k, t, pass_kernels(k, pass), pass);
  for (int i = 0; i < k->buffers.n; i++) {
    Buffer *b = &k->buffers.at[i];
    bool local = b->kind >= BUFFER_SAVED && b->kind <= BUFFER_TEMPORARY;
    if (local && t[i].any && !t[i].several)
      b->region = t[i].region;
    if (b->kind == BUFFER_WEIGHT || b->kind == BUFFER_ACCUMULATOR)
      b->region = param_region(k, f->g->params.at[b->param].name);
  }
}

/* ---- signatures ------------------------------------------------------------------------------ */

/* Buffers in order of appearance: what differs between like kernels is which buffers, not their pattern. */
typedef struct Pattern { Text *text; Ints seen; const StageKernels *k; } Pattern;

static int slot_of(Pattern *p, int buffer) {
  for (int i = 0; i < p->seen.n; i++)
    if (p->seen.at[i] == buffer)
      return i;
  push(&p->seen, buffer);
  return p->seen.n - 1;
}

static void sign_place(Pattern *p, const Place *place) {
  const Buffer *b = &p->k->buffers.at[place->buffer];
  text_add(p->text, " %d%s%s+%lld", slot_of(p, place->buffer), b->type == TYPE_TOKEN ? "t" : b->bf16 ? "h" : "",
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

static Name sign_kernel(const StageKernels *k, const Kernel *kernel) {
  Text t = {0};
  Pattern p = {.text = &t, .k = k};
  text_add(&t, "%d %d %d", kernel->kind, kernel->accumulate, kernel->bias);
  if (kernel->kind == KERNEL_CALL) {
    text_add(&t, " %s threads=%d", kernel->node->op->name, k->target.threads);
    sign_attributes(&p, kernel->node);
    for (int i = 0; i < kernel->in.n; i++)
      sign_place(&p, &kernel->in.at[i]);
    for (int i = 0; i < kernel->out.n; i++)
      sign_place(&p, &kernel->out.at[i]);
    return internf("%.16s", sha256_hex(t.at, t.n));
  }
  text_add(&t, " p%d c%d s%d", kernel->parallel, kernel->chunks, kernel->samples);
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
  }
  for (int i = 0; i < kernel->stores.n; i++) {
    text_add(&t, "\n= #%d %d", kernel->stores.at[i].term, kernel->stores.at[i].accumulate);
    sign_place(&p, &kernel->stores.at[i].place);
  }
  return internf("%.16s", sha256_hex(t.at, t.n));
}

/* ---- kernels --------------------------------------------------------------------------------- */

/* The scopes of a kernel's items, without those that lie within another one (but for the region's own). */
static Ints kernel_scopes(const Fuse *f, Direction d, const Group *group, Name region) {
  Ints all = {0}, outer = {0};
  for (int i = 0; i < group->items.n; i++) {
    int scope = node_at(f, f->items[d].at[group->items.at[i]].node)->scope;
    bool seen = false;
    for (int j = 0; j < all.n; j++)
      seen |= all.at[j] == scope;
    if (!seen)
      push(&all, scope);
  }
  for (int i = 0; i < all.n; i++) {
    bool within = false;
    for (int up = f->g->scopes.at[all.at[i]].parent; up >= 0 && !within; up = f->g->scopes.at[up].parent)
      for (int j = 0; j < all.n; j++)
        within |= all.at[j] == up && relative(f->g->scopes.at[up].path, region)[0];
    if (!within)
      push(&outer, all.at[i]);
  }
  return outer;
}

/* What a region's own operation does, or the one that it serves: "add_x", "matmul_logits". */
static const char *done_for(const Fuse *f, int node) {
  const Node *n = node_at(f, node);
  n = n->serves >= 0 ? node_at(f, n->serves) : n;
  Name value = value_at(f, n->out[0])->name;
  return value == intern(n->op->name) ? value : format("%s_%s", n->op->name, value);
}

/* Called after what it does: layers, or the value where the region itself computes. */
static void name_kernel(Fuse *f, Direction d, int at, Kernel *k) {
  Text name = {0}, comment = {0};
  const char *suffix = d == BACKWARD ? "_backward" : d == SETUP ? "_table" : "";
  const Group *group = &f->groups[d].at[at];
  Name region = f->k->regions.at[k->region].path;
  Ints scopes = kernel_scopes(f, d, group, region);
  for (int i = 0; i < scopes.n; i++) {
    const Scope *s = &f->g->scopes.at[scopes.at[i]];
    const char *path = relative(s->path, region), *value = NULL;
    for (int j = 0; j < group->items.n && !value; j++) {
      int node = f->items[d].at[group->items.at[j]].node;
      value = node_at(f, node)->scope == scopes.at[i] ? done_for(f, node) : NULL;
    }
    text_add(&comment, "%s%s (%s)", comment.n ? ", " : "", s->path[0] ? s->path : "model", s->layer);
    if (i < 3)
      text_add(&name, "%s%s", name.n ? "_" : "", path[0] ? path : value);
  }
  const Place *only = k->kind == KERNEL_CALL ? &k->out.at[0] : k->stores.n == 1 ? &k->stores.at[0].place : NULL;
  const Buffer *b = only ? &f->k->buffers.at[only->buffer] : NULL;
  if (b && b->kind == BUFFER_ACCUMULATOR)
    k->name = identifier(format("%s_gradient", relative(f->g->params.at[b->param].name, region)));
  else
    k->name = identifier(format("%s%s", name.n ? name.at : "copy", suffix));
  k->comment = intern(comment.n ? comment.at : "");
}

static void name_kernels(Fuse *f, Direction d, Kernels *kernels, Names *taken) {
  for (int i = 0; i < kernels->n; i++) {
    Kernel *k = &kernels->at[i];
    name_kernel(f, d, i, k);
    k->signature = sign_kernel(f->k, k);
    k->name = unique(taken, k->name, 0, k->signature);
  }
}

/* ---- buffers --------------------------------------------------------------------------------- */

/* "h.3.attn.qkv"; a layer's result that has no name of its own is called as the layer is. */
static const char *value_path(const Fuse *f, int value) {
  const Value *v = value_at(f, value);
  Name path = scope_path(f, v->node);
  bool result = false;
  for (int i = 0; i < v->uses.n && path[0] && v->name == intern(producer(f, value)->op->name); i++)
    result |= node_at(f, v->uses.at[i])->scope != node_at(f, v->node)->scope;
  return !path[0] ? v->name : result ? path : format("%s.%s", path, v->name);
}

/* By value: the forward value it is the gradient of, -1 where none. */
static int *gradient_owners(const Fuse *f) {
  int *owner = alloc(sizeof(int) * (size_t)f->g->values.n);
  for (int v = 0; v < f->g->values.n; v++)
    owner[v] = -1;
  for (int v = 0; v < f->g->values.n; v++)
    for (int u = 0; u < value_at(f, v)->gradients.n; u++) {
      int gradient = value_at(f, v)->gradients.at[u];
      int root = gradient >= 0 ? view_root(f, gradient) : -1;
      if (root >= 0 && (owner[root] < 0 || root == gradient))
        owner[root] = v;
    }
  return owner;
}

static const char *parameter_path(const Fuse *f, Buffer *b) {
  const Param *p = &f->g->params.at[b->param];
  bool several = b->kind == BUFFER_ACCUMULATOR && p->uses.n > 1;
  b->comment = several ? internf("%s, use %d", p->name, b->use + 1) : p->name;
  return several && b->use > 0 ? format("%s_use_%d", p->name, b->use + 1) : p->name;
}

/* Within a region; what a region returns is called as the value is, and there is no word of which region that is,
 * so that the next one may look like this one. */
static const char *own_path(const Fuse *f, const char *path, const char *region, int value) {
  const char *index = *region ? index_in(path) : NULL, *own = relative(path, region);
  if (index && own == path)
    own = index[strcspn(index, ".")] ? strchr(index, '.') + 1 : "";
  return *own ? own : value_at(f, value)->name;
}

static void name_buffers(Fuse *f) {
  StageKernels *k = f->k;
  int *owner = gradient_owners(f);
  Names taken = {0};
  for (int i = 0; i < k->buffers.n; i++) {
    Buffer *b = &k->buffers.at[i];
    const char *region = b->region >= 0 ? k->regions.at[b->region].path : "", *path, *prefix = "", *own;
    if (b->param >= 0) {
      path = parameter_path(f, b);
      own = relative(path, region);
    } else {
      bool gradient = owner[b->value] >= 0;
      int value = gradient ? owner[b->value] : b->value;
      path = value_path(f, value);
      own = own_path(f, path, region, value);
      prefix = gradient ? "d_" : "";
      b->comment = gradient ? internf("gradient of %s", path) : intern(path);
    }
    Name name = identifier(format("%s%s", prefix, own));
    b->name = unique(&taken, name, b->kind * 4096 + b->region + 1, NULL);
  }
}

/* ---- regions --------------------------------------------------------------------------------- */

static void region_ranges(StageKernels *k) {
  for (int r = 0; r < k->regions.n; r++) {
    Region *region = &k->regions.at[r];
    for (PassKind pass = 0; pass < PASS_KINDS; pass++) {
      const Kernels *kernels = pass_kernels(k, pass);
      int first = 0, end;
      while (first < kernels->n && kernels->at[first].region != r)
        first++;
      for (end = first; end < kernels->n && kernels->at[end].region == r;)
        end++;
      region->first[pass] = first;
      region->end[pass] = end;
    }
  }
}

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

void name_everything(Fuse *f) {
  Names taken = {0};
  name_kernels(f, SETUP, &f->k->setup, &taken);
  name_kernels(f, FORWARD, &f->k->forward, &taken);
  name_kernels(f, BACKWARD, &f->k->backward, &taken);
  if (f->k->split)
    split_backward(f->k);
  find_lifetimes(f);
  name_buffers(f);
  region_ranges(f->k);
  find_like_regions(f->k);
}
