/* The command line, and all work outside pdc's memory: files of the output directory, the C compiler, the
 * profiling run. */
#ifndef PDC_BUILD_H
#define PDC_BUILD_H

#include "elaborate/elaborate.h"
#include "pipedream/pipedream.h"
#include "plan/request.h"
#include "tokenize/tokenize.h"

#include <sys/types.h>

/* ---- options (options.c) --------------------------------------------------------------------- */

typedef enum {
  COMMAND_BUILD,
  COMMAND_PLAN,
  COMMAND_PROFILE,
  COMMAND_TOKENIZE,
  COMMAND_DATA,
  COMMAND_EXPLAIN,
  COMMAND_REPORT,
  COMMAND_CHECKPOINT,
  COMMAND_SHOW,
  COMMAND_FORMAT,
  COMMAND_IMPORT,
  COMMAND_MERGE,
  COMMAND_EXPORT,
  COMMAND_LSP,
  COMMAND_DOCTOR,
  COMMAND_COMPLETION,
  COMMAND_HELP
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
  const char *name; /* --name after the model; NULL: derived from its file and its definitions */
  Strings define;   /* -D after the model; -D before the first model are for all */
} Model;

typedef struct Options {
  Command command;
  const char
      *input; /* the model; explain: the code; report, checkpoint: the directory; NULL: plan a layer profile */
  const char *output;     /* -o; NULL: named after the model */
  bool compare;           /* plan: a table of all schedules */
  bool report;            /* plan: also an HTML page */
  bool table;             /* profile: print kernels and the machine's limits */
  const char *measured;   /* profile: a file with the profiling program's output, or NULL: run it here */
  int depth;              /* show: nesting depth; 0: not given */
  const char *svg, *dot;  /* show: files for pictures; NULL: none */
  bool check;             /* fmt: report differences, change no file */
  Strings files;          /* fmt, tokenize, data: files; merge: folders; completion, help: words */
  TokenizeRequest tokens; /* tokenize: options other than files, output, threads and quiet */
  const char *shown_data; /* data: the first file of --show */
  const char *first_line; /* data: a text; NULL: not given */
  const char *data_page;  /* data: the page of --html; NULL: none */
  bool planned;           /* show: an option needs a plan */
  PlanRequest plan;
  LayersRequest layers;
  Strings define, include;
  Lora *lora;       /* --lora; NULL: no adapters */
  const char *name; /* --name before the first model: an error, unless of pdc library */
  bool sharp;       /* --sharp: one launch for all of: */
  Vec(Model) models;
  EmitWhat emit;
  const char *dump; /* -d: letters of passes */
  const char *stop_after;
  const char *cc;          /* --cc: may hold arguments, separated by spaces; NULL: the target's own */
  const char *mpicc;       /* --mpicc: MPI's compiler wrapper; NULL: the one that pdc was built with */
  const char *cluster;     /* --cluster: name or file; NULL: none */
  const char *arch;        /* --arch: "sm_90"; NULL: this machine's */
  const char *march;       /* --march: "x86-64-v3"; NULL: that of the build */
  bool generate, no_cache; /* --generate: programs that continue token sequences */
  int64_t samples;         /* --samples: sequences at the same time; 0: not given */
  bool gguf;               /* of pdc export */
  int export_type;         /* index of --type's choices */
  int64_t block;           /* --block: positions of a prompt in a step; 0: not given */
  bool infer;              /* --infer: programs for inference */
  bool library;            /* pdc library: of inference, or with --generate of generation */
  const char *dependent;   /* -MT: target of -MD's rule; NULL: the sources */
  bool quiet;              /* print no message after a build */
  bool sources_only, time_passes, verify_each, verbose, dry_run, syntax_only, dependencies;
} Options;

/* Fills options, or ends the process: status 0 after --help and --version, 2 after a usage error. Some errors are
 * diagnostics: check error_count(). */
void options_read(Options *o, int argc, char **argv);

/* ---- the output directory (output.c) --------------------------------------------------------- */

typedef struct Toolchain Toolchain;
typedef struct Mpi {
  const char *wrapper;   /* "mpicc"; NULL: none, programs have one rank */
  Strings compile, link; /* words of the compiler's command */
} Mpi;

/* A file beside those of stages. */
typedef struct OutputFile {
  const char *name, *text; /* text NULL: compiled */
} OutputFile;

/* All of one build's texts. Paths of files are DIR/NAME. */
typedef struct Output {
  const char *directory;
  const char *model;     /* base name of the model: names the dependency file */
  const char *launcher;  /* "train", "infer"; NULL: a library, which has no stages */
  const char *arguments; /* required arguments, for messages: "--data PATH" */
  const Toolchain *toolchain;
  int n_stages;
  const int *replicas; /* ranks by stage */
  Placement placement;
  char **source; /* by stage */
  const OutputFile *file;
  int n_files;
  const char *plan_json;
  const char *picture; /* of the model and its stages, SVG; NULL: none */
  int lock;            /* file descriptor of the locked directory */
  bool made_directory; /* pdc created the directory */
} Output;

