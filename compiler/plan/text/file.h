/* plan.json as its text says, before a model gives its names a meaning. */
#ifndef PDC_PLAN_FILE_H
#define PDC_PLAN_FILE_H

#include "base/json.h"
#include "plan/plan.h"

/* What 'stages' says about one part of the model beside the planner's notes. */
typedef struct PartInFile {
  const char *starts_at; /* NULL: not given */
  int replicas, ahead;
  bool recompute;
} PartInFile;

typedef struct PlanFile {
  int file; /* for diagnostics */
  const cJSON *json;
  Plan plan;            /* parts have no pieces yet; n_stages and what is by stage: plan_file_stages() */
  int64_t microbatches; /* as given; 0: not given */
  int64_t tensor;       /* ranks that share a layer; 0: not given */
  bool spread;          /* Graph.spread */
  int parts;            /* that 'stages' lists */
  PartInFile *part;     /* those; NULL where there are more than MOST_STAGES */
} PlanFile;

enum { MOST_STAGES = 4096 };

/* Members, their types and ranges; false after diagnostics. A plan to follow must say everything and nothing else;
 * for a drawing, planned times do, and what else stands there is passed over. */
typedef enum { PLAN_TO_FOLLOW, PLAN_TO_DRAW } PlanUse;
bool plan_file_read(const char *path, PlanUse use, PlanFile *out);
/* Fills the pipeline by stage, where chunks divide the parts. False after a diagnostic: the chunks of a rank must
 * agree. */
bool plan_file_stages(PlanFile *f);

#endif
