/* `pdc show`: a model by its layer instances, as a table, and as a picture with the plan's stages. */
#ifndef PDC_SHOW_H
#define PDC_SHOW_H

#include "fuse/kernel.h"
#include "plan/request.h"

/* Elements of the parameters and buffers that an instance declares, inner ones' included. */
typedef struct Elements {
  int64_t trained, frozen, buffers;
} Elements;

/* What the graph says of an instance as the model's author wrote it, before passes reorder axes and drop nodes. */
typedef struct Outlined {
  const char *output; /* shapes of one sample that others read of it: "[128, 256]"; "" where none is */
  bool empty;         /* it computes and declares nothing: a dropout with p = 0 */
  bool leaf; /* what stands in it is not told of: nothing, or what a standard layer without inner parameters
                         is made of */
  int depth; /* of the model 0 */
  Elements declared;
} Outlined;

/* By scope of the graph. */
typedef struct Outline {
  Outlined *at;
  int n;
} Outline;

/* ---- outline.c */
/* Of the graph that elaborate() gives; scopes keep their numbers through all passes. */
Outline outline_make(const Graph *g);
/* Makes of what scopes have of their own what they have with all inside. */
void outline_add_up(const Graph *g, double *own);
/* Itself, or the one around it that is told of instead: a leaf, or one of this depth. */
int scope_shown(const Graph *g, const Outline *o, int scope, int depth);

/* What is shown. */
typedef struct Show {
  const Graph *g; /* with its backward nodes, simplified */
  const Pieces *p;
  const Outline *outline;
  const StageKernels *whole; /* the model as one stage, at one sample a microbatch */
  const Plan *plan;          /* NULL: none was asked for */
  int depth;                 /* instances nested deeper are counted to those around them */
} Show;

/* ---- table.c */
void show_table(const Show *s, FILE *out);

/* ---- boxes.c: what both pictures draw */
typedef struct Box {
  int scope, part;    /* part of the plan, 0 without one */
  bool run;           /* operations between an instance's inner ones, or the model's */
  Name label, layer;  /* "h.3"; of a run "add, matmul", with layer NULL */
  const char *output; /* "[128, 256]" */
  double parameters, operations;
  Vec(Name) inputs; /* inputs and targets that it reads */
} Box;

typedef struct Edge {
  int from, to;   /* boxes */
  Shape shape;    /* of the first value that goes along */
  double bytes;   /* of all, f32, one sample */
  Name parameter; /* NULL; or it is an instance's parameter that another one reads: a tied one, a table */
} Edge;

typedef struct Boxes {
  Vec(Box) boxes; /* in the order in which they run first */
  Vec(Edge) edges;
} Boxes;
Boxes boxes_make(const Show *s);

/* Bytes that cross to this part from the one before, for one microbatch: forward, and gradients back. */
void crossing_bytes(const Show *s, int part, double *down, double *up);

/* ---- picture.c: texts in the arena */
char *show_svg(const Show *s);
char *show_dot(const Show *s);

#endif
