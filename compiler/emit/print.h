/* Private to compiler/emit: names, loops, calls, and the state of a stage's file. */
#ifndef PDC_EMIT_PRINT_H
#define PDC_EMIT_PRINT_H

#include "emit/emit.h"
#include "ops/expression.h"

enum { WIDTH = 110 }; /* columns of emitted lines */

/* ---- names.c: turns any text of a .pdm into harmless C text ------------------------------------- */

typedef Vec(Name) Names;
Name c_identifier(const char *text); /* [A-Za-z0-9_], not a keyword, not a name of the runtime or the library */
Name unique_name(Names *taken, const char *wanted); /* sanitised, made unique, added to taken */
/* A unique name for a kernel or its object at file scope. No header declares it, and the names derived from it
 * (run_NAME, NAME_sums) are free. */
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

/* ---- dialect_c.c, dialect_cuda.c: differences between C and CUDA programs ------------------------ */

/* Texts of the program that times kernels (profile.c). */
typedef struct TimingDialect {
  const char *preamble; /* includes, `memory`, fill_tokens() and fill_floats(); in passes also fill_spread() */
  const char *now;      /* declares the current microbatch's state, if some loop reads it */
  bool in_passes;       /* times whole passes; `kernels` have no buffers of their own */
  /* Text after the table `kernels`: double seconds_of(size_t kernel). In passes also the structs step and size,
   * before their tables. */
  const char *measuring;
  /* Prints the functions that `end` calls: the task's update, within these bytes of memory, rates, the link to the
   * host. */
  void (*print_beside)(Text *out, const ProfileTask *task, int64_t bytes);
  /* Prints the lines of main() before the setup of the first kernel. */
  void (*print_start)(Text *out, const ProfileTask *task, int64_t bytes, bool reads_now);
  const char *before, *each, *end; /* lines before the first kernel's result, after each result, after the last */
} TimingDialect;

typedef struct Dialect {
  const char *target; /* in the header comment; NULL: the local processor */
  const char *includes;
  const char *in_bf16;    /* text before the includes of programs in bf16; NULL: none */
  bool compound_literals; /* a struct's value as an argument is (struct x){..}; else {..} */
  const char *caller;     /* calls passes with their arguments; NULL: direct calls */
  const char *zero;       /* the statement that fills memory with zeros: a pointer, bytes ("%s", "%lld") */
  /* the statement in a loop over rows that skips row t if it is unused: the rows' sequences, their number ("%s",
   * "%lld"); NULL: the host does not see the rows */
  const char *unused_row;
  const char *null;      /* a null pointer argument of a library call */
  const char *now;       /* declares the current microbatch's and the run's state that loops read */
  const char *at;        /* sets that state before a pass */
  bool at_says_training; /* validation needs `at`, too */
  /* the text of a word, such as WORD_SAMPLE for the microbatch's first; NULL for indices and keys, which each
   * loop has of its own */
  const char *word[N_WORDS];
  bool takes_algorithms; /* of products and attention, from the plan */
  void (*print_loop)(Text *out, const StageKernels *k, const Lowered *kernel, const char *function);
  void (*print_loop_call)(Text *out, int indent, const StageKernels *k, const Lowered *kernel,
                          const char *function, const Names *arguments);
  TimingDialect timing;
} Dialect;
const Dialect *dialect_of(const StageKernels *k);
const char *text_of_precision(const Dialect *d, Precision precision); /* before the includes */

/* ---- Kernels of kind LOOP: static C functions (loops.c), CUDA kernels (cuda_loops.c) ----------- */

void c_print_loop(Text *out, const StageKernels *stage, const Lowered *kernel, const char *function);
/* Prints the call: directly, or divided among threads by the macro PD_PARALLEL. */
void c_print_loop_call(Text *out, int indent, const StageKernels *stage, const Lowered *kernel,
                       const char *function, const Names *arguments);
void cuda_print_loop(Text *out, const StageKernels *stage, const Lowered *kernel, const char *function);
void cuda_print_loop_call(Text *out, int indent, const StageKernels *stage, const Lowered *kernel,
                          const char *function, const Names *arguments);

/* ---- calls.c: Kernels of kind CALL ----------------------------------------------------------- */

