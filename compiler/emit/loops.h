/* Private to the printing of loops: the text of a kernel's terms (expression.c), phases (phases.c), the
 * function in C (loops.c), the kernel in CUDA (cuda_loops.c) and a thread's work on a row (cuda_row.c). */
#ifndef PDC_EMIT_LOOPS_H
#define PDC_EMIT_LOOPS_H

#include "emit/print.h"

typedef struct Printer Printer;

/* Target-specific parts of the text of a phase. */
typedef struct LoopDialect {
  const char *const *reserved;                         /* names that the target's text uses; ends with NULL */
  const char *integer;                                 /* the type of indices */
  char *(*load)(Printer *p, int term);                 /* the value of a LOAD */
  char *(*cached)(Printer *p, int term);               /* the element of a term that is cached for the row */
  void (*reduce)(Printer *p, int term, const char *x); /* the line that adds x to a row's sum or maximum */
  /* the line after the phase that finishes the row's result */
  void (*reduced)(Printer *p, int term);
  void (*store)(Printer *p, int store); /* the lines of a store */
} LoopDialect;

struct Printer {
  const LoopDialect *dialect;
  Text *out;
  int indent;
  const StageKernels *k;
  const Kernel *kernel;
  const LoopShape *shape;
  const Arguments *arguments;
  Names taken;
  Name *parameter; /* parallel to arguments->buffers */
  Name *key;       /* parallel to arguments->keys */
  Name *term;      /* by term: its C name */
  Name *sum;       /* by store: its partial sums, or NULL */
  Name index[MAX_DIM];
  bool *needed;         /* by term: the phase being printed needs it */
  int *references;      /* by term: mentions in the text being printed */
  bool *named;          /* by term: it has a variable in the text being printed */
  int phase;            /* the one being printed */
  bool *cached;         /* by term: its phase caches its elements of the row */
  const char *lane;     /* C: lane of a sum that the phase adds to */
  const char *lead;     /* CUDA: the condition that holds for one thread a row, NULL: for each */
  const HostLoop *host; /* C */
  const GpuLoop *gpu;   /* CUDA */
  Name *vector;         /* CUDA, by term, then by store: the variable of several adjacent elements */
  bool reads_column;    /* the text contains the index along the last dim */
  bool reads_first;     /* CUDA: the text contains the index of the first of several elements */
};

__attribute__((format(printf, 2, 3))) void print_line(Printer *p, const char *format, ...);

/* ---- expression.c */
Name parameter_of(const Printer *p, int buffer);
char *index_sum(Printer *p, int64_t offset, const int64_t *stride, int from, int end);
char *element(Printer *p, const Place *place);
char *sum_element(Printer *p, int store);
int scalar_slot(const Kernel *k, int term); /* the phase before which a scalar is known; phases: after the last */
void count_references(Printer *p, int slot, bool scalars);
/* a term's value, rounded if the loop continues with the rounded value */
char *rounded_text(const Term *t, char *text);
char *term_text(Printer *p, int term);   /* its expression; prints declarations that this needs */
char *stored_text(Printer *p, int term); /* the same, of any length, for the right side of an assignment */
void name_term(Printer *p, int term);    /* prints the line that declares it, unless it has one */
bool is_token(const Printer *p, const Term *t);
const char *type_of(const Printer *p, const Term *t); /* "float", or "int32_t" for tokens */

/* ---- phases.c */
Printer printer_new(Text *out, const StageKernels *stage, const Lowered *lowered, const LoopDialect *dialect);
char *kernel_title(const Printer *p);
bool phase_needs(Printer *p, int phase, bool *reduces);
void print_block(Printer *p, const char *head, const Text *body);
void scalar_lines(Printer *p, int slot);
void phase_lines(Printer *p, int phase);
void unpack_index(Printer *p, const char *from, int first, int end);
Name load_name(const Printer *p, const Term *t);
bool tile_uses(const Printer *p, int buffer);
bool tile_uses_first(const Printer *p);

/* ---- cuda_row.c */
const LoopDialect *cuda_loop_dialect(bool wide); /* wide: indices of 64 bits */
const Buffer *cuda_buffer(const Printer *p, int buffer);
const char *cuda_stored_type(const Buffer *b);
char *cuda_narrowed(const Buffer *b, const char *value);
char *cuda_own(const Printer *p,
               Name vector);              /* current element of a variable with several elements of a thread */
Name cuda_first_column(const Printer *p); /* the index of a thread's elements, or of the first of adjacent ones */
char *cuda_times(const char *x, int64_t n);
char *cuda_partial_element(const Printer *p, int store, const char *j); /* of a column's partial sums */
void cuda_assign(Printer *p, int store, const char *to, const char *value);
/* The lines for one element, within a loop over a thread's adjacent ones. */
void cuda_vector_lines(Printer *p, void (*lines)(Printer *, int), int argument);
/* The lines for a thread's elements, within its loop over the columns of a row. */
void cuda_columns_lines(Printer *p, void (*lines)(Printer *, int), int argument);
void cuda_row_lines(Printer *p); /* all phases of a row */

#endif
