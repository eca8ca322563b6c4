/* Kernels of kind CALL: which runtime function does an operation, with which shapes. A call is described
 * once and from that its objects, its setup, its arguments and its scratch are printed or computed. */
#include "emit/print.h"
#include "pd_runtime.h"

#include <inttypes.h>
#include <string.h>

/* Axes shared by several places, merged where every one of them lies in memory as a single axis. */
enum { MAX_PLACES = 3 };
typedef struct Axes {
  int n;
  int64_t count[MAX_DIM], stride[MAX_DIM][MAX_PLACES];
} Axes;

/* The first `dims` axes of places; a NULL place does not move along them. */
static Axes merge_axes(const Place *const *place, int places, int dims, const int64_t *dim) {
  Axes a = {0};
  for (int i = 0; i < dims; i++) {
    int64_t stride[MAX_PLACES] = {0};
    if (dim[i] == 1)
      continue;
    bool joins = a.n > 0;
    for (int j = 0; j < places; j++) {
      stride[j] = place[j] ? place[j]->stride[i] : 0;
      joins = joins && a.stride[a.n - 1][j] == stride[j] * dim[i];
    }
    if (joins) {
      a.count[a.n - 1] *= dim[i];
    } else {
      a.count[a.n] = dim[i];
      a.n++;
    }
    memcpy(a.stride[a.n - 1], stride, sizeof stride);
  }
  return a;
}

/* Takes the innermost axis off. */
static int64_t take_axis(Axes *a, int64_t stride[MAX_PLACES]) {
  memset(stride, 0, MAX_PLACES * sizeof *stride);
  if (a->n == 0)
    return 1;
  a->n--;
  memcpy(stride, a->stride[a->n], MAX_PLACES * sizeof *stride);
  return a->count[a->n];
}

/* ---- matrix products ------------------------------------------------------------------------- */

typedef struct Matmul {
  struct pd_matmul_shape shape;
  bool swapped; /* computes the transposed product: the first matrix is the kernel's second input */
  Axes outer;   /* loops around the call; strides of the kernel's inputs 0, 1 and its output */
  bool sums;    /* the outer loops add up (weight gradients) */
} Matmul;

/* c^T = b^T a^T, for a c whose rows lie next to each other. */
static void swap_matmul(Matmul *x) {
  struct pd_matmul_shape s = x->shape;
  x->swapped = true;
  x->shape = (struct pd_matmul_shape){
    .batch = s.batch, .m = s.n, .n = s.m, .k = s.k,
    .a_batch = s.b_batch, .a_row = s.b_column, .a_column = s.b_row,
    .b_batch = s.a_batch, .b_row = s.a_column, .b_column = s.a_row,
    .c_batch = s.c_batch, .c_row = s.c_row, .accumulate = s.accumulate,
  };
}

/* Axes of one element have no stride of their own; libraries want a plausible one. */
static void plausible_strides(struct pd_matmul_shape *s) {
  if (s->k == 1)
    s->a_column = 1, s->b_row = s->n;
  if (s->m == 1)
    s->a_row = s->k;
  if (s->n == 1)
    s->b_column = 1;
  if (s->m == 1)
    s->c_row = s->n;
  if (s->batch == 1)
    s->a_batch = s->m * s->k, s->b_batch = s->k * s->n, s->c_batch = s->m * s->n;
}

/* Sets c's strides, transposing the product when c's columns are not contiguous. */
static void place_result(Matmul *x, int64_t row, int64_t column) {
  struct pd_matmul_shape *s = &x->shape;
  bool rows_contiguous = s->n > 1 && column != 1;
  s->c_row = rows_contiguous ? column : row;
  if (rows_contiguous) {
    ensure((row == 1 || s->m == 1) && !s->bias);
    swap_matmul(x);
  }
  plausible_strides(&x->shape);
}

