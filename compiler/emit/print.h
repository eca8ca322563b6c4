/* Private to compiler/emit: names, loops, calls, and the state that the parts of a stage's file share. */
#ifndef PDC_EMIT_PRINT_H
#define PDC_EMIT_PRINT_H

#include "emit/emit.h"
#include "ops/expression.h"

enum { WIDTH = 110 }; /* columns of emitted lines */

/* ---- names.c: whatever comes from a .pdm becomes harmless C text ----------------------------- */

typedef Vec(Name) Names;
Name c_identifier(const char *text); /* [A-Za-z0-9_], no keyword, no name of ours or the library's */
Name unique_name(Names *taken, const char *wanted); /* sanitised, made unique, added to taken */
/* The same for a kernel or its object at file scope: no header declares the name, and what programs derive from it
 * (run_NAME, NAME_sums) is free, too. */
Name unique_kernel_name(Names *taken, const char *wanted);
/* reserved.c: sorted names that headers declare at file scope, and lower-case macros, which are reserved everywhere. */
typedef struct ReservedNames {
  const char *const *at;
  size_t n;
} ReservedNames;
extern const ReservedNames declared_by_headers, macros_of_headers;
char *comment_text(const char *text);   /* cannot end a comment */
char *string_literal(const char *text); /* quoted */
char *float_literal(double x);          /* "0.100000001f" */
char *double_literal(double x);
char *dims_text(int rank, const int64_t *dim); /* "[4, 128, 256]" */
/* head + items separated by ", " + tail, broken at WIDTH and continued `indent` columns in. */
void text_list(Text *out, int indent, const char *head, const Names *items, const char *tail);
/* A block comment of one paragraph, broken at WIDTH. */
void text_comment(Text *out, int indent, const char *paragraph);

/* ---- dialect_c.c, dialect_cuda.c: where C and CUDA programs differ ---------------------------- */

/* Texts of the program that times kernels (profile.c). */
typedef struct TimingDialect {
  const char *preamble; /* includes, `memory`, fill_tokens() and fill_floats(), in passes fill_spread() */
  const char *now;      /* declares what loops read of the current microbatch, where some do */
  bool in_passes;       /* whole passes are timed, and `kernels` have no buffers of their own */
  /* Behind the table `kernels`: double seconds_of(size_t kernel). In passes also the structs step and size, before
   * the tables of them. */
  const char *measuring;
  /* The functions that `end` calls, for what is timed beside kernels: the task's update, in these bytes of memory, rates,
   * the link to the host. */
  void (*print_beside)(Text *out, const ProfileTask *task, int64_t bytes);
  /* The lines of main() before the first kernel is set up. */
  void (*print_start)(Text *out, const ProfileTask *task, int64_t bytes, bool reads_now);
  const char *before, *each,
      *end; /* those before the first kernel's line is printed, behind each, behind the last */
} TimingDialect;

typedef struct Dialect {
  const char *target; /* in the header comment; NULL: the processor at hand */
  const char *includes;
  const char *in_bf16;       /* of programs in bf16, in front of the includes; NULL: nothing */
  bool compound_literals;    /* a struct's value as an argument is (struct x){..}; else {..} */
  const char *caller;        /* of passes, with their arguments; NULL: they are called directly */
  const char *null;          /* a pointer that a library call is given */
  const char *now;           /* what loops read of the current microbatch and of the run: a declaration ... */
  const char *at;            /* ... the line that sets it before a pass ... */
  bool at_says_training;     /* ... and must be there in validation, too ... */
  const char *word[N_WORDS]; /* what stands for such a word: WORD_SAMPLE for the microbatch's first; NULL for
                                     indices and keys, which each loop has of its own */
  bool takes_algorithms;     /* of products, from the plan */
  void (*print_loop)(Text *out, const StageKernels *k, const Lowered *kernel, const char *function);
  void (*print_loop_call)(Text *out, int indent, const StageKernels *k, const Lowered *kernel,
                          const char *function, const Names *arguments);
  TimingDialect timing;
} Dialect;
const Dialect *dialect_of(const StageKernels *k);
const char *text_of_precision(const Dialect *d, Precision precision); /* in front of the includes */

/* ---- Kernels of kind LOOP: static C functions (loops.c), CUDA kernels (cuda_loops.c) ----------- */

void c_print_loop(Text *out, const StageKernels *stage, const Lowered *kernel, const char *function);
/* The call: directly, or dealt to threads through the macro PD_PARALLEL. */
void c_print_loop_call(Text *out, int indent, const StageKernels *stage, const Lowered *kernel,
                       const char *function, const Names *arguments);
void cuda_print_loop(Text *out, const StageKernels *stage, const Lowered *kernel, const char *function);
void cuda_print_loop_call(Text *out, int indent, const StageKernels *stage, const Lowered *kernel,
                          const char *function, const Names *arguments);

/* ---- calls.c: Kernels of kind CALL ----------------------------------------------------------- */

/* Text of the pointer to a buffer's first element, in the function being printed. */
typedef Name (*BufferText)(void *context, int buffer);
/* File-scope objects a call needs ("static struct pd_matmul *c_fc;"), and their making in setup(). The
 * same objects serve all kernels of one signature; `object` is their name. False: it needs none. */
bool print_call_object(Text *out, const Lowered *kernel, const char *object);
bool print_call_setup(Text *out, const Dialect *dialect, const Lowered *kernel, const char *object);
void print_call(Text *out, int indent, const Dialect *dialect, const Lowered *kernel, const char *object,
                BufferText text, void *context);

/* ---- the state of one stage's file ----------------------------------------------------------- */

