/* The text form of a Graph, shared by dump.c and read.c. */
#ifndef PDC_GRAPH_TEXT_H
#define PDC_GRAPH_TEXT_H

#include "graph/graph.h"

typedef enum { FIELD_REAL, FIELD_INT, FIELD_BOOL, FIELD_NAME, FIELD_OPTIMIZER, FIELD_LR_SCHEDULE } FieldKind;
typedef struct TrainField {
  const char *name;
  FieldKind kind;
  size_t offset;
} TrainField;
extern const TrainField train_fields[]; /* ends with a NULL name */
/* Indexed by enum; NULL-ended. */
extern const char *const init_names[], *const origin_names[];

#endif
