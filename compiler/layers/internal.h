/* What the readers of files with layers share. */
#ifndef PDC_LAYERS_INTERNAL_H
#define PDC_LAYERS_INTERNAL_H

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

#endif