/* Text of the pointer to a buffer's first element, in the function being printed. */
typedef Name (*BufferText)(void *context, int buffer);
/* Prints the objects of a call ("static struct pd_matmul *c_fc;", without `static` as members of a library's instance) and
 * their construction in setup(). All kernels of one signature share the objects; `object` is their name. False: there are
 * none. */
bool print_call_object(Text *out, const Lowered *kernel, const char *object, bool member);
/* Whether the object is constructed: in a library, instances have their own. */
bool call_is_constructed(const Lowered *kernel);
bool print_call_setup(Text *out, const Dialect *dialect, const Lowered *kernel, const char *object);
void print_call(Text *out, int indent, const Dialect *dialect, const Lowered *kernel, const char *object,
                BufferText text, void *context);

/* ---- scan.c: loops over time --------------------------------------------------------------------- */

/* A kernel that is printed once. */
typedef struct KernelText {
  const StageKernels *stage; /* it is one of these kernels */
  const Lowered *kernel;
  Name name, wanted; /* its identifier, and the one that it gets if no other has it */
} KernelText;
typedef Vec(KernelText) KernelTexts;
/* Adds a stage's kernels of distinct signatures, without names; the kernels of a scan's body precede the scan. within: of a
 * body, the scan's name; NULL: none. */
void collect_kernels(const LoweredStage *s, Name within, KernelTexts *to);
/* Whether the call uses objects that setup() constructs, or calls kernels that do. */
bool kernel_takes_instance(const Lowered *kernel);
typedef struct ScanTexts {
  const Dialect *dialect;
  Name library;                                                 /* as in Emit */
  bool progress;                                                /* long loops advance the program's messages */
  const Names *taken;                                           /* identifiers at file scope */
  Name (*function)(const void *context, const Lowered *kernel); /* a kernel's function or object */
  const void *context;
} ScanTexts;
/* Prints the function of a scan, one of the kernels of `stage`. */
void print_scan(Text *out, const ScanTexts *texts, const StageKernels *stage, const Lowered *kernel,
                const char *function);
/* Prints a call of any kind. `object`: as of print_call, of a scan its function. */
void print_kernel_call(Text *out, int indent, const Dialect *dialect, const Lowered *kernel, const char *object,
                       BufferText text, void *context, bool library);

/* ---- the state of one stage's file ----------------------------------------------------------- */

typedef struct Function {
  Name signature, name;
} Function;
/* The structs that contain regions' structs. */
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
  Name library; /* of a library: the instance's struct, "gpt_mini", which functions take as `m`; NULL: a program */
  Text members; /* of a library: of that struct, the objects of kernels */
  Text out;
  Names taken;             /* identifiers at file scope */
  Vec(Function) functions; /* by kernel signature */
  int *family;             /* by region: the region whose functions it calls; -1: inline */
  Name *prefix;            /* by region with functions: "h" */
  Name *member;            /* by buffer: its member in the struct it is part of */
  Name *path[N_STRUCTS];   /* by region: its struct within weights, gradients ..: "h[0]"; NULL: none */
  Name *type[N_STRUCTS];   /* by region with functions: "struct h_weights" */
  Name gradients_type;     /* "struct weights" if the structs are equal */
  Name state_type;         /* of masters and moments: "struct weights", unless weights are rounded */
} Emit;

/* ---- header.c */
void print_header(Emit *e);

/* ---- memory.c */
void name_members(Emit *e);
void name_paths(Emit *e); /* after find_families */
/* The members of a region's part of a struct (IN_WEIGHTS ..), a declaration a line; "" if it has none. */
char *region_members(const Emit *e, int which, int region, int indent);
void print_structs(Emit *e);
bool in_workspace(const Emit *e, const Buffer *b);                /* placed by offset, not by a struct's member */
const char *own_moment_member(const Emit *e, const OwnMoment *m); /* within struct own_moments */
Name member_path(const Emit *e, int buffer); /* "h[0].ln_1_weight" within its section's struct */
int struct_of(BufferKind kind);              /* IN_WEIGHTS .. IN_DEFERRED; -1 */
/* The arena's member, its struct and its slot constant of a kind that each chunk has: "saved", "struct saved",
 * "SAVED_SLOTS". With several chunks "saved_1" ..., except that equal slot counts share one constant. */
