/* What a training is, whatever its plan: what the model computes, and how it is trained. Checkpoints keep it, so that
 * none is resumed as something else (docs/guide/training.md, "Checkpoints"). */
#ifndef PDC_IDENTITY_H
#define PDC_IDENTITY_H

#include "graph/graph.h"

typedef struct Setting {
  const char *name, *value;
} Setting;
typedef Vec(Setting) Settings;

typedef struct Identity {
  /* By part of the model, its instances of layers by their names and the rest: 16 digits of a SHA-256 of the
   * operations that lead to a loss, with their attributes, shapes and operands. What is there in training alone
   * (Op.trains) counts as a setting. */
  Settings function;
  Settings settings; /* of `train`; what plans choose is not among them */
  Settings traits;   /* traits.h */
} Identity;

/* Of a graph as elaboration leaves it. */
Identity *graph_identity(const Graph *g);

#endif