const char *source_name(const Toolchain *t, int stage); /* "stage0.c" */
const char *program_name(int stage);                    /* "stage0" */
/* The directory of an unfinished build, DIR/.pdc-new; and a file in it. */
const char *new_directory(const Output *out);
const char *in_new(const Output *out, const char *name);
const char *output_directory(const Options *o); /* -o, or NAME.build; with --infer NAME.infer */
const char *base_name(const char *path);        /* "models/gpt.pdm": "gpt"; of a folder its name */
/* Quotes a path for a shell, with '?' in place of control characters. */
const char *shell_quoted(const char *path);
/* Writes sources, plan.json, model.svg, app, train and with -MD the dependency file into DIR/.pdc-new. False after
 * a diagnostic, such as for files of these names that pdc did not create, or if another pdc builds in DIR. After
 * true, the caller must call output_install() or output_abandon(). */
bool output_write(const Options *o, Output *out);
/* Moves all files to DIR, including stage programs unless `o` wants sources only, and removes files of earlier
 * builds that are absent from this build. False after a diagnostic; DIR may then lack `train`. */
bool output_install(const Options *o, const Output *out);
/* Removes a folder of files. */
void remove_files(const char *folder);
/* Removes the unfinished build; DIR is unchanged. */
void output_abandon(const Output *out);

/* ---- pdc's files in the output directory (made.c) ----------------------------------------------------------- */

Strings made_read(const char *directory);                    /* names in DIR/.pdc-files; empty without the file */
bool made_write(const char *directory, const Strings *made); /* false after a diagnostic */
bool made_has(const Strings *made, const char *name);
void made_add(Strings *made, const char *name);
/* Whether every existing wanted name is listed; false after a diagnostic. */
bool made_spares(const char *directory, const Strings *made, const Strings *wanted);

/* ---- reuse of compiled programs (reuse.c) ------------------------------------------ */

#define reuse_list ".pdc-programs" /* in DIR */
bool reuse_list_exists(const Output *out);
/* Identity of the common inputs of all programs of a build: compiler, runtime library and headers, processor.
 * NULL: unknown, so no program is reused. */
const char *reuse_origin(const Options *o, const Output *out);
/* Copies DIR's program of this stage into the new build if its inputs are the same and the program is unchanged;
 * else false. */
bool reuse_program(const Options *o, const Output *out, const char *origin, int stage);
bool reuse_write(const Options *o, const Output *out,
                 const char *origin); /* the list of the new build's programs; false after a diagnostic */

/* ---- commands (command.c; c.c, cuda.c) ------------------------------------------------------- */

/* How a target's programs are compiled and linked. */
struct Toolchain {
  const char *suffix;            /* of sources: "c" */
  const char *(*compiler)(void); /* without --cc */
  const char *library;           /* the runtime that programs link: "libpd_runtime.a" */
  const char *folders;           /* first word of its line of runtime/folders */
  /* Adds the arguments that compile and link one source file, after the compiler's name; false after a
   * diagnostic. */
  bool (*add_command)(Strings *command, const Options *o, const char *source, const char *program);
  /* Adds the command that compiles an object file of the runtime; false after a diagnostic. */
  bool (*add_object)(Strings *command, const Options *o, const char *source, const char *object);
  bool expands_names; /* it passes absolute paths to a shell, which expands them */
  /* Whether the runtime library of a build folder, or the compiler, exists. False after a diagnostic; NULL: always
   * true. */
  bool (*is_built)(void), (*is_found)(void);
  char *(*version)(char *printed); /* the version line in the output of --version */
};
const Toolchain *toolchain_of(const Options *o); /* of --target */

/* A file name that no program mistakes for an option or a list of arguments, such as "./-n.c". */
const char *as_path(const char *name);
void add_words(Strings *command, const char *words); /* words separated by spaces */
void add_all(Strings *command, const char *const *words, size_t n);
/* The compiler's name and the arguments of --cc. */
Strings compiler_command(const Options *o, const Toolchain *t);
/* The command that compiles and links one source file. */
Strings compile_command(const Options *o, const Toolchain *t, const char *source, const char *program);
bool can_compile(const Options *o,
                 const Toolchain *t); /* may compile the runtime library; false after a diagnostic */
void add_c_flags(Strings *command, const Options *o); /* of emitted C, which determine bits (c.c) */
/* Adds the arguments that compile a C source of either target's runtime (c.c). */
void add_c_object(Strings *command, const Mpi *mpi, const char *source, const char *object);
extern const Toolchain c_toolchain, cuda_toolchain;

/* Hardening against buffer overruns, without influence on results (docs/internals/architecture.md, "Hardening").
 * The second is a linker flag. */
#define STACK_PROTECTOR "-fstack-protector-strong"
#define READ_ONLY_TABLES "-z,relro,-z,now"

/* ---- processors (march.c) --------------------------------------------------------------------- */

/* The compiler's flags for --march's argument; NULL: the processor that pdc was built for. */
void add_march(Strings *command, const char *march);
/* Makes oneDNN plan for those processors; call before any use of oneDNN. False after a diagnostic. */
bool march_prepare(const Options *o);

/* ---- MPI (mpi.c) ----------------------------------------------------------------------------- */

