/* The command line, and everything that happens outside pdc's memory: files of the output directory, the C
 * compiler, the profiling run. */
#ifndef PDC_BUILD_H
#define PDC_BUILD_H

#include "pipedream/pipedream.h"
#include "plan/request.h"

#include <sys/types.h>

/* ---- options (options.c) --------------------------------------------------------------------- */

typedef enum {
  COMMAND_BUILD,
  COMMAND_PLAN,
  COMMAND_PROFILE,
  COMMAND_EXPLAIN,
  COMMAND_REPORT,
  COMMAND_CHECKPOINT,
  COMMAND_SHOW,
  COMMAND_FORMAT,
  COMMAND_IMPORT,
  COMMAND_LSP,
  COMMAND_DOCTOR,
  COMMAND_COMPLETION
} Command;
typedef enum {
  EMIT_NOTHING,
  EMIT_AST,
  EMIT_GRAPH,
  EMIT_SHARDING,
  EMIT_KERNELS,
  EMIT_PLAN,
  EMIT_SCHEDULE,
  EMIT_SCHEDULE_SVG,
  EMIT_SOURCE
} EmitWhat;
typedef Vec(const char *) Strings;

typedef struct Model { /* one of several */
  const char *input;
  const char *name; /* --name behind it; NULL: made of its file and its definitions */
  Strings define;   /* those behind it; before the first model they are for all */
} Model;

typedef struct Options {
  Command command;
  const char
      *input; /* the model; explain: the code; report, checkpoint: the directory; NULL: plan a profile of layers */
  const char *output;    /* -o; NULL: named after the model */
  bool compare;          /* plan: schedules beside each other */
  bool report;           /* plan: also a page about it */
  bool table;            /* profile: print kernels beside what the machine allows */
  const char *measured;  /* profile: a file with the profiling program's output, or NULL: run it here */
  int depth;             /* show: of instances; 0: not given */
  const char *svg, *dot; /* show: files for pictures; NULL: none */
  bool check;            /* fmt: only say what differs */
  Strings files;         /* fmt: all that are named */
  bool planned;          /* show: options ask for a plan */
  PlanRequest plan;
  LayersRequest layers;
  Strings define, include;
  const char *name; /* --name that no model stands before: a mistake */
  bool sharp;       /* --sharp: one launch for all of: */
  Vec(Model) models;
  EmitWhat emit;
  const char *dump; /* -d: letters of passes */
  const char *stop_after;
  const char *cc;          /* --cc: may hold arguments, separated by spaces; NULL: the target's own */
  const char *mpicc;       /* --mpicc: MPI's compiler wrapper; NULL: the one that pdc was built with */
  const char *cluster;     /* --cluster: what names it; NULL: none is given */
  const char *arch;        /* --arch: "sm_90"; NULL: this machine's */
  const char *march;       /* --march: "x86-64-v3"; NULL: that of the build */
  bool generate, no_cache; /* --generate: programs that continue token sequences */
  int64_t samples;         /* --samples: so many at once; 0: not given */
  bool infer;              /* --infer: programs that run the model, without what trains it */
  const char *dependent;   /* -MT: what -MD's rule is for; NULL: the sources */
  bool quiet;              /* a build does not say where it is */
  bool sources_only, time_passes, verify_each, verbose, dry_run, syntax_only, dependencies;
} Options;

/* Fills options, or ends the process: 0 after --help and --version, 2 with a usage message. What is known
 * but not in this version is a diagnostic. */
void options_read(Options *o, int argc, char **argv);

/* ---- the output directory (output.c) --------------------------------------------------------- */

typedef struct Toolchain Toolchain;
typedef struct Mpi {
  const char *wrapper;   /* "mpicc"; NULL: none, programs have one rank */
  Strings compile, link; /* words of the compiler's command */
} Mpi;

/* All of one build's texts. Paths of files are DIR/NAME. */
typedef struct Output {
  const char *directory;
  const char *model;     /* base name of the .pdm: names the dependency file */
  const char *launcher;  /* "train", "infer" */
  const char *arguments; /* the least that it needs: "--data PATH" */
  const Toolchain *toolchain;
  int n_stages;
  const int *replicas; /* by stage: its ranks */
  Placement placement;
  char **source; /* by stage */
  const char *plan_json;
  const char *picture; /* of the model and its stages, SVG; NULL: none */
  int lock;            /* while it is built: the directory, opened */
  bool made_directory; /* it was not there */
} Output;

