/* A model as a profiler sees it: layers with their times and sizes, and who reads whom. */
#ifndef PDC_LAYERS_H
#define PDC_LAYERS_H

#include "base/base.h"

/* One layer. What it costs is of one microbatch, on one device. */
typedef struct Layer {
  Name name;                  /* unique in its graph: "node12", "h[3].attn" */
  Name kind;                  /* for people, "Conv2d"; NULL: not said */
  double *forward, *backward; /* seconds, by device: LayerGraph.devices */
  int64_t output, parameters; /* bytes: of what it computes, and of its parameters */
  bool cut;                   /* what it computes may be sent to another stage */
  Ints inputs;                /* the layers it reads, each once: ids, below its own */
  Span where;                 /* in the file */
} Layer;

/* Layers are in topological order: each comes behind all that it reads. Their ids are their places. */
typedef struct LayerGraph {
  Name name;         /* of the model, or of its file */
  int file;          /* for diagnostics */
  Vec(Name) devices; /* whose times are given: at least one; NULL where the file names none */
  Vec(Layer) layers; /* at least one, at most MOST_LAYERS */
} LayerGraph;

enum { MOST_LAYERS = 8192 };

/* The graph in a file of PipeDream's or in JSON, told apart by what stands in it; docs/guide/planning.md describes both.
 * NULL after diagnostics. */
LayerGraph *layers_read(const char *path);

/* ---- where a pipeline may be cut (states.c) --------------------------------------------------- */

/* Two groups of layers that no state divides: one has none of `behind` without all of `before`, but there are also states
 * with the one and without the other, which are left out. */
typedef struct Joint {
  Ints before, behind;
  bool beside; /* neither reads the other: states with `behind` alone are left out, too */
  bool exact;  /* none of those states may end a stage: what crosses there may not be sent */
} Joint;
typedef Vec(Joint) Joints;

/* A state is what has been computed when a stage ends: a set of layers that holds all that its members read. As an
 * antichain it is written as its last layers, those that no other member needs. States begin
 * with the source that most layers depend on, and go on by adding a layer that reads a member, with what it needs: so
 * other sources come with the first layer that reads them. Only states are kept that `Layer.cut` allows, and the last one, the whole model. They are
 * sorted by their compute time, so that a state stands behind all that it contains. */
typedef struct States {
  int n;
  const double *compute;     /* by state, of all its members: seconds forward and backward */
  const int64_t *parameters; /* bytes, of all its members */
  const int64_t *output;     /* bytes that later layers read of its members, each value once */
  const int *values;         /* how many values these are */
  const uint64_t *members;   /* bit `layer` of the `words` words at state * words */
  int words;
  Joints joints;          /* what was contracted, so that there are few enough; mostly nothing */
  int groups, contracted; /* of several layers each; layers in them */
} States;

enum { MOST_STATES = 8192 };

/* device: an index of graph->devices. Where there are more than MOST_STATES layers are contracted. */
const States *states_find(const LayerGraph *graph, int device);
bool state_contains(const States *s, int outer, int inner);
bool state_has(const States *s, int state, int layer);
/* Of those that were contracted to one, most seconds first: the largest, `most` of them; how many. */
typedef struct ContractedGroup {
  Name first, last;
  int layers;
  double seconds; /* forward and backward */
} ContractedGroup;
int states_largest_groups(const LayerGraph *graph, const States *s, int device, ContractedGroup *largest,
                          int most);
/* The fewest bytes that cross where a state divides what was contracted; INT64_MAX: none may (bound.c). */
int64_t joint_least_output(const LayerGraph *graph, const Joint *joint);
/* ---- in a row (chain.c) ------------------------------------------------------------------------ */

/* The most states of which each contains the one before, among them the `n` states `with`, which do so; the last one
 * is the whole model. Of equally long rows the one whose outputs are fewest bytes together. Rising. */
Ints states_chain(const States *s, const int *with, int n);

#endif