Name chunk_member(const Emit *e, BufferKind kind, int chunk);
Name chunk_struct(const Emit *e, BufferKind kind, int chunk);
Name chunk_slots(const Emit *e, BufferKind kind, int chunk);
/* Whether values of the kind go from one of this rank's parts to another, without a message. The sender then
 * writes into the reader's slot. */
bool is_between(const Emit *e, BufferKind kind, int chunk);
typedef struct ChunkBuffers {
  BufferKind kind;
  int chunk;
} ChunkBuffers;
ChunkBuffers reader_between(BufferKind kind, int chunk);
void print_slot_constants(Emit *e);
int64_t workspace_offset(const Emit *e, int buffer);
char *array_text(const Emit *e, const Buffer *b);    /* "MICROBATCH * 128 * 256", in 64 bits if necessary */
char *array_comment(const Emit *e, const Buffer *b); /* the shape in a comment */
const char *element_type(const Buffer *b);           /* "float" */
bool has_masters(const Emit *e);
bool is_sharded(const Emit *e); /* each replica keeps a shard of the optimizer's state */

/* ---- measured.c: the tables of algorithms and engines before setup(), and its statements that read them */

void print_measured(Emit *e);
void use_measured(Emit *e);

/* ---- regions.c */
void find_families(Emit *e); /* after name_members: regions that share functions have structs with equal members */
void print_loops_and_objects(Emit *e);
void print_setup(Emit *e);
void print_region_functions(Emit *e);
/* One function's part of a turn: forward, backward, or the weight gradients of DO_WEIGHTS, for one chunk. */
typedef struct Pass {
  PassKind kind;
  int chunk;
} Pass;
Name pass_name(const Emit *e, Pass pass); /* "forward_pass"; with several chunks "forward_pass_1" */
void print_pass(Emit *e, Pass pass);
/* The parameters of a pass: whether the step has new samples, for kernels that run once; whether the microbatch is a
 * batch's first; then the structs of these BufferKinds. */
typedef struct PassParameters {
  bool encodes, first;
  Ints kinds;
} PassParameters;
PassParameters pass_parameters(const Emit *e, Pass pass);
bool backward_writes_saved(const Emit *e, int first, int end);
bool pass_uses(const Emit *e, Pass pass, BufferKind kind);
bool pass_reads_now(const Emit *e, Pass pass);

/* ---- library.c: the parts that differ from programs */
void library_names(Emit *e);     /* reserves them at file scope */
void library_functions(Emit *e); /* one microbatch, the model, and the functions of the header */
char *library_header(const Emit *e);

/* ---- emit.c */
/* A line of the program's enum; comment NULL: none. */
void print_constant(Emit *e, const char *name, int64_t value, const char *comment);

/* ---- identity.c */
void identity_tables(Emit *e);
void identity_fields(Emit *e); /* of struct pd_stage */
void traits_table(Emit *e);    /* prints nothing without traits, as does traits_field() */
void traits_field(Emit *e);

/* ---- parameters.c */
Name shape_fields(const Shape *shape); /* ".dim = {256, 768}, .rank = 2" */
/* A field that is a list of numbers, on separate lines; nothing for an empty list. */
void list_field(Emit *e, const char *name, const char *type, const Names *list, const char *tail);
void parameter_table(Emit *e);
void spilled_parameter_table(Emit *e);
void moment_table(Emit *e); /* all moments, by parameter, if some have shapes of their own */

/* ---- tensors.c */
int tensor_table(Emit *e); /* returns the number of its rows; 0: none is printed */
void part_table(Emit *e);

/* ---- tables.c */
void print_tables(Emit *e);
void input_line(Emit *e, int input, int from, bool predicts); /* from: its source's index in the table */
void prediction_table(Emit *e);
void generation_table(Emit *e);
int input_buffer(const Emit *e, int value); /* -1: no kernel reads the input */
bool *inputs_of_outputs(const Graph *g);    /* by input: whether an output depends on it */
int stage_of_node(const Emit *e, int forward_node);

#endif