const char *source_name(const Toolchain *t, int stage); /* "stage0.c" */
const char *program_name(int stage);                    /* "stage0" */
/* Where a build stands until all of it is there, DIR/.pdc-new; and a file of it. */
const char *new_directory(const Output *out);
const char *in_new(const Output *out, const char *name);
const char *output_directory(const Options *o); /* -o, else NAME.build, with --infer NAME.infer */
const char *base_name(const char *path);        /* "models/gpt.pdm": "gpt" */
/* Writes sources, plan.json, model.svg, app, train and with -MD the dependency file, all of them beside their places; false after
 * a diagnostic, for one where DIR has files of these names that pdc did not make, or while another pdc builds there.
 * After true one of the next two ends it. */
bool output_write(const Options *o, Output *out);
/* Moves all into place, stage programs too unless `o` wants sources only, and removes what an earlier build made and
 * this one did not; false after a diagnostic, the directory then may lack `train`. */
bool output_install(const Options *o, const Output *out);
/* Removes a folder of files. */
void remove_files(const char *folder);
/* Removes what was written; the directory is as before. */
void output_abandon(const Output *out);

/* ---- what pdc made there (made.c) ------------------------------------------------------------ */

Strings made_read(const char *directory); /* the names that DIR/.pdc-files lists; none where there is no list */
bool made_write(const char *directory, const Strings *made); /* false after a diagnostic */
bool made_has(const Strings *made, const char *name);
void made_add(Strings *made, const char *name);
/* Whether none of the names wanted stands there without being listed; false after a diagnostic. */
bool made_spares(const char *directory, const Strings *made, const Strings *wanted);

/* ---- programs that need not be made again (reuse.c) ------------------------------------------ */

#define reuse_list ".pdc-programs" /* in DIR */
bool reuse_list_exists(const Output *out);
/* What all programs of a build are made of beside their sources and commands: the compiler, the runtime's library and
 * headers, the processor. NULL: it cannot be told, and nothing is taken over. */
const char *reuse_origin(const Options *o, const Output *out);
/* Puts DIR's program of this stage into the new build, if the list says that it was made of the same and it has not
 * changed since; else false. */
bool reuse_program(const Options *o, const Output *out, const char *origin, int stage);
bool reuse_write(const Options *o, const Output *out,
                 const char *origin); /* the list of the new build's programs; false after a diagnostic */

/* ---- commands (command.c; c.c, cuda.c) ------------------------------------------------------- */

/* How a target's programs are compiled and linked. */
struct Toolchain {
  const char *suffix;            /* of sources: "c" */
  const char *(*compiler)(void); /* where --cc names none */
  const char *library;           /* the runtime that programs link: "libpd_runtime.a" */
  const char *folders;           /* first word of its line of runtime/folders */
  /* Adds what follows the compiler's name in the command that makes a program of one source file; false after a
   * diagnostic. */
  bool (*add_command)(Strings *command, const Options *o, const char *source, const char *program);
  /* Adds the command that makes an object file of a source of the runtime; false after a diagnostic. */
  bool (*add_object)(Strings *command, const Options *o, const char *source, const char *object);
  bool expands_names; /* it hands absolute paths to a shell, which runs what stands in them */
  /* Whether what it takes is there: the library of a build folder; elsewhere the compiler. False after a diagnostic;
   * NULL: always. */
  bool (*is_built)(void), (*is_found)(void);
  char *(*version)(char *printed); /* the line of what its --version prints that says which it is */
};
const Toolchain *toolchain_of(const Options *o); /* of --target */

/* A file's name as programs must be given it, so that none takes it for an option or a list of arguments: "./-n.c". */
const char *as_path(const char *name);
void add_words(Strings *command, const char *words); /* that spaces separate */
void add_all(Strings *command, const char *const *words, size_t n);
/* The compiler's name and what --cc says with it. */
Strings compiler_command(const Options *o, const Toolchain *t);
/* What makes a program of one source file. */
Strings compile_command(const Options *o, const Toolchain *t, const char *source, const char *program);
bool can_compile(const Options *o, const Toolchain *t); /* may compile the runtime; false after a diagnostic */
/* Of c.c, for what both targets' runtimes have in C: what follows the compiler's name. */
void add_c_object(Strings *command, const Mpi *mpi, const char *source, const char *object);
extern const Toolchain c_toolchain, cuda_toolchain;

/* What keeps an overrun of memory from running other code; no bit depends on either (docs/internals/architecture.md, "Hardening"). The
 * second is the linker's. */