static Matmul describe_product(const Kernel *k) {
  const Place *a = &k->in.at[0], *b = &k->in.at[1], *c = &k->out.at[0];
  Matmul x = {0};
  struct pd_matmul_shape *s = &x.shape;
  bool weight = b->rank == 2 && a->rank != 2;
  int n = a->rank, leading = weight || b->rank == 2 ? n - 1 : n - 2;
  const Place *places[] = {a, weight || b->rank == 2 ? NULL : b, c};
  int64_t stride[MAX_PLACES];
  x.outer = merge_axes(places, 3, leading, a->dim);
  *s = (struct pd_matmul_shape){
      .batch = 1, .k = a->dim[n - 1], .n = b->dim[b->rank - 1], .bias = k->bias >= 0};
  s->a_column = a->stride[n - 1];
  s->b_row = b->stride[b->rank - 2];
  s->b_column = b->stride[b->rank - 1];
  int64_t c_row;
  if (places[1]) {
    s->m = a->dim[n - 2];
    s->a_row = a->stride[n - 2];
    c_row = c->stride[n - 2];
  } else {
    s->m = take_axis(&x.outer, stride);
    s->a_row = stride[0];
    c_row = stride[2];
  }
  if (x.outer.n > 0) {
    s->batch = take_axis(&x.outer, stride);
    s->a_batch = stride[0];
    s->b_batch = stride[1];
    s->c_batch = stride[2];
  }
  place_result(&x, c_row, c->stride[c->rank - 1]);
  return x;
}

static Matmul describe_weight_gradient(const Kernel *k) {
  const Place *a = &k->in.at[0], *dy = &k->in.at[1], *c = &k->out.at[0];
  const Place *places[] = {a, dy};
  Matmul x = {.sums = true};
  int64_t stride[MAX_PLACES];
  x.outer = merge_axes(places, 2, a->rank - 1, a->dim);
  x.shape = (struct pd_matmul_shape){.batch = 1, .m = c->dim[0], .n = c->dim[1]};
  x.shape.k = take_axis(&x.outer, stride);
  x.shape.a_row = a->stride[a->rank - 1];
  x.shape.a_column = stride[0];
  x.shape.b_row = stride[1];
  x.shape.b_column = dy->stride[dy->rank - 1];
  place_result(&x, c->stride[0], c->stride[1]);
  return x;
}

static Matmul describe_matmul(const Kernel *k) {
  return k->node->op == &op_matmul ? describe_product(k) : describe_weight_gradient(k);
}

/* Whether it is made in two forms, one that overwrites c and one that adds to it. */
static bool two_forms(const Kernel *k, const Matmul *x) {
  return k->accumulate || (x->sums && x->outer.n > 0);
}

static void matmul_object(Text *out, const StageKernels *stage, const Kernel *k, const char *object) {
  Matmul x = describe_matmul(k);
  (void)stage;
  text_add(out, two_forms(k, &x) ? "static struct pd_matmul *%s[2];" : "static struct pd_matmul *%s;",
           object);
  text_add(out, " /* ");
  if (x.shape.batch > 1)
    text_add(out, "%" PRId64 " x ", x.shape.batch);
  text_add(out, "[%" PRId64 ", %" PRId64 "] @ [%" PRId64 ", %" PRId64 "]%s */\n", x.shape.m, x.shape.k,
           x.shape.k, x.shape.n, x.shape.bias ? " + bias" : "");
}

static void matmul_setup(Text *out, const StageKernels *stage, const Kernel *k, const char *object) {
  Matmul x = describe_matmul(k);
  const struct pd_matmul_shape *s = &x.shape;
  const struct { const char *name; int64_t value; bool shown;
  } field[] = {
      {"batch", s->batch, true},
      {"m", s->m, true},
      {"n", s->n, true},
      {"k", s->k, true},
      {"a_batch", s->a_batch, s->batch > 1},
      {"b_batch", s->b_batch, s->batch > 1},
      {"c_batch", s->c_batch, s->batch > 1},
      {"a_row", s->a_row, true},
      {"a_column", s->a_column, true},
      {"b_row", s->b_row, true},
      {"b_column", s->b_column, true},
      {"c_row", s->c_row, true},
  };
  bool two = two_forms(k, &x);
  Names list = {0};
  (void)stage;
  for (size_t i = 0; i < sizeof field / sizeof *field; i++)
    if (field[i].shown)
      push(&list, internf(".%s = %" PRId64, field[i].name, field[i].value));
  if (s->bias)
    push(&list, intern(".bias = true"));
  if (two)
    push(&list, intern(".accumulate = !first"));
  if (two)
    text_add(out, "  for (int first = 0; first < 2; first++)\n");
  text_list(out, two ? 8 : 6,
            format(two ? "    %s[first] = pd_matmul_new((struct pd_matmul_shape){"
                       : "  %s = pd_matmul_new((struct pd_matmul_shape){",
                   object),
            &list, "});\n");
}

