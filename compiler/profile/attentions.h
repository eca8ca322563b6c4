/* How cuDNN computes attention, where `pdc profile` found it to be faster at that than the runtime's own kernels
 * (runtime/cuda/attention_cudnn.cu): as algorithms of products are (profile/algorithms.h), measured with kernels, kept in
 * profiles and plans, printed into programs. */
#ifndef PDC_ATTENTIONS_H
#define PDC_ATTENTIONS_H

#include "profile/algorithms.h"
#include "target/target.h"

enum { MOST_KNOBS = 4 };

typedef struct Attention {
  Name attention; /* its sizes, as the runtime names it */
  int64_t engine, workspace;
  int n_knobs;
  int64_t knobs[2 * MOST_KNOBS]; /* type and value of each */
  double seconds, own_seconds;   /* of a call: by cuDNN, by our own kernels; 0: not told */
} Attention;
typedef Vec(Attention) AttentionList;

/* A plan's: of all attentions at its microbatch that cuDNN computes. */
typedef struct Attentions {
  ProductLibrary library; /* cuDNN's version */
  AttentionList of;
} Attentions;

/* "attention ENGINE KNOBS WORKSPACE SECONDS OWN_SECONDS NAME", a line of n characters that the program of `pdc profile`
 * prints. False: it is none. */
bool attention_parse(const char *line, size_t n, Attention *out);

/* A member "attentions", as algorithms_write has "algorithms". */
void attentions_write(const AttentionList *list, bool times, int indent, Text *t);
bool attentions_read(const JsonPlace *at, bool times, AttentionList *out);

/* What calls need by them. */
const Workspaces *attention_workspaces(const AttentionList *list);

#endif
