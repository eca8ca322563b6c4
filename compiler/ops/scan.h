/* A loop over time in a Graph: one node `scan` whose body, the graph of a step, is in Graph.bodies. Its operands are
 * the scanned values x[steps, ..], the initial values of states that do not start as zeros, and captured values. Its
 * results are the stacked results y[steps, ..], then the last states. Step t reads row t of scanned values and writes
 * row t of stacked results; with ScanLoop.reverse the last row comes first. The derivative is another scan, in the other
 * direction (autodiff/scan.c). */
#ifndef PDC_SCAN_H
#define PDC_SCAN_H

#include "ops/op.h"

static inline Graph *scan_body(const Graph *g, const Node *n) { return g->bodies->at[(int)n->attr[0].number]; }
static inline bool starts_from_zeros(const Graph *body, int state) { return body->loop.zeros >> state & 1; }
/* By input of the body: the scan's operand, or -1 for a state that starts from zeros. */
int *scan_operands(const Graph *body);
/* Appends a scan to `g`, whose bodies get `body` unless they have an equal one. Returns the node; backward if `serves`
 * is not negative. */
int graph_scan(Graph *g, Graph *body, const int *in, int n_in, int scope, Span span, int serves);
/* The attributes of a scan with this body, which g's bodies get. */
void scan_attributes(Graph *g, Graph *body, Attr *attr);
/* A body without nodes, for scans of `g`. */
Graph *body_new(const Graph *g, ScanLoop loop);

/* ---- members of both kinds of scan ---- */
OpCost cost_scan(const Graph *g, int node);
void call_scan(const Site *site, Call *c);
int64_t scratch_scan(const Site *site);
bool scan_stays_f32(const Node *n, bool result, int index);

/* ---- generation (cached_scan.c) ---- */
enum { CACHED_OPERANDS = 2 }; /* the last operands: the position and the sequence of each row */
int decode_scan(const Graph *g, int node, const int *axis, int64_t context, Decoded *to);
int decode_convolution(const Graph *g, int node, const int *axis, int64_t context, Decoded *to);
int decode_pad(const Graph *g, int node, const int *axis, int64_t context, Decoded *to);
/* Fills in a cached scan with this body, whose step is one position. */
void decode_to_scan(const Graph *g, Graph *body, Decoded *to);

#endif
