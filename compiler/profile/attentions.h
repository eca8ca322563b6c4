/* Attention by cuDNN, where `pdc profile` found it faster than the runtime's own kernels
 * (runtime/cuda/attention_cudnn.cu). Handled like algorithms of products (profile/algorithms.h): measured with
 * kernels, stored in profiles and plans, printed into programs. */
#ifndef PDC_ATTENTIONS_H
#define PDC_ATTENTIONS_H

#include "profile/algorithms.h"
#include "target/target.h"

enum { MOST_KNOBS = 4 };

typedef struct Attention {
  Name attention; /* sizes, in the runtime's notation */
  int64_t engine, workspace;
  int n_knobs;
  int64_t knobs[2 * MOST_KNOBS]; /* type and value of each */
  double seconds, own_seconds;   /* per call: by cuDNN, by pdc's own kernels; 0: unknown */
} Attention;
typedef Vec(Attention) AttentionList;

/* Of a plan: all attentions at its microbatch that cuDNN computes. */
typedef struct Attentions {
  ProductLibrary library; /* cuDNN's version */
  AttentionList of;
} Attentions;

/* A line of n characters in the output of `pdc profile`'s program: "attention ENGINE KNOBS WORKSPACE SECONDS
 * OWN_SECONDS NAME". False: another format. */
bool attention_parse(const char *line, size_t n, Attention *out);

/* Writes and reads the member "attentions". */
void attentions_write(const AttentionList *list, bool times, int indent, Text *t);
bool attentions_read(const JsonPlace *at, bool times, AttentionList *out);

/* The workspaces of these attentions. */
const Workspaces *attention_workspaces(const AttentionList *list);

#endif
