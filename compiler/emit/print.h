/* Private to compiler/emit: names, loops, calls, and the state that the parts of a stage's file share. */
#ifndef PDC_EMIT_PRINT_H
#define PDC_EMIT_PRINT_H

#include "emit/emit.h"

enum { WIDTH = 110 }; /* columns of emitted lines */

/* ---- names.c: whatever comes from a .pdm becomes harmless C text ---------------------------------- */

typedef Vec(Name) Names;
Name c_identifier(const char *text);            /* [A-Za-z0-9_], no keyword, no name of ours or the library's */
Name unique_name(Names *taken, const char *wanted); /* sanitised, made unique, added to taken */
char *comment_text(const char *text);           /* cannot end a comment */
char *string_literal(const char *text);         /* quoted */
char *float_literal(double x);                  /* "0.100000001f" */
char *double_literal(double x);
char *dims_text(int rank, const int64_t *dim);  /* "[4, 128, 256]" */
char *bytes_text(int64_t bytes);                /* "3.1 MiB" */
/* head + items separated by ", " + tail, broken at WIDTH and continued `indent` columns in. */
void text_list(Text *out, int indent, const char *head, const Names *items, const char *tail);
/* A block comment of one paragraph, broken at WIDTH. */
void text_comment(Text *out, int indent, const char *paragraph);

/* ---- loops.c: Kernels of kind LOOP as static functions --------------------------------------------- */

/* What the function of a kernel is called with, in this order: first, the buffers, scratch. */
typedef struct KernelCall {
  bool first;    /* whether this is a batch's first microbatch: accumulators are overwritten */
  Ints buffers;
  bool scratch;
  bool samples;  /* reads first_sample: the global index of the microbatch's first sample */
} KernelCall;
KernelCall loop_call(const StageKernels *k, const Kernel *kernel);
void print_loop(Text *out, const StageKernels *k, const Kernel *kernel, const char *function);
int64_t loop_scratch(const Kernel *kernel); /* bytes of partial sums; fuse puts them into scratch_bytes */

/* ---- calls.c: Kernels of kind CALL ------------------------------------------------------------------- */

/* Text of the pointer to a buffer's first element, in the function being printed. */
typedef Name (*BufferText)(void *context, int buffer);
KernelCall call_buffers(const StageKernels *k, const Kernel *kernel);
/* File-scope objects a call needs ("static struct pd_matmul *c_fc;"), and their making in setup(). The
 * same objects serve all kernels of one signature; `object` is their name. False: it needs none. */
bool print_call_object(Text *out, const StageKernels *k, const Kernel *kernel, const char *object);
bool print_call_setup(Text *out, const StageKernels *k, const Kernel *kernel, const char *object);
void print_call(Text *out, int indent, const StageKernels *k, const Kernel *kernel, const char *object,
                BufferText text, void *context);

#endif
