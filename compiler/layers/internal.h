/* Private to compiler/layers: the interface among its files. */
#ifndef PDC_LAYERS_INTERNAL_H
#define PDC_LAYERS_INTERNAL_H

#include <stdlib.h>

#include "layers/layers.h"

/* A file under construction. */
typedef struct LayerFile {
  int file;
  const char *path, *text; /* NUL-terminated */
  size_t length;
} LayerFile;

/* Each reads layers and devices; inputs may refer to later layers. False after diagnostics. */
bool pipedream_parse(const LayerFile *in, LayerGraph *out);
bool json_parse(const LayerFile *in, LayerGraph *out);

/* Index of layers by name. */
typedef struct LayerNames {
  int *slot; /* open addressing: layer id + 1; 0: free */
  size_t room;
} LayerNames;
/* -1: unknown name. */
int layer_named(const LayerGraph *g, const LayerNames *names, Name name);
/* Adds a layer; false after a diagnostic: a duplicate name, or too many layers. */
bool layer_add(LayerGraph *g, LayerNames *names, const Layer *layer);
/* Adds an edge unless it exists. */
void layer_reads(Layer *reader, int input);

/* Whether x is finite, not negative, and at most 2^53; false after a diagnostic. `what`: name in the message, such
 * as "'forward'". */
bool figure_is_possible(double x, Span where, const char *what);

/* ---- contract.c */
/* All merge steps of a graph, down to one layer. Parallel branches come first, then steps without loss, then cheap
 * ones. */
Joints contraction_steps(const LayerGraph *g, int device);
/* The graph after n steps, with inputs only; group_of: by layer, its index there. */
LayerGraph *contracted_graph(const LayerGraph *g, int device, const Joint *joint, int n, int **group_of);

/* ---- states.c */
/* The states after this number of steps, which must not exceed MOST_STATES. */
const States *states_after(const LayerGraph *graph, int device, Joints joints, int steps);

#endif