typedef struct Function {
  Name signature, name;
} Function;
/* The structs that regions are parts of. */
enum { IN_WEIGHTS, IN_FROZEN, IN_GRADIENTS, IN_SAVED, IN_KEPT, IN_DEFERRED, IN_MASTERS, N_STRUCTS };

typedef struct Emit {
  const Graph *g;
  const Pieces *pieces;
  const Plan *plan;
  const LoweredStage *lowered;
  const StageKernels *k; /* its kernels */
  const Program *p;
  const Allocation *allocation;
  const Dialect *dialect;
  const Identity *identity;
  const char *plan_hash;
  Text out;
  Names taken;             /* identifiers at file scope */
  Vec(Function) functions; /* by kernel signature */
  int *family;             /* by region: the region whose functions it is called through; -1: inline */
  Name *prefix;            /* by region that has functions: "h" */
  Name *member;            /* by buffer: its member in the struct it is part of */
  Name *path[N_STRUCTS];   /* by region: its struct within weights, gradients ..: "h[0]"; NULL: none */
  Name *type[N_STRUCTS];   /* by region that has functions: "struct h_weights" */
  Name gradients_type;     /* "struct weights" when they look alike */
  Name state_type;         /* of masters and moments: "struct weights", unless those are rounded */
} Emit;

/* ---- header.c */
void print_header(Emit *e);

/* ---- memory.c */
void name_members(Emit *e);
void name_paths(Emit *e); /* after find_families */
/* The members of a region's part of a struct (IN_WEIGHTS ..), a declaration a line; "" where it has none. */
char *region_members(const Emit *e, int which, int region, int indent);
void print_structs(Emit *e);
bool in_workspace(const Emit *e, const Buffer *b);                /* placed by offset, not as a struct's member */
const char *own_moment_member(const Emit *e, const OwnMoment *m); /* within struct own_moments */
Name member_path(const Emit *e, int buffer); /* "h[0].ln_1_weight" within its section's struct */
int struct_of(BufferKind kind);              /* IN_WEIGHTS .. IN_DEFERRED; -1 */
/* Of kinds of which every chunk has its own: the arena's member, its struct, its constant for the number of
 * slots: "saved", "struct saved", "SAVED_SLOTS"; among several chunks "saved_1" ..., but for a number of slots that
 * all have in common. */
Name chunk_member(const Emit *e, BufferKind kind, int chunk);
Name chunk_struct(const Emit *e, BufferKind kind, int chunk);
Name chunk_slots(const Emit *e, BufferKind kind, int chunk);
/* Whether values of the kind cross from one of this rank's parts to another, and do not travel to other ranks: then
 * what sends them writes where the other reads. */
bool is_between(const Emit *e, BufferKind kind, int chunk);
typedef struct ChunkBuffers {
  BufferKind kind;
  int chunk;
} ChunkBuffers;
ChunkBuffers reader_between(BufferKind kind, int chunk);
void print_slot_constants(Emit *e);
int64_t workspace_offset(const Emit *e, int buffer);
char *array_text(const Emit *e, const Buffer *b);    /* "MICROBATCH * 128 * 256", of 64 bits where it has to be */
char *array_comment(const Emit *e, const Buffer *b); /* the same for a person */
const char *element_type(const Buffer *b);           /* "float" */
bool has_masters(const Emit *e);
bool is_sharded(const Emit *e); /* its replicas keep a part of the optimizer's state each */

/* ---- regions.c */
void find_families(Emit *e); /* after name_members: what shares functions has structs with the same members */
void print_loops_and_objects(Emit *e);
void print_setup(Emit *e);
void print_region_functions(Emit *e);
/* What one function computes of one turn: forward, backward, or the weights' gradients that DO_WEIGHTS makes,
 * of one chunk. */
typedef struct Pass {
  PassKind kind;
  int chunk;
} Pass;
Name pass_name(const Emit *e, Pass pass); /* "forward_pass"; among several chunks "forward_pass_1" */
void print_pass(Emit *e, Pass pass);
/* What a pass is called with: whether the microbatch is a batch's first, then the structs of these BufferKinds. */
typedef struct PassParameters {
  bool first;
  Ints kinds;
} PassParameters;
PassParameters pass_parameters(const Emit *e, Pass pass);
bool backward_writes_saved(const Emit *e, int first, int end);
bool pass_uses(const Emit *e, Pass pass, BufferKind kind);
bool pass_reads_now(const Emit *e, Pass pass);

/* ---- emit.c */
/* A line of the program's enum; comment NULL: none. */
void print_constant(Emit *e, const char *name, int64_t value, const char *comment);

/* ---- identity.c */
void identity_tables(Emit *e);
void identity_fields(Emit *e); /* of struct pd_stage */
void traits_table(Emit *e);    /* nothing where the model has none, as below */
void traits_field(Emit *e);

/* ---- parameters.c */
Name shape_fields(const Shape *shape); /* ".dim = {256, 768}, .rank = 2" */
/* A field that is a list of numbers, on lines of its own; nothing for an empty one. */
void list_field(Emit *e, const char *name, const char *type, const Names *list, const char *tail);
void parameter_table(Emit *e);
void spilled_parameter_table(Emit *e);
void moment_table(Emit *e); /* all moments, by parameter, where some have shapes of their own */

/* ---- tensors.c */
int tensor_table(Emit *e); /* returns the number of its rows; 0: none is printed */
void part_table(Emit *e);

/* ---- tables.c */
void print_tables(Emit *e);
int stage_of_node(const Emit *e, int forward_node);

#endif