/* MPI by the wrapper of --mpicc or of pdc's own build; without a wrapper for programs of one rank. NULL after a
 * diagnostic. Cached. */
const Mpi *mpi_of(const Options *o);
/* mpirun of the wrapper's MPI: mpirun.mpich for mpicc.mpich. */
const char *mpi_launcher(const Mpi *mpi);

/* ---- the runtime (library.c) ----------------------------------------------------------------- */

/* Whether pdc runs from a CMake build folder and is not installed. */
bool in_build_folder(void);
/* Whether programs link the build folder's library: pdc runs from it, without --mpicc and --march. */
bool links_build_folder(const Options *o);
/* The library that programs link: the build folder's, or the one in the user's cache for the processor, compilers
 * and MPI. NULL after a diagnostic. */
const char *library_path(const Options *o, const Toolchain *t);
/* Compiles the library into the cache if it is missing; false after a diagnostic. */
bool library_make(const Options *o, const Toolchain *t);

/* ---- the user's cache (cache.c) --------------------------------------------------------------- */

const char *cache_directory(void);         /* the user's cache */
bool cache_cannot_write(const char *path); /* reports PD0605 with errno; false */
/* Creates the cache if it is missing; false after a diagnostic, also if other users can write there. */
bool cache_open(void);
typedef enum { CACHE_LACKS, CACHE_HAS, CACHE_REFUSED } CacheEntry;
/* Whether a folder of the cache has a file that only this user can write; CACHE_REFUSED after a diagnostic. */
CacheEntry cache_find(const char *folder, const char *file);

const char *nvcc_path(void); /* in cuda.c; NULL: nvcc was not found */

/* ---- several models (sharp.c) ------------------------------------------------------------------ */

typedef struct ModelBuilt {
  double seconds; /* predicted seconds per update */
  int64_t bytes;  /* memory of its process, in bytes */
  int parts;
} ModelBuilt;
/* Builds one model; false after diagnostics. */
typedef bool BuildModel(void *context, const Options *o, ModelBuilt *built);
/* Builds all of o->models, and the program of the ranks that run them in turn; false after diagnostics. */
bool sharp_build(const Options *o, BuildModel *build, void *context);

/* ---- pages (explain.c) ------------------------------------------------------------------------ */

/* Prints the page of a diagnostic such as PD0301, or of a layer or primitive; false after a diagnostic. */
bool explain_name(const char *name, FILE *out);
Strings layer_names(void); /* names of layers and primitives in docs/reference/layers.md */

/* ---- help, manuals, completions (help.c, manual.c, completion.c) -------------------------------------------- */

/* Prints a shell's completion (bash, zsh, fish), the reference (markdown), or a manual page (man) of pdc or of
 * command `name`. False after a failed write. */
bool is_completion(const char *form);
bool print_completion(const char *form, const char *name);
/* pdc help: prints help about a command or a topic, with NULL the summary of pdc --help. */
void print_help(const char *name);

/* ---- this machine (doctor.c) ----------------------------------------------------------------- */

/* Checks the requirements of pdc, then builds and trains a small model, and prints the results; false if models
 * cannot be built. */
bool doctor(const Options *o);
void print_version(void); /* versions of pdc and of its libraries */

/* ---- libraries (deliver.c) --------------------------------------------------------------------- */

/* The files of a library: NAME.c, NAME.h and, unless `o` wants sources only, libNAME.a and libNAME.so. */
typedef struct ModelLibrary {
  const char *name, *source, *header;
} ModelLibrary;
/* Writes, compiles and installs them; `out` has plan and picture. False after diagnostics. */
bool library_deliver(const Options *o, const ModelLibrary *library, Output *out);
extern const Toolchain library_toolchain; /* of their runtime */

/* ---- running compilers (cc.c) ---------------------------------------------------------------- */

/* Compiles the stages in DIR/.pdc-new, several at a time, except for programs that DIR already has; false after
 * diagnostics. With -### prints the commands only. */
bool cc_stages(const Options *o, const Output *out);
int cc_at_once(void);                 /* number of simultaneous compilations */
void cc_show(const Strings *command); /* prints it to standard error */
bool cc_sync(const char *path);       /* syncs a file to disk; false after a diagnostic */
/* Starts a command without a shell. `out`: file descriptor for its standard output, -1: unchanged. -1 after a
 * diagnostic. */
pid_t command_start(const Strings *command, int out);
/* Waits for the process. False after a diagnostic about `what`, if the exit status is not 0. */
bool command_finish(pid_t pid, const char *what);
/* All of its standard output; NULL after a diagnostic. */
char *command_output(const Strings *command, const char *what);
/* The version line in the output of the compiler's --version; NULL after a diagnostic. */
const char *cc_version(const Options *o, const Toolchain *t);
/* The same; "" without a diagnostic, if the compiler cannot say. Plans and --measured need no compiler. */
const char *cc_version_if_found(const Options *o, const Toolchain *t);
/* Compiles and runs the profiling program; returns its output, or with --measured the file's text. NULL after a
 * diagnostic. */
char *cc_run(const Options *o, const char *text);

#endif
