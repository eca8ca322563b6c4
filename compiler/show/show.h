/* `pdc show`: a model by its layer instances, as a table, and as a picture with the plan's stages. */
#ifndef PDC_SHOW_H
#define PDC_SHOW_H

#include "fuse/kernel.h"
#include "plan/request.h"

/* Elements of the parameters and buffers declared by an instance, inner instances included. */
typedef struct Elements {
  int64_t trained, frozen, buffers;
} Elements;

/* An instance as its author wrote it, before passes reorder axes and drop nodes. */
typedef struct Outlined {
  const char *output; /* shapes of its outputs, per sample: "[128, 256]"; "": none */
  bool empty;         /* computes and declares nothing, such as a dropout with p = 0 */
  bool leaf;          /* contents are not shown: it has none, or it is a standard layer without inner parameters */
  int depth;          /* 0 for the model */
  Elements declared;
} Outlined;

/* By scope of the graph. */
typedef struct Outline {
  Outlined *at;
  int n;
} Outline;

/* ---- outline.c */
/* Takes the graph of elaborate(); scopes keep their numbers through all passes. */
Outline outline_make(const Graph *g);
/* Turns each scope's own sums into totals with inner scopes. */
void outline_add_up(const Graph *g, double *own);
/* The scope itself, or the enclosing scope shown in its place: a leaf, or one at this depth. */
int scope_shown(const Graph *g, const Outline *o, int scope, int depth);

/* The contents of a display. */
typedef struct Show {
  const Graph *g; /* simplified, with backward nodes */
  const Pieces *p;
  const Outline *outline;
  const StageKernels *whole; /* the model as one stage, with one sample per microbatch */
  const Plan *plan;          /* NULL: no plan was requested */
  int depth;                 /* deeper instances count toward those around them */
} Show;

/* ---- table.c */
void show_table(const Show *s, FILE *out);

/* ---- boxes.c: shared by both pictures */
typedef struct Box {
  int scope, part;    /* part of the plan; 0 without a plan */
  bool run;           /* operations of the model or of an instance, between its inner instances */
  Name label, layer;  /* "h.3"; for a run "add, matmul", with layer NULL */
  const char *output; /* "[128, 256]" */
  double parameters, operations;
  Vec(Name) inputs; /* names of the inputs and targets that it reads */
} Box;

typedef struct Edge {
  int from, to;   /* boxes */
  Shape shape;    /* shape of the first value on the edge */
  double bytes;   /* of all values, f32, one sample */
  Name parameter; /* name of an instance's parameter read by another instance, such as a tied weight; else NULL */
} Edge;

typedef struct Boxes {
  Vec(Box) boxes; /* in order of first execution */
  Vec(Edge) edges;
} Boxes;
Boxes boxes_make(const Show *s);

/* Bytes from the previous part to this one per microbatch: activations `down`, gradients `up`. */
void crossing_bytes(const Show *s, int part, double *down, double *up);

/* ---- picture.c: texts in the arena */
char *show_svg(const Show *s);
char *show_dot(const Show *s);

#endif