#define STACK_PROTECTOR "-fstack-protector-strong"
#define READ_ONLY_TABLES "-z,relro,-z,now"

/* ---- processors (march.c) --------------------------------------------------------------------- */

/* The compiler's flag for --march's argument; NULL: for what pdc was built for, which is mostly this machine. */
const char *march_flag(const char *march);
/* Before anything is asked of oneDNN: has it plan for those processors; false after a diagnostic. */
bool march_prepare(const Options *o);

/* ---- MPI (mpi.c) ----------------------------------------------------------------------------- */

/* What --mpicc's wrapper or the one that pdc was built with says; one without wrapper for programs of one rank. NULL
 * after a diagnostic. Asked once. */
const Mpi *mpi_of(const Options *o);
/* mpirun of the MPI that the wrapper is of: mpicc.mpich's is mpirun.mpich. */
const char *mpi_launcher(const Mpi *mpi);

/* ---- the runtime (library.c) ----------------------------------------------------------------- */

/* pdc runs from a folder that CMake builds in, and is not installed. */
bool in_build_folder(void);
/* Whether programs link the build folder's library: pdc runs from one, and is asked for no other MPI or processor. */
bool links_build_folder(const Options *o);
/* The library that programs link: the build folder's; else, that of the user's cache for this machine's processor or
 * --march's, compilers and MPI. NULL after a diagnostic. */
const char *library_path(const Options *o, const Toolchain *t);
/* Compiles the library into the cache where it is not there; false after a diagnostic. */
bool library_make(const Options *o, const Toolchain *t);

/* ---- the user's cache (cache.c) --------------------------------------------------------------- */

const char *cache_directory(void);         /* where the user's programs keep what can be made again */
bool cache_cannot_write(const char *path); /* PD0605, of errno; false */
/* Makes the folder where it is not there; false after a diagnostic, also where other users can write there. */
bool cache_open(void);
typedef enum { CACHE_LACKS, CACHE_HAS, CACHE_REFUSED } CacheEntry;
/* Whether a folder of the cache has a file that only this user can have written; CACHE_REFUSED after a diagnostic. */
CacheEntry cache_find(const char *folder, const char *file);

const char *nvcc_path(void); /* of cuda.c; NULL where there is none */

/* ---- several models (sharp.c) ------------------------------------------------------------------ */

typedef struct ModelBuilt {
  double seconds; /* of an update, predicted */
  int64_t bytes;  /* of its process */
  int parts;
} ModelBuilt;
typedef bool BuildModel(const Options *o, ModelBuilt *built); /* one; false after diagnostics */
/* Builds all of o->models, and the program of the ranks that they take turns on; false after diagnostics. */
bool sharp_build(const Options *o, BuildModel *build);

/* ---- pages (explain.c) ------------------------------------------------------------------------ */

/* Prints the page of a diagnostic, PD0301, or what a layer or a primitive does; false after a diagnostic. */
bool explain_name(const char *name, FILE *out);
Strings layer_names(void); /* layers' and primitives', as docs/reference/layers.md has them */

/* ---- manual and completions (manual.c) ------------------------------------------------------- */

/* Prints a shell's completion, bash, zsh or fish, or the manual page, man. */
bool is_completion(const char *shell);
bool print_completion(const char *shell);

/* ---- this machine (doctor.c) ----------------------------------------------------------------- */

/* Prints what was found of all that pdc needs and tries it, a small model from text to training included; false where
 * models cannot be built. */
bool doctor(const Options *o);
void print_version(void); /* pdc's, and what it stands on */

/* ---- running compilers (cc.c) ---------------------------------------------------------------- */

/* Compiles the stages, beside their places, several at a time, but for those whose programs DIR has already; false after
 * diagnostics. With -### prints the commands only. */
bool cc_stages(const Options *o, const Output *out);
int cc_at_once(void); /* programs that are made at a time */
/* Starts a command without a shell; `out`: where its standard output goes, -1: unchanged. -1 after a diagnostic. */
pid_t command_start(const Strings *command, int out);
/* Waits for it; false after a diagnostic, in which `what` failed, unless it ended with 0. */
bool command_finish(pid_t pid, const char *what);
/* All of its standard output; NULL after a diagnostic. */
char *command_output(const Strings *command, const char *what);
/* The line of the compiler's --version that says which it is; NULL after a diagnostic. */
const char *cc_version(const Options *o, const Toolchain *t);
/* Compiles and runs the profiling program; its output, or with --measured that file. NULL after a diagnostic. */
char *cc_run(const Options *o, const char *text);

#endif