/* Loops over outer axes; "o0", "o1" are their indices. */
static int open_outer(Text *out, int indent, const Axes *a) {
  for (int i = 0; i < a->n; i++, indent += 2)
    text_add(out, "%*sfor (int64_t o%d = 0; o%d < %" PRId64 "; o%d++)\n", indent, "", i, i, a->count[i], i);
  return indent;
}

/* The pointer to a place's first element at the current outer indices. */
static Name pointer(const Place *place, const Axes *a, int which, BufferText text, void *context) {
  Text out = {0};
  text_add(&out, "%s", text(context, place->buffer));
  if (place->offset != 0)
    text_add(&out, " + %" PRId64, place->offset);
  for (int i = 0; a && i < a->n; i++)
    if (a->stride[i][which] != 0)
      text_add(&out, " + o%d * %" PRId64, i, a->stride[i][which]);
  return intern(out.at);
}

/* true in the first round of all outer loops. */
static char *first_round(const Axes *a) {
  Text out = {0};
  for (int i = 0; i < a->n; i++)
    text_add(&out, "%so%d == 0", i ? " && " : "", i);
  return out.at;
}

static void matmul_call(Text *out, int indent, const StageKernels *stage, const Kernel *k, const char *object,
                        BufferText text, void *context) {
  Matmul x = describe_matmul(k);
  (void)stage;
  int at = open_outer(out, indent, &x.outer);
  const char *form = "";
  if (x.sums && x.outer.n > 0)
    form = format(k->accumulate ? "[first && %s]" : "[%s]", first_round(&x.outer));
  else if (k->accumulate)
    form = "[first]";
  Name a = pointer(&k->in.at[0], &x.outer, 0, text, context);
  Name b = pointer(&k->in.at[1], &x.outer, 1, text, context);
  Names list = {0};
  push(&list, internf("%s%s", object, form));
  push(&list, x.swapped ? b : a);
  push(&list, x.swapped ? a : b);
  push(&list, k->bias >= 0 ? pointer(&k->in.at[k->bias], NULL, 0, text, context) : intern("NULL"));
  push(&list, pointer(&k->out.at[0], &x.outer, 2, text, context));
  push(&list, intern("scratch"));
  text_list(out, at + 10, format("%*spd_matmul(", at, ""), &list, ");\n");
}

static int64_t matmul_scratch(const StageKernels *stage, const Kernel *k) {
  Matmul x = describe_matmul(k);
  (void)stage;
  int64_t bytes = 0;
  for (int form = 0; form < (two_forms(k, &x) ? 2 : 1); form++) {
    x.shape.accumulate = form == 1;
    int64_t need = (int64_t)pd_matmul_scratch(pd_matmul_new(x.shape));
    bytes = need > bytes ? need : bytes;
  }
  return bytes;
}

/* ---- attention ------------------------------------------------------------------------------- */

static bool is_backward_attention(const Kernel *k) { return k->node->op == &op_attention_gradient; }

static struct pd_attention describe_attention(const Kernel *k) {
  const Place *q = &k->in.at[0], *key = &k->in.at[1];
  int n = q->rank;
  struct pd_attention a = {
      .batch = n == 4 ? q->dim[0] : 1,
      .heads = q->dim[n - 3],
      .kv_heads = key->dim[n - 3],
      .length = q->dim[n - 2],
      .kv_length = key->dim[n - 2],
      .size = q->dim[n - 1],
      .causal = node_int(k->node, "causal") != 0,
      .scale = (float)node_number(k->node, "scale"),
  };
  const Place *place[8] = {q, key, &k->in.at[2]};
  if (is_backward_attention(k)) {
    place[3] = &k->in.at[3];
    place[7] = &k->in.at[5];
    for (int i = 0; i < 3; i++)
      place[4 + i] = &k->out.at[i];
  } else {
    place[3] = &k->out.at[0];
  }
  int64_t stride[8][3] = {{0}};
  for (int i = 0; i < 8; i++) {
    if (!place[i])
      continue;
    ensure(place[i]->rank == n && (place[i]->stride[n - 1] == 1 || place[i]->dim[n - 1] == 1));
    stride[i][0] = n == 4 ? place[i]->stride[0] : 0;
    stride[i][1] = place[i]->stride[n - 3];
    stride[i][2] = place[i]->stride[n - 2];
  }
  memcpy(&a.q, stride[0], sizeof a.q);
  memcpy(&a.k, stride[1], sizeof a.k);
  memcpy(&a.v, stride[2], sizeof a.v);
  memcpy(&a.o, stride[3], sizeof a.o);
  memcpy(&a.dq, stride[4], sizeof a.dq);
  memcpy(&a.dk, stride[5], sizeof a.dk);
  memcpy(&a.dv, stride[6], sizeof a.dv);
  memcpy(&a.d_o, stride[7], sizeof a.d_o);
  return a;
}

