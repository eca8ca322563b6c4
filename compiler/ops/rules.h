/* Shared by this folder: checks with their diagnostics, common shape rules and costs. */
#ifndef PDC_RULES_H
#define PDC_RULES_H

#include "autodiff/autodiff.h"
#include "ops/op.h"

static inline const Value *rule_value(const ShapeRule *r, int i) { return &r->g->values.at[r->in[i]]; }
static inline const Shape *rule_shape(const ShapeRule *r, int i) { return &rule_value(r, i)->shape; }
/* The one output, f32 of this shape. */
bool rule_result(ShapeRule *r, Shape s);
bool rule_view(ShapeRule *r, Shape s); /* of the operand's type */
/* The operator as users write it: "+" for add. */
const char *op_spelling(const Op *op);
Attr *rule_attr(ShapeRule *r, const char *name);
int64_t rule_int(ShapeRule *r, const char *name);

/* Underlines every operand on the error's line. */
/* "'y' of shape [4, 6]"; "the value of shape [4, 6]" if the operand has no known name. */
const char *rule_operand(const ShapeRule *r, int i);
void rule_underline(ShapeRule *r, Diagnostic *d);
/* Notes the origin of operand i's size at the axis (its own, from the left; -1: none). */
void rule_origin(ShapeRule *r, Diagnostic *d, int i, int axis);
/* Checks; false after a diagnostic. */
bool rule_f32(ShapeRule *r, int i);
bool rule_all_f32(ShapeRule *r);
bool rule_token(ShapeRule *r, int i);
bool rule_buffer(ShapeRule *r, int i);
/* Fills in "$key" of a random op: the instance's path, the prefix, and the number of such ops before it there. */
void rule_key(ShapeRule *r, const char *prefix);
/* Makes the axis attribute count from the left; it must be one of the operand's `rank` axes. */
bool rule_axis(ShapeRule *r, const char *attr, int rank);
/* A list attribute of sizes: all at least 1, at most MAX_RANK of them. */
bool rule_sizes(ShapeRule *r, const char *attr, Shape *s);

/* A pair attribute of numbers from `least` to 2^20: makes it a list of two. */
bool rule_pair(ShapeRule *r, const char *attr, int64_t least);

/* Broadcasts `s` against `with`, right-aligned; false with the first clashing axis of `s` in *axis. */
bool shape_broadcast(Shape *s, const Shape *with, int *axis);
bool rule_broadcast(ShapeRule *r);  /* all operands against each other, of any type; fills the output */
bool shape_pointwise(ShapeRule *r); /* all f32, result broadcast */

Shape shape_with(Shape s, int axis, int64_t size);
Attr shape_attr(const Shape *s);
static inline const Shape *in_shape(const Graph *g, int node, int i) {
  return &g->values.at[g->nodes.at[node].in[i]].shape;
}
static inline const Shape *out_shape(const Graph *g, int node, int i) {
  return &g->values.at[g->nodes.at[node].out[i]].shape;
}
/* Elements of a value over `batch` samples. */
int64_t batch_elements(const Shape *s, int64_t batch);
/* A view of an array as [outer][middle][inner] around an axis. */
typedef struct Around {
  int64_t outer, middle, inner;
} Around;
Around around_axis(const Shape *s, int64_t batch, int axis);

/* Op.reordered of ops with an attribute "axis", of ops with a "shape", of ops whose attributes name no axes, and
 * of ops along the last axis. */
bool reordered_axis(const Graph *g, int node, const int *order, Attr *attr);
bool reordered_shape(const Graph *g, int node, const int *order, Attr *attr);
/* The axis of positions in a view's result; -1: they do not stay consecutive. */
int view_axis(const Graph *g, int node, int output, int axis);
/* Op.decode of views whose first attribute is a shape. */
int decode_shape(const Graph *g, int node, const int *axis, int64_t context, Decoded *to);
bool reordered_alike(const Graph *g, int node, const int *order, Attr *attr);
bool reordered_before_last(const Graph *g, int node, const int *order, Attr *attr);

/* Op.divide of pointwise ops without element indices; of sums and maxima over the last axis; of views and
 * concatenations that keep or move the axis. */
bool divide_pointwise(const Graph *g, int node, int k, Layout split, Layout *layout);
bool divide_reduce(const Graph *g, int node, int k, Layout split, Layout *layout);
bool divide_view(const Graph *g, int node, int k, Layout split, Layout *layout);
bool divide_concat(const Graph *g, int node, int k, Layout split, Layout *layout);

/* Bytes of all inputs and outputs, 4 an element. */
double node_bytes(const Graph *g, int node);
OpCost cost_none(const Graph *g, int node);  /* views, sources */
OpCost cost_cheap(const Graph *g, int node); /* one operation an element of the output */
/* Op.stays_f32: for sums over a batch; for copied rows. */
bool result_stays_f32(const Node *n, bool result, int index);
bool all_stays_f32(const Node *n, bool result, int index);
OpCost cost_expensive(const Graph *g, int node); /* a dozen operations: exp, tanh ... */
OpCost cost_inputs(const Graph *g, int node);    /* one operation an element of the inputs: sums */
OpCost cost_copy(const Graph *g, int node);      /* bytes only */

#endif
