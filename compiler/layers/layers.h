/* A layer profile: layers with times, sizes and inputs. */
#ifndef PDC_LAYERS_H
#define PDC_LAYERS_H

#include "base/base.h"

/* A recomputed layer. */
typedef struct Recomputed {
  double *seconds; /* that it adds, by device; NULL: those of its forward pass */
  int64_t saved;   /* as Layer.saved; 0: its output */
  int64_t lasting; /* bytes that it needs once, whatever the number of microbatches in flight */
} Recomputed;

/* One layer. Costs are per microbatch, on one device. */
typedef struct Layer {
  Name name;                  /* unique in its graph: "node12", "h[3].attn" */
  Name kind;                  /* for messages, such as "Conv2d"; NULL: unknown */
  double *forward, *backward; /* seconds, by device: LayerGraph.devices */
  int64_t output, parameters; /* bytes of its output, and of its parameters */
  int64_t saved;              /* bytes from the forward to the backward pass; 0: its output */
  Recomputed again;           /* the layer, recomputed */
  bool cut;                   /* its output may be sent to another stage */
  Ints inputs;                /* ids of the layers that it reads: distinct, less than its own */
  Span where;                 /* in the file */
} Layer;

/* Layers are in topological order; a layer's id is its index. */
typedef struct LayerGraph {
  Name name;              /* name of the model, or of the file */
  int file;               /* for diagnostics */
  Vec(Name) devices;      /* devices with times, at least one; NULL: unnamed */
  Vec(Layer) layers;      /* at least one, at most MOST_LAYERS */
  int gradients, moments; /* copies of the parameters beside the weights */
} LayerGraph;

static inline int64_t layer_saved(const Layer *l) { return l->saved ? l->saved : l->output; }
static inline int64_t layer_saved_again(const Layer *l) { return l->again.saved ? l->again.saved : l->output; }

enum { MOST_LAYERS = 8192 };

/* Reads a file in PipeDream's format or JSON, recognized by the content (docs/guide/planning.md). NULL after
 * diagnostics. */
LayerGraph *layers_read(const char *path);

/* ---- states: possible cuts (states.c) --------------------------------------------------------- */

/* Two merged groups of layers: kept states with a layer of `behind` contain all of `before`; states that divide
 * the groups are omitted. */
typedef struct Joint {
  Ints before, behind;
  bool beside; /* neither group reads the other; states with `behind` alone are omitted as well */
  bool exact;  /* no omitted state can end a stage, because its values cannot be sent */
} Joint;
typedef Vec(Joint) Joints;

/* A state is the set of computed layers at the end of a stage: with each member it contains the member's inputs.
 * As an antichain it is written as its last layers, which no other member reads. States start with the source that
 * most layers depend on and grow by a layer that reads a member, with its inputs. Other sources come with their
 * first reader. Only states that `Layer.cut` allows are kept, and the whole model. They are sorted by compute
 * time, so a state follows all states that it contains. */
typedef struct States {
  int n;
  const double *compute;     /* by state: seconds forward and backward, sum over its members */
  const int64_t *parameters; /* by state: bytes, sum over its members */
  const int64_t *output;     /* by state: bytes that later layers read, each value once */
  const int *values;         /* by state: number of those values */
  const uint64_t *members;   /* bit `layer` of the `words` words at state * words */
  int words;
  Joints joints;          /* merged groups, to limit the number of states; usually empty */
  int groups, contracted; /* number of merged groups; layers in them */
} States;

enum { MOST_STATES = 8192 };

/* device: an index of graph->devices. If there are more than MOST_STATES states, layers are merged. */
const States *states_find(const LayerGraph *graph, int device);
bool state_contains(const States *s, int outer, int inner);
bool state_has(const States *s, int state, int layer);
/* The largest merged groups by seconds, at most `most`; returns their number. */
typedef struct ContractedGroup {
  Name first, last;
  int layers;
  double seconds; /* forward and backward */
} ContractedGroup;
int states_largest_groups(const LayerGraph *graph, const States *s, int device, ContractedGroup *largest,
                          int most);
/* The fewest bytes that cross a cut within a merged group; INT64_MAX: no cut is allowed (bound.c). */
int64_t joint_least_output(const LayerGraph *graph, const Joint *joint);
/* ---- chains (chain.c) ------------------------------------------------------------------------ */

/* The longest chain of states, each containing the previous one, to the whole model. It passes the `n` states
 * `with`, which form a chain. Ties go to the fewest bytes of outputs. Ascending. */
Ints states_chain(const States *s, const int *with, int n);

#endif