static void attention_object(Text *out, const StageKernels *stage, const Kernel *k, const char *object) {
  struct pd_attention a = describe_attention(k);
  (void)stage;
  text_add(out, "static const struct pd_attention %s = { /* %s */\n", object, comment_text(k->comment));
  text_add(out, "  .batch = %" PRId64 ", .heads = %" PRId64 ", .kv_heads = %" PRId64 ", .length = %" PRId64
           ", .kv_length = %" PRId64 ",\n", a.batch, a.heads, a.kv_heads, a.length, a.kv_length);
  text_add(out, "  .size = %" PRId64 ", .causal = %s, .scale = %s,\n ", a.size, a.causal ? "true" : "false",
           float_literal((double)a.scale));
  static const char *const names[] = {"q", "k", "v", "o", "dq", "dk", "dv", "d_o"};
  int64_t stride[8][3];
  memcpy(stride[0], &a.q, sizeof stride[0]);
  memcpy(stride[1], &a.k, sizeof stride[1]);
  memcpy(stride[2], &a.v, sizeof stride[2]);
  memcpy(stride[3], &a.o, sizeof stride[3]);
  memcpy(stride[4], &a.dq, sizeof stride[4]);
  memcpy(stride[5], &a.dk, sizeof stride[5]);
  memcpy(stride[6], &a.dv, sizeof stride[6]);
  memcpy(stride[7], &a.d_o, sizeof stride[7]);
  for (int i = 0; i < (is_backward_attention(k) ? 8 : 4); i++)
    text_add(out, "%s.%s = {%" PRId64 ", %" PRId64 ", %" PRId64 "},", i == 4 ? "\n  " : " ", names[i],
             stride[i][0], stride[i][1], stride[i][2]);
  text_add(out, "\n};\n");
}

static void attention_call(Text *out, int indent, const StageKernels *stage, const Kernel *k,
                           const char *object, BufferText text, void *context) {
  (void)stage;
  Names list = {0};
  push(&list, internf("&%s", object));
  for (int i = 0; i < k->in.n; i++)
    push(&list, pointer(&k->in.at[i], NULL, 0, text, context));
  for (int i = 0; i < k->out.n; i++)
    push(&list, pointer(&k->out.at[i], NULL, 0, text, context));
  push(&list, intern("scratch"));
  const char *function = is_backward_attention(k) ? "pd_attention_backward" : "pd_attention_forward";
  text_list(out, indent + (int)strlen(function) + 1, format("%*s%s(", indent, "", function), &list, ");\n");
}

static int64_t attention_scratch(const StageKernels *stage, const Kernel *k) {
  struct pd_attention a = describe_attention(k);
  return (int64_t)pd_attention_scratch(&a, stage->threads);
}

/* ---- rows of a table ------------------------------------------------------------------------- */

/* The rows of `values` (all axes but the last) beside their tokens. */
static Axes gather_rows(const Place *tokens, const Place *values, int64_t *rows, int64_t *stride) {
  const Place *places[] = {tokens, values};
  int64_t step[MAX_PLACES];
  Axes a = merge_axes(places, 2, tokens->rank, tokens->dim);
  *rows = take_axis(&a, step);
  *stride = *rows == 1 ? values->dim[values->rank - 1] : step[1];
  ensure(*rows == 1 || step[0] == 1);
  return a;
}

