/* Private to the printing of loops: the shape of a kernel's iteration (shape.c), the text of its terms
 * (expression.c), passes over a row (passes.c), the function in C (loops.c), how a GPU's threads share the
 * iteration (cuda_shape.c), the kernel in CUDA (cuda_loops.c). */
#ifndef PDC_EMIT_LOOPS_H
#define PDC_EMIT_LOOPS_H

#include "emit/print.h"

enum { PARALLEL_ELEMENTS = 32768 }; /* below this a second thread costs more than it saves */

typedef struct Printer Printer;

/* What differs between the targets in the text of a pass. */
typedef struct Speech {
  const char *const *words;                             /* names that its text gives a meaning; ends with NULL */
  const char *integer;                                  /* the type of indices */
  char *(*load)(Printer *p, int term);                  /* what a LOAD reads */
  char *(*kept)(Printer *p, int term);                  /* the element of a term that is kept for the row */
  void (*reduce)(Printer *p, int term, const char *x);  /* the line that adds x to a row's sum or maximum */
  void (*reduced)(Printer *p, int term);                /* behind the pass: the line that makes it known */
  void (*store)(Printer *p, int store);                 /* the lines of a store */
} Speech;

struct Printer {
  const Speech *speech;
  Text *out;
  int indent;
  const StageKernels *k;
  const Kernel *kernel;
  KernelCall call;
  Names taken;
  Name *parameter;    /* parallel to call.buffers */
  Name *key;          /* parallel to call.keys */
  Name *term;         /* by term: its C name */
  Name *sum;          /* by store: its partial sums, or NULL */
  Name index[MAX_DIM];
  bool *live;         /* by term: some store depends on it */
  bool *needed;       /* by term: the pass being printed needs it */
  int *references;    /* by term: how often the text being printed mentions it */
  bool *named;        /* by term: it has a variable in the text being printed */
  int phase;          /* of the pass being printed */
  bool *kept;         /* by term: its elements are kept from the pass that makes them on */
  const char *lane;   /* C: which lane of a sum the pass adds to */
  const char *lead;   /* CUDA: the condition that holds for one thread a row, NULL: for each */
  const struct Mapping *mapping;
  Name *vector;       /* CUDA, by term, then by store: several elements side by side */
  bool reads_column;  /* the index along the last dim was printed */
  bool reads_first;   /* CUDA: that of the first of several elements was */
};

__attribute__((format(printf, 2, 3))) void print_line(Printer *p, const char *format, ...);

/* ---- shape.c */
int64_t product(const int64_t *dim, int from, int end);
int64_t columns(const Kernel *k);
int row_dims(const Kernel *k);
bool store_scalar(const Kernel *k, const Store *s); /* of one value a row */
int parallel_dims(const Kernel *k);                 /* how many leading dims are dealt out */
bool sums_rows(const Kernel *k, const Store *s);    /* adds up several rows of one group: has partial sums */
int64_t sum_extent(const Kernel *k, const Store *s); /* elements of a store's partial sums */
int64_t sums_extent(const Kernel *k);               /* of all, each store's from a multiple of LANES */
bool sum_moves(const Kernel *k, const Store *s, int dim); /* whether partial sums extend along a dim */
bool chunked(const Kernel *k);                      /* rows in chunks by shape, partial sums for each */
bool is_split(const Kernel *k);                     /* a function over a range of rows or columns */
bool sums_in_scratch(const Kernel *k);
int64_t groups(const Kernel *k);
bool *live_terms(const Kernel *k);
bool accumulator_store(const StageKernels *stage, const Store *s);

/* ---- expression.c */
Name parameter_of(const Printer *p, int buffer);
char *index_sum(Printer *p, int64_t offset, const int64_t *stride, int from, int end);
char *element(Printer *p, const Place *place);
char *sum_element(Printer *p, int store);
int scalar_slot(const Kernel *k, int term); /* before which pass a scalar is known; phases: after the last */
void count_references(Printer *p, int slot, bool scalars);
char *term_text(Printer *p, int term); /* prints lines for what it depends on, as far as that has names */
void name_term(Printer *p, int term);  /* prints the line that declares it, unless it has one */
bool is_token(const Printer *p, const Term *t);
const char *type_of(const Printer *p, const Term *t); /* "float", or "int32_t" of tokens */

/* ---- cuda_shape.c */
typedef struct Mapping {
  enum {
    MAP_ELEMENTS, /* nothing is summed: a thread has `vector` elements, or one row's scalars */
    MAP_ROWS,     /* rows are reduced: the x threads of a team have a row, or in turn the rows of a chunk */
    MAP_COLUMNS   /* rows are added up: a thread has `vector` columns of each y-th row of a chunk */
  } kind;
  int vector;            /* elements of a row that are loaded and stored at once */
  int vectors;           /* a thread's of a row, x apart; 0: any number, one after the other, and none is kept */
  int x, y;              /* threads of a block along the columns; rows at a time, each by threads of its own */
  int chunks;            /* of a group's rows, each a block's (or one's for each of column_blocks) */
  int64_t rows;          /* of a chunk; the last may have fewer */
  int64_t columns;       /* ELEMENTS: threads a row */
  int64_t column_blocks; /* blocks that a row's columns are dealt to */
  bool *kept;            /* by term: a thread keeps its elements from one pass to the next */
  int64_t *sum_at, sums; /* by store: where its sums stand among a chunk's partial sums; their number */
  int64_t stride;        /* from one chunk's partial sums to the next's */
  bool in_scratch;       /* there are partial sums, which a second kernel adds up */
  bool sums_in_memory;   /* columns' sums are added to where the partial sums stand: they are too many to keep */
  bool wide;             /* indices need 64 bits */
} Mapping;
Mapping cuda_mapping(const StageKernels *stage, const Kernel *k, const KernelCall *call);

/* ---- passes.c */
Printer printer_new(Text *out, const StageKernels *stage, const Kernel *k, const Speech *speech);
char *kernel_title(const Printer *p);
bool pass_needs(Printer *p, int phase, bool *reduces);
void print_block(Printer *p, const char *head, const Text *body);
void scalar_lines(Printer *p, int slot);
void pass_lines(Printer *p, int phase);
void unpack_index(Printer *p, const char *from, int first, int end);
Name load_name(const Printer *p, const Term *t);
bool chunk_uses(const Printer *p, int buffer);
bool chunk_first(const Printer *p);

#endif
