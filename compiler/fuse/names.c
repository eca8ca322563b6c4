/* Names kernels and buffers: C identifiers, and comments for readers. */
#include <ctype.h>
#include <string.h>

#include "fuse/internal.h"

/* ---- identifiers ----------------------------------------------------------------------------- */

static const char *const reserved[] = {"auto",    "break",    "case",     "char",     "const",  "continue",
                                       "default", "do",       "double",   "else",     "enum",   "extern",
                                       "float",   "for",      "goto",     "if",       "inline", "int",
                                       "long",    "main",     "register", "restrict", "return", "short",
                                       "signed",  "sizeof",   "static",   "struct",   "switch", "typedef",
                                       "union",   "unsigned", "void",     "volatile", "while"};

/* A C identifier from any text; characters that C does not allow become '_'. */
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

typedef struct Taken {
  Name name;
  int group;
  Name signature;
} Taken;
typedef Vec(Taken) TakenNames;

/* The name, with a number appended if it is used in the group. Kernels of equal signature may share a name. */
static Name unique(TakenNames *taken, Name name, int group, Name signature) {
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

static Name scope_path(const Fuse *f, int node) { return f->g->scopes.at[node_at(f, node)->scope].path; }

/* ---- kernels --------------------------------------------------------------------------------- */

/* The scopes of a kernel's items, except scopes within other scopes (unless they are the region's own). */
static Ints kernel_scopes(const Fuse *f, Direction d, const Group *group, Name region) {
  Ints all = {0}, outer = {0};
  for (int i = 0; i < group->items.n; i++) {
    int scope = node_at(f, f->items->of[d].at[group->items.at[i]].node)->scope;
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

/* The operation and value of a region's own node, or of the node that it serves: "add_x", "matmul_logits". */
static const char *done_for(const Fuse *f, int node) {
  const Node *n = node_at(f, node);
  n = n->serves >= 0 ? node_at(f, n->serves) : n;
  Name value = value_at(f, n->out[0])->name;
  return value == intern(n->op->name) ? value : format("%s_%s", n->op->name, value);
}

/* A kernel has the names of its layers or, for the region's own operations, of its value. */
static void name_kernel(const Fuse *f, Direction kernels, int at, Kernel *k) {
  Text name = {0}, comment = {0};
  Direction d;
  const Group *group = group_of(f, kernels, at, &d);
  const char *suffix = k->again ? "_again" : d == BACKWARD ? "_backward" : d == SETUP ? "_table" : "";
  Name region = f->k->regions.at[k->region].path;
  Ints scopes = kernel_scopes(f, d, group, region);
  for (int i = 0; i < scopes.n; i++) {
    const Scope *s = &f->g->scopes.at[scopes.at[i]];
    const char *path = relative(s->path, region), *value = NULL;
    for (int j = 0; j < group->items.n && !value; j++) {
      int node = f->items->of[d].at[group->items.at[j]].node;
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

/* The forward kernel with the same code; NULL: none. */
static const Kernel *equal_forward(const StageKernels *k, Name signature) {
  for (int i = 0; i < k->forward.n; i++)
    if (k->forward.at[i].signature == signature)
      return &k->forward.at[i];
  return NULL;
}

void name_kernels(const Fuse *f) {
  TakenNames taken = {0};
  for (Direction d = SETUP; d < N_DIRECTIONS; d++)
    for (int i = 0; i < kernels_of(f, d)->n; i++) {
      Kernel *k = &kernels_of(f, d)->at[i];
      name_kernel(f, d, i, k);
      k->signature = sign_kernel(f->k, k);
      const Kernel *same = k->again ? equal_forward(f->k, k->signature) : NULL;
      k->name = same ? same->name : unique(&taken, k->name, 0, k->signature);
    }
}

/* ---- buffers --------------------------------------------------------------------------------- */

/* "h.3.attn.qkv"; a layer's unnamed result has the layer's name. */
static const char *value_path(const Fuse *f, int value) {
  const Value *v = value_at(f, value);
  Name path = scope_path(f, v->node);
  bool result = false;
  for (int i = 0; i < v->uses.n && path[0] && v->name == intern(producer(f, value)->op->name); i++)
    result |= node_at(f, v->uses.at[i])->scope != node_at(f, v->node)->scope;
  return !path[0] ? v->name : result ? path : format("%s.%s", path, v->name);
}

/* By value: the forward value whose gradient it is, or -1. */
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

/* A buffer's name within its region. A region's result is named after the value, without the region's name, so
 * that equal regions get equal names. */
static const char *own_path(const Fuse *f, const char *path, const char *region, int value) {
  const char *index = *region ? index_in(path) : NULL, *own = relative(path, region);
  if (index && own == path)
    own = index[strcspn(index, ".")] ? strchr(index, '.') + 1 : "";
  return *own ? own : value_at(f, value)->name;
}

static Name described(const Fuse *f, const int *owner, int value) {
  bool gradient = owner[value] >= 0;
  return internf("%s%s", gradient ? "gradient of " : "", value_path(f, gradient ? owner[value] : value));
}

void name_buffers(const Fuse *f) {
  StageKernels *k = f->k;
  int *owner = gradient_owners(f);
  TakenNames taken = {0};
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
      b->comment = described(f, owner, b->value);
      if (b->then >= 0)
        b->comment = internf("%s, then %s", b->comment, described(f, owner, b->then));
    }
    Name name = identifier(format("%s%s", prefix, own));
    b->name = unique(&taken, name, b->kind * 4096 + b->region + 1, NULL);
  }
}