static void gather_call(Text *out, int indent, const StageKernels *stage, const Kernel *k, const char *object,
                        BufferText text, void *context) {
  (void)stage, (void)object;
  const Place *values = &k->out.at[0];
  int64_t rows, stride, width = values->dim[values->rank - 1];
  Axes outer = gather_rows(&k->in.at[1], values, &rows, &stride);
  int at = open_outer(out, indent, &outer);
  Names list = {0};
  push(&list, pointer(&k->in.at[0], NULL, 0, text, context));
  push(&list, pointer(&k->in.at[1], &outer, 0, text, context));
  push(&list, internf("%" PRId64, rows));
  push(&list, internf("%" PRId64, width));
  push(&list, pointer(values, &outer, 1, text, context));
  push(&list, internf("%" PRId64, stride));
  text_list(out, at + 10, format("%*spd_gather(", at, ""), &list, ");\n");
}

static void gather_gradient_call(Text *out, int indent, const StageKernels *stage, const Kernel *k,
                                 const char *object, BufferText text, void *context) {
  (void)stage, (void)object;
  const Place *values = &k->in.at[1];
  int64_t rows, stride, width = values->dim[values->rank - 1];
  Axes outer = gather_rows(&k->in.at[0], values, &rows, &stride);
  int at = open_outer(out, indent, &outer);
  Names list = {0};
  push(&list, pointer(&k->out.at[0], NULL, 0, text, context));
  push(&list, pointer(&k->in.at[0], &outer, 0, text, context));
  push(&list, pointer(values, &outer, 1, text, context));
  push(&list, internf("%" PRId64, rows));
  push(&list, internf("%" PRId64, width));
  push(&list, internf("%" PRId64, stride));
  push(&list, internf("%" PRId64, k->out.at[0].dim[0]));
  const char *first = k->accumulate ? "first" : outer.n ? "" : "true";
  const char *round = outer.n ? first_round(&outer) : "";
  push(&list, internf("%s%s%s", first, first[0] && round[0] ? " && " : "", round));
  text_list(out, at + 19, format("%*spd_gather_gradient(", at, ""), &list, ");\n");
}

/* ---- the table of calls ---------------------------------------------------------------------- */

typedef struct CallPrinter {
  const Op *op;
  void (*object)(Text *, const StageKernels *, const Kernel *, const char *object);
  void (*setup)(Text *, const StageKernels *, const Kernel *, const char *object);
  void (*call)(Text *, int indent, const StageKernels *, const Kernel *, const char *object, BufferText,
               void *);
  int64_t (*scratch)(const StageKernels *, const Kernel *);
} CallPrinter;

static const CallPrinter printers[] = {
  {&op_matmul, matmul_object, matmul_setup, matmul_call, matmul_scratch},
  {&op_weight_gradient, matmul_object, matmul_setup, matmul_call, matmul_scratch},
  {&op_attention, attention_object, NULL, attention_call, attention_scratch},
  {&op_attention_gradient, attention_object, NULL, attention_call, attention_scratch},
  {&op_gather, NULL, NULL, gather_call, NULL},
  {&op_gather_gradient, NULL, NULL, gather_gradient_call, NULL},
};

static const CallPrinter *printer_of(const Kernel *k) {
  for (size_t i = 0; i < sizeof printers / sizeof *printers; i++)
    if (printers[i].op == k->node->op)
      return &printers[i];
  BUG("no C call computes '%s'", k->node->op->name);
}

KernelCall call_buffers(const StageKernels *stage, const Kernel *k) {
  KernelCall c = {.first = k->accumulate, .scratch = printer_of(k)->scratch != NULL};
  (void)stage;
  for (int i = 0; i < k->in.n; i++)
    push(&c.buffers, k->in.at[i].buffer);
  for (int i = 0; i < k->out.n; i++)
    push(&c.buffers, k->out.at[i].buffer);
  return c;
}

bool print_call_object(Text *out, const StageKernels *stage, const Kernel *k, const char *object) {
  const CallPrinter *p = printer_of(k);
  if (p->object)
    p->object(out, stage, k, object);
  return p->object != NULL;
}

bool print_call_setup(Text *out, const StageKernels *stage, const Kernel *k, const char *object) {
  const CallPrinter *p = printer_of(k);
  if (p->setup)
    p->setup(out, stage, k, object);
  return p->setup != NULL;
}

void print_call(Text *out, int indent, const StageKernels *stage, const Kernel *k, const char *object,
                BufferText text, void *context) {
  printer_of(k)->call(out, indent, stage, k, object, text, context);
}

int64_t call_scratch(const StageKernels *stage, const Kernel *k) {
  const CallPrinter *p = printer_of(k);
  return p->scratch ? p->scratch(stage, k) : 0;
}
