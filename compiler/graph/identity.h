/* The plan-independent identity of a training: model function and training settings. Checkpoints store it to
 * refuse resuming a different training (docs/guide/training.md, "Checkpoints"). */
#ifndef PDC_IDENTITY_H
#define PDC_IDENTITY_H

#include "graph/graph.h"

typedef struct Setting {
  const char *name, *value;
} Setting;
typedef Vec(Setting) Settings;

typedef struct Identity {
  /* By part of the model, a named layer instance or the remainder: 16 digits of a SHA-256. The digest covers the
   * operations that lead to a loss, with attributes, shapes and operands. Training-only operations (Op.trains)
   * count as settings. */
  Settings function;
  Settings settings; /* of `train`, except settings chosen by plans */
  Settings traits;   /* traits.h */
} Identity;

/* Takes the graph as elaborated. */
Identity *graph_identity(const Graph *g);

#endif
