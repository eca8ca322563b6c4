/* What the readers of files with layers share. */
#ifndef PDC_LAYERS_INTERNAL_H
#define PDC_LAYERS_INTERNAL_H

#include <stdlib.h>

#include "layers/layers.h"

/* A file while it is read. */
typedef struct LayerFile {
  int file;
  const char *path, *text; /* NUL-terminated */
  size_t length;
} LayerFile;

/* Each fills in layers and devices; ids of inputs may be in any order. False after diagnostics. */
bool pipedream_parse(const LayerFile *in, LayerGraph *out);
bool json_parse(const LayerFile *in, LayerGraph *out);

/* The places of layers by their names. */
typedef struct LayerNames {
  int *slot; /* open addressing: a layer's id + 1; 0: free */
  size_t room;
} LayerNames;
/* -1: there is none. */
int layer_named(const LayerGraph *g, const LayerNames *names, Name name);
/* Adds a layer; false after a diagnostic: its name is taken, or there are too many. */
bool layer_add(LayerGraph *g, LayerNames *names, const Layer *layer);
/* Adds an edge, once. */
void layer_reads(Layer *reader, int input);

/* False after a diagnostic: seconds and bytes are finite and not negative, and fewer than 2^53. `what`: "'forward'",
 * as the message calls it. */
bool figure_is_possible(double x, Span where, const char *what);

/* ---- contract.c */
/* All steps in which a graph can be contracted, down to one layer; first where branches stand side by side, those without loss and
 * the cheapest first. */
Joints contraction_steps(const LayerGraph *g, int device);
/* The graph after n of these steps, of which inputs alone count; group_of: by layer its place there. */
LayerGraph *contracted_graph(const LayerGraph *g, int device, const Joint *joint, int n, int **group_of);

/* ---- states.c */
/* Those that so many of the steps leave, which must be few enough. */
const States *states_after(const LayerGraph *graph, int device, Joints joints, int steps);

#endif
