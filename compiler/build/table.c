/* The tables of the command line: options and commands. An option's name, commands, unit and default are defined
 * only in its row. */
#include "build/cli.h"

#include <string.h>

/* Sets of commands that share options. */
#define ON_PROGRAMS (ON_BUILD | ON_INFER | ON_GENERATE | ON_SHARP) /* write stage programs */
#define ON_ONE (ON_BUILD | ON_INFER | ON_GENERATE)                 /* of one model */
#define ON_PLANS (ON_PROGRAMS | ON_PLAN | ON_SHOW)                 /* make a plan */
#define ON_PIPELINES (ON_ONE | ON_PLAN | ON_SHOW)                  /* of several ranks */
#define ON_TRAINING (ON_BUILD | ON_SHARP | ON_PLAN | ON_SHOW)
#define ON_COMPILED (ON_PLANS | ON_PROFILE | ON_LIBRARY) /* make kernels of a model */
#define ON_MODELS (ON_PLANS | ON_PROFILE)                /* plans, with several ranks or training */

#define AT(member) offsetof(Options, member)
static const Option options[] = {
    /* model */
    {"-D", "NAME=VALUE", LIST, AT(define), NULL, GROUP_MODEL, ON_COMPILED | ON_DATA, 0,
     "set a model attribute, a training setting or an optimizer argument"},
    {"-I", "DIR", LIST, AT(include), NULL, GROUP_MODEL, ON_COMPILED | ON_DATA, 0,
     "another directory to search for `use` files"},
    {"--lora", "SETTINGS", LORA, AT(lora), NULL, GROUP_MODEL, ON_MODELS, 0,
     "train adapters of linear layers: r=8,alpha=16,targets=\"q_proj|v_proj\""},
    {"--infer", NULL, FLAG, AT(infer), NULL, GROUP_MODEL, ON_BUILD | ON_PLAN | ON_SHOW | ON_PROFILE,
     ON_INFER | ON_GENERATE | ON_SHARP, "programs for inference: forward passes only"},
    {"--generate", NULL, FLAG, AT(generate), NULL, GROUP_MODEL, ON_BUILD | ON_PLAN | ON_PROFILE,
     ON_INFER | ON_GENERATE | ON_SHARP, "programs that continue token sequences"},
    {"--generate", NULL, FLAG, AT(generate), NULL, GROUP_MODEL, ON_LIBRARY, 0,
     "continue token sequences: NAME_generate() instead of NAME_run()"},
    {"--samples", "N", COUNT, AT(samples), NULL, GROUP_MODEL, ON_GENERATE | ON_PLAN | ON_PROFILE, ON_ONE,
     "--generate: sequences generated at the same time (default 1)"},
    {"--block", "N", COUNT, AT(block), NULL, GROUP_MODEL, ON_GENERATE | ON_LIBRARY | ON_PLAN | ON_PROFILE, ON_ONE,
     "--generate: positions of prompts computed in one step (default 64)"},
    {"--no-cache", NULL, FLAG, AT(no_cache), NULL, GROUP_MODEL, ON_GENERATE | ON_LIBRARY | ON_PLAN | ON_PROFILE,
     ON_ONE, "--generate: recompute all positions for each token; cache no keys"},
    {"--sharp", NULL, FLAG, AT(sharp), NULL, GROUP_MODEL, ON_BUILD, ON_SHARP,
     "one launch that trains several models on -n ranks"},
    {"--name", "NAME", TEXT, AT(name), NULL, GROUP_MODEL, ON_LIBRARY, 0,
     "library, and prefix of its functions (default: the model's file)"},
    {"--name", "NAME", TEXT, AT(name), NULL, GROUP_MODEL, ON_SHARP, ON_COMPILED,
     "name of the model before this option (default: file name and own -D)"},

    /* data */
    {"--show", "FILE", TEXT, AT(shown_data), NULL, GROUP_DATA, ON_DATA, 0,
     "samples, tokens, texts, tables, arrays, or images: folder, .tar, .zip"},
    {"--first-line", "FILE", TEXT, AT(first_line), NULL, GROUP_DATA, ON_DATA, 0,
     "print the first line of a text, which may be compressed"},
    {"--html", "FILE", TEXT, AT(data_page), NULL, GROUP_DATA, ON_DATA, 0,
     "--show as a page with losses in colour and a contact sheet of images"},
    {"--tokenizer", "PATH", TEXT, AT(tokens.tokenizer), NULL, GROUP_DATA, ON_TOKENIZE | ON_DATA, 0,
     "folder with tokenizer.json, or \"vocab.json,merges.txt\" (default: bytes)"},
    {"--field", "NAME", TEXT, AT(tokens.field), NULL, GROUP_DATA, ON_TOKENIZE, 0,
     "member of each line of a .jsonl file that holds the text (default text)"},
    {"--end", "TOKEN", TEXT, AT(tokens.end), NULL, GROUP_DATA, ON_TOKENIZE, 0,
     "text of the token behind each document, or none (default: end of text)"},
    {"--length", "N", COUNT, AT(tokens.length), NULL, GROUP_DATA, ON_TOKENIZE, 0,
     "-o FILE.npz: positions of a sample, the model's n_ctx"},
    {"--chat-template", "NAME", TEXT, AT(tokens.template), NULL, GROUP_DATA, ON_TOKENIZE, 0,
     "a name such as llama3 or chatml, a file, or auto (default auto)"},
    {"--loss-on", "PART", CHOICE, AT(tokens.loss_on), "assistant|completion|all", GROUP_DATA, ON_TOKENIZE, 0,
     "tokens with loss: the assistant's, of its last turn, or all"},
    {"--too-long", "WHAT", CHOICE, AT(tokens.too_long), "error|skip|truncate", GROUP_DATA, ON_TOKENIZE, 0,
     "samples of more than N + 1 tokens (default error)"},
    {"--pack", NULL, FLAG, AT(tokens.pack), NULL, GROUP_DATA, ON_TOKENIZE, 0,
     "several samples in a row; adds arrays documents, positions"},
    {"--labels", NULL, FLAG, AT(tokens.labels), NULL, GROUP_DATA, ON_TOKENIZE, 0,
     "texts with a label, for classifiers: arrays tokens, token_types, label"},

    /* pipeline */
    {"-n", "N", LEVELS, AT(plan.workers), NULL, GROUP_PIPELINE, ON_SHARP, 0,
     "number of ranks that share the models"},
    {"-n", "N", LEVELS, AT(plan.workers), NULL, GROUP_PIPELINE, ON_PLAN, 0,
     "number of ranks (default 1); layer profiles also by level: 4x2"},
    {"-n", "N", LEVELS, AT(plan.workers), NULL, GROUP_PIPELINE, ON_ONE | ON_SHOW | ON_PROFILE, 0,
     "number of ranks (default 1, or as --stages and --replicas need)"},
    {"--schedule", "NAME", TEXT, AT(plan.schedule), NULL, GROUP_PIPELINE, ON_PLANS, ON_PROFILE,
     "pipeline schedule, or auto (default: the model's `pipeline`, else flush)"},
    {"--delay", "0|1", CHOICE, AT(plan.delay), "|0|1", GROUP_PIPELINE, ON_BUILD | ON_PLAN | ON_SHOW, ON_ONE,
     "--schedule auto: largest weight delay in updates (default 1)"},
    {"--stages", "N", COUNT, AT(plan.stages), NULL, GROUP_PIPELINE, ON_PIPELINES | ON_PROFILE, ON_SHARP,
     "number of stages (default: chosen by the planner)"},
    {"--replicas", "R[,R...]", TEXT, AT(plan.replicas), NULL, GROUP_PIPELINE, ON_PIPELINES, ON_SHARP | ON_PROFILE,
     "ranks per stage, by stage or one number for all (default: planner)"},
    {"--split", "PLACES", TEXT, AT(plan.split), NULL, GROUP_PIPELINE, ON_PIPELINES, ON_SHARP,
     "where stages 1, 2, ... start, such as \"h[3],h[6].ln_2\" (default: planner)"},
    {"--microbatch", "N", COUNT, AT(plan.microbatch), NULL, GROUP_PIPELINE,
     ON_BUILD | ON_INFER | ON_SHARP | ON_PLAN | ON_SHOW | ON_PROFILE, ON_ONE,
     "samples per microbatch (default: planner)"},
    {"--microbatch", "N", COUNT, AT(plan.microbatch), NULL, GROUP_PIPELINE, ON_LIBRARY, 0,
     "samples that NAME_run() computes together (default 1)"},
    {"--ahead", "1|2", CHOICE, AT(plan.ahead), "|1|2", GROUP_PIPELINE, ON_BUILD | ON_PLAN | ON_SHOW, ON_ONE,
     "2: one more microbatch in flight between stages (default: planner)"},
    {"--tensor", "N|auto", DEGREE, AT(plan.tensor), NULL, GROUP_PIPELINE,
     ON_BUILD | ON_PLAN | ON_SHOW | ON_PROFILE, ON_ONE | ON_SHARP,
     "tensor-parallel degree: ranks that share each layer (default 1)"},
    {"--sharding", "FILE", TEXT, AT(plan.sharding), NULL, GROUP_PIPELINE,
     ON_BUILD | ON_PLAN | ON_SHOW | ON_PROFILE, ON_ONE | ON_SHARP,
     "--tensor: axes to split parameters along, as --emit sharding prints them"},
    {"--bucket", "SIZE", BYTES, AT(plan.bucket), NULL, GROUP_PIPELINE, ON_BUILD | ON_PLAN | ON_SHOW, 0,
     "gradients that replicas exchange in one message (default 2MiB per replica)"},
    {"--plan", "FILE", TEXT, AT(plan.plan), NULL, GROUP_PIPELINE, ON_PIPELINES, ON_SHARP,
     "use this plan.json, which may be edited, instead of planning"},
    {"--profile", "FILE", TEXT, AT(plan.profile), NULL, GROUP_PIPELINE, ON_PLANS | ON_LIBRARY, 0,
     "measured costs from 'pdc profile' (default: estimated costs)"},
    {"--compare", NULL, FLAG, AT(compare), NULL, GROUP_PIPELINE, ON_PLAN, 0,
     "print a table of the fastest plan of each schedule"},

    /* memory */
    {"--memory", "SIZE", BYTES, AT(plan.memory), NULL, GROUP_MEMORY, ON_PLANS | ON_LIBRARY | ON_PROFILE, 0,
     "memory limit per rank, such as 16GiB (default: 7/8 RAM / ranks; GPU 95 %)"},
    {"--recompute", "MODE", CHOICE_OR_LAYERS, AT(plan.recompute), "off|on|auto", GROUP_MEMORY,
     ON_TRAINING | ON_PROFILE, ON_ONE, "activation checkpointing: off, on, auto or layers 'h[*]' (default auto)"},
    {"--shard-optimizer", NULL, FLAG, AT(plan.shard_optimizer), NULL, GROUP_MEMORY, ON_BUILD | ON_PLAN | ON_SHOW,
     0, "replicas shard the optimizer state (ZeRO-1; default: if faster or smaller)"},
    {"--no-shard-optimizer", NULL, FLAG, AT(plan.whole_optimizer), NULL, GROUP_MEMORY,
     ON_BUILD | ON_PLAN | ON_SHOW, 0, "each replica keeps the whole optimizer state"},
    {"--spill", "DIR", TEXT, AT(plan.spill), NULL, GROUP_MEMORY, ON_PROFILE, 0,
     "offload directory whose transfer rates are measured"},
    {"--spill", "DIR", TEXT, AT(plan.spill), NULL, GROUP_MEMORY, ON_PLANS, 0,
     "--schedule spilled: offload directory for parts that are not resident"},
    {"--update", "WHERE", CHOICE, AT(plan.update), "|host|device", GROUP_MEMORY, ON_BUILD | ON_PLAN | ON_SHOW, 0,
     "GPU offload: update parameters on the host or device (default: the faster)"},

    /* devices */
    {"--target", "TARGET", TARGET, AT(plan.target.backend), NULL, GROUP_DEVICES, ON_COMPILED, 0,
     "target of the programs: processors or NVIDIA GPUs (default c)"},
    {"--arch", "ARCH", ARCH, AT(arch), NULL, GROUP_DEVICES, ON_MODELS, 0,
     "GPU architecture, such as sm_90 (default: this machine's GPU)"},
    {"--march", "NAME", TEXT, AT(march), NULL, GROUP_DEVICES, ON_COMPILED, 0,
     "processor type, such as x86-64-v3 (default: this machine's processor)"},
    {"--precision", "TYPE", CHOICE, AT(plan.target.precision), "f32|tf32|bf16", GROUP_DEVICES, ON_COMPILED, 0,
     "type of matrix products: f32, bf16, or on GPUs tf32 (default f32)"},
    {"--residual", "TYPE", CHOICE, AT(plan.target.residual), "f32|bf16", GROUP_DEVICES, ON_COMPILED, 0,
     "--precision bf16: type of the residual stream, f32 or bf16 (default f32)"},
    {"--threads", "N", COUNT, AT(plan.target.threads), NULL, GROUP_DEVICES, ON_COMPILED, 0,
     "threads per rank (default: processors / ranks)"},
    {"--threads", "N", COUNT, AT(plan.target.threads), NULL, GROUP_DEVICES, ON_TOKENIZE, 0,
     "threads (default: processors)"},
    {"--cluster", "CLUSTER", TEXT, AT(cluster), NULL, GROUP_DEVICES, ON_PLANS | ON_PROFILE, 0,
     "devices and links to plan for: a name such as dgx_a100, FILE or FILE:NAME"},

    /* layer profiles: pdc plan --profile without a model */
    {"--cost-model", "NAME", CHOICE, AT(layers.model), "|pipedream", GROUP_LAYERS, ON_PLAN, 0,
     "pipedream: plan as PipeDream's planner does"},
    {"--bandwidth", "B[,B...]", RATES, AT(layers.levels), NULL, GROUP_LAYERS, ON_PLAN, 0,
     "bytes/s by level, such as '8 GB/s,1 GB/s': within, then between groups"},
    {"--transfers", NULL, FLAG, AT(layers.transfers), NULL, GROUP_LAYERS, ON_PLAN, 0,
     "a stage's time also includes the transfers over its cuts"},
    {"--device", "NAME", TEXT, AT(layers.device), NULL, GROUP_LAYERS, ON_PLAN, 0,
     "device whose times are read, for profiles of several devices"},
    {"--microbatches", "N", COUNT, AT(layers.microbatches), NULL, GROUP_LAYERS, ON_PLAN, 0,
     "microbatches per batch"},

    /* output */
    {"-o", "DIR", TEXT, AT(output), NULL, GROUP_OUTPUT, ON_BUILD, 0, "output directory (default NAME.build)"},
    {"-o", "DIR", TEXT, AT(output), NULL, GROUP_OUTPUT, ON_INFER, 0, "output directory (default NAME.infer)"},
    {"-o", "DIR", TEXT, AT(output), NULL, GROUP_OUTPUT, ON_GENERATE, 0,
     "output directory (default NAME.generate)"},
    {"-o", "DIR", TEXT, AT(output), NULL, GROUP_OUTPUT, ON_LIBRARY, 0, "output directory (default NAME.library)"},
    {"-o", "DIR", TEXT, AT(output), NULL, GROUP_OUTPUT, ON_SHARP, 0, "output directory (default sharp.build)"},
    {"-o", "FILE", TEXT, AT(output), NULL, GROUP_OUTPUT, ON_PLAN, 0,
     "--report: its file (default NAME.plan.html)"},
    {"-o", "FILE", TEXT, AT(output), NULL, GROUP_OUTPUT, ON_PROFILE, 0,
     "file to write (default NAME.profile.json; with -S NAME.profile.c or .cu)"},
    {"-o", "FILE", TEXT, AT(output), NULL, GROUP_OUTPUT, ON_REPORT, 0,
     "file to write (default RUN_DIR/report.html)"},
    {"-o", "FILE", TEXT, AT(output), NULL, GROUP_OUTPUT, ON_IMPORT, 0, "file to write (default: standard output)"},
    {"-o", "FILE", TEXT, AT(output), NULL, GROUP_OUTPUT, ON_TOKENIZE, 0,
     "file to write: .bin of tokens, in llm.c's format, or .npz of samples"},
    {"-o", "OUT_DIR", TEXT, AT(output), NULL, GROUP_OUTPUT, ON_MERGE, 0, "folder to write"},
    {"-o", "FILE", TEXT, AT(output), NULL, GROUP_OUTPUT, ON_EXPORT, 0, "file to write"},
    {"--gguf", NULL, FLAG, AT(gguf), NULL, GROUP_OUTPUT, ON_EXPORT, 0, "write a GGUF file, as llama.cpp reads"},
    {"--type", "TYPE", CHOICE, AT(export_type), "f16|q8_0|f32", GROUP_OUTPUT, ON_EXPORT, 0,
     "type of matrices: f16, q8_0 or f32 (default f16); vectors are f32"},
    {"--shard", "N", COUNT, AT(tokens.shard), NULL, GROUP_OUTPUT, ON_TOKENIZE, 0,
     "largest number of tokens in a file; -o x.bin then names x_000000.bin, .."},
    {"--resume", NULL, FLAG, AT(tokens.resume), NULL, GROUP_OUTPUT, ON_TOKENIZE, 0,
     "--shard: keep complete files of an interrupted call, and continue there"},
    {"--report", NULL, FLAG, AT(report), NULL, GROUP_OUTPUT, ON_PLAN, 0,
     "also write an HTML page about the plan, NAME.plan.html"},
    {"--depth", "N", COUNT, AT(depth), NULL, GROUP_OUTPUT, ON_SHOW, 0,
     "nesting depth of the instances shown (default 2, in pictures 1)"},
    {"--svg", "FILE", TEXT, AT(svg), NULL, GROUP_OUTPUT, ON_SHOW, 0,
     "also draw the graph as SVG, stages in colours"},
    {"--dot", "FILE", TEXT, AT(dot), NULL, GROUP_OUTPUT, ON_SHOW, 0, "also write the graph for Graphviz"},
    {"--table", NULL, FLAG, AT(table), NULL, GROUP_OUTPUT, ON_PROFILE, 0,
     "also print each kernel's time and this machine's limit for it"},
    {"--measured", "FILE", TEXT, AT(measured), NULL, GROUP_OUTPUT, ON_PROFILE, 0,
     "output of the program of -S, run on another machine; nothing runs here"},
    {"--check", NULL, FLAG, AT(check), NULL, GROUP_OUTPUT, ON_FORMAT, 0,
     "report files that are not in pdc's style; change none"},
    {"-S", NULL, FLAG, AT(sources_only), NULL, GROUP_OUTPUT, ON_PROGRAMS | ON_LIBRARY | ON_PROFILE, 0,
     "write sources and stop before compiling them"},
    {"-MD", NULL, FLAG, AT(dependencies), NULL, GROUP_OUTPUT, ON_ONE | ON_LIBRARY, ON_SHARP,
     "also write DIR/NAME.d: a make rule with the files of the model"},
    {"-MT", "FILE", TEXT, AT(dependent), NULL, GROUP_OUTPUT, ON_ONE | ON_LIBRARY, ON_SHARP,
     "-MD: target of the rule (default: the sources)"},
    {"--cc", "CMD", TEXT, AT(cc), NULL, GROUP_OUTPUT, ON_COMPILED | ON_DOCTOR, 0,
     "C compiler or nvcc (default: the compiler of pdc's own build; nvcc)"},
    {"--mpicc", "CMD", TEXT, AT(mpicc), NULL, GROUP_OUTPUT, ON_PROGRAMS | ON_PROFILE | ON_DOCTOR, 0,
     "MPI compiler wrapper (default: the wrapper of pdc's own build)"},
    {"--quiet", NULL, FLAG, AT(quiet), NULL, GROUP_OUTPUT, ON_PROGRAMS | ON_LIBRARY, 0,
     "do not print where the programs are"},
    {"--quiet", NULL, FLAG, AT(quiet), NULL, GROUP_OUTPUT, ON_TOKENIZE, 0, "print no progress and no summary"},

    /* debugging */
    {"--emit", "WHAT", CHOICE, AT(emit), "|ast|graph|sharding|kernels|plan|schedule|schedule.svg|source",
     GROUP_DEBUGGING, ON_ONE | ON_LIBRARY | ON_PLAN, ON_SHARP,
     "print ast, graph, sharding, kernels, plan, schedule[.svg] or source; stop"},
    {"-fsyntax-only", NULL, FLAG, AT(syntax_only), NULL, GROUP_DEBUGGING, ON_ONE | ON_LIBRARY, ON_SHARP,
     "check the model and stop"},
    {"-d", "LETTERS", TEXT, AT(dump), NULL, GROUP_DEBUGGING, ON_COMPILED, 0,
     "print the result of these passes to stderr ('pdc help passes')"},
    {"--stop-after", "PASS", TEXT, AT(stop_after), NULL, GROUP_DEBUGGING, ON_ONE | ON_LIBRARY | ON_PLAN, ON_SHARP,
     "stop after this pass ('pdc help passes')"},
    {"--time-passes", NULL, FLAG, AT(time_passes), NULL, GROUP_DEBUGGING, ON_COMPILED, 0,
     "print the time of each pass, in milliseconds"},
    {"--verify-each", NULL, FLAG, AT(verify_each), NULL, GROUP_DEBUGGING, ON_COMPILED, 0,
     "check the result of every pass"},
    {"-v", NULL, FLAG, AT(verbose), NULL, GROUP_DEBUGGING, ON_PROGRAMS | ON_LIBRARY | ON_PROFILE, 0,
     "print the commands that run"},
    {"-###", NULL, FLAG, AT(dry_run), NULL, GROUP_DEBUGGING, ON_ONE | ON_LIBRARY, ON_SHARP,
     "print the commands and run none"},
    {"--diagnostics", "FORM", SPECIAL, 0, "text|json", GROUP_DEBUGGING,
     ON_COMPILED | ON_TOKENIZE | ON_IMPORT | ON_MERGE | ON_EXPORT | ON_REPORT | ON_FORMAT, ON_ALL,
     "form of errors and warnings: text or json (default text)"},
    {"-Werror", NULL, SPECIAL, 0, NULL, GROUP_DEBUGGING, ON_COMPILED | ON_IMPORT | ON_FORMAT, ON_ALL,
     "treat warnings as errors"},
    {"-h", NULL, SPECIAL, 0, NULL, GROUP_DEBUGGING, 0, ON_ALL, NULL},
    {"--help", NULL, SPECIAL, 0, NULL, GROUP_DEBUGGING, ON_ALL, 0, "print this help"},
    {"--version", NULL, SPECIAL, 0, NULL, GROUP_DEBUGGING, 0, ON_ALL,
     "print the version of pdc and of its libraries"},
};
enum { N_OPTIONS = sizeof options / sizeof *options };

#define MODELS "MODEL is a .pdm file or a Hugging Face folder. "
#define PLACES_OF_OUTPUT "The programs and their launcher go to the output directory. "
static const CommandLine commands[] = {
    {"build",
     COMMAND_BUILD,
     0,
     {"[options] MODEL", NULL},
     "build training programs, one per pipeline stage (the default)",
     "The word `build` may be left out. " MODELS PLACES_OF_OUTPUT
     "Launch: `mpirun -n RANKS NAME.build/train --data PATH --steps N`."},
    {"infer",
     COMMAND_BUILD,
     AT(infer),
     {"[options] MODEL", NULL},
     "build programs for inference: forward passes only",
     MODELS PLACES_OF_OUTPUT "Launch: `mpirun -n RANKS NAME.infer/infer --data PATH --init FILE`."},
    {"generate",
     COMMAND_BUILD,
     AT(generate),
     {"[options] MODEL", NULL},
     "build programs that continue token sequences",
     MODELS PLACES_OF_OUTPUT "Launch: `mpirun -n RANKS NAME.generate/generate --init FILE --prompt TEXT`."},
    {"library",
     COMMAND_BUILD,
     AT(library),
     {"[--generate] [options] MODEL", NULL},
     "build a C library that runs a model, or generates with it",
     MODELS "The output directory gets libNAME.a, libNAME.so, NAME.h and their source, NAME.c. "
            "NAME_run() computes the model's outputs, with --generate NAME_generate() continues token sequences."},
    {"sharp",
     COMMAND_BUILD,
     AT(sharp),
     {"-n N [options] MODEL [-D NAME=VALUE] [--name NAME] MODEL ...", NULL},
     "build one launch that trains several models on N ranks",
     MODELS "-D and --name belong to the model before them; -D before the first model belongs to all models."},
    {"plan",
     COMMAND_PLAN,
     0,
     {"[options] MODEL", "--profile FILE [options]"},
     "print the plan and the next best plans; build nothing",
     MODELS "Without a model, --profile is a layer profile: a file of layers with times and sizes."},
    {"show",
     COMMAND_SHOW,
     0,
     {"[options] MODEL", NULL},
     "print the model's instances as a table, or draw a picture",
     MODELS "Options of the pipeline also show the stages of the plan."},
    {"profile",
     COMMAND_PROFILE,
     0,
     {"[options] MODEL", NULL},
     "measure the model's kernels on this machine",
     MODELS "'pdc plan --profile' and 'pdc build --profile' read the file."},
    {"tokenize",
     COMMAND_TOKENIZE,
     0,
     {"[--tokenizer PATH] -o FILE.bin TEXT...",
      "[--tokenizer DIR] --length N [options] -o FILE.npz CHATS.jsonl..."},
     "turn texts and chats into files of tokens, which `train --data` reads",
     "A text is one document. Each line of a .jsonl file is a JSON object with one document, chat or instruction."},
    {"data",
     COMMAND_DATA,
     0,
     {"--show FILE... [--tokenizer PATH] [MODEL]", "--first-line FILE"},
     "describe a data file: counts, lengths, positions with loss, decoded samples",
     "In a decoded sample, [[ and ]] enclose the tokens with loss. With MODEL, a .pdm file or a folder with config.json, also where each input comes from; a file that does not fit is an error."},
    {"import",
     COMMAND_IMPORT,
     0,
     {"[-o FILE.pdm] DIR", NULL},
     "write the model of a Hugging Face folder",
     "DIR has config.json and, unless only a plan is wanted, safetensors. Other commands take DIR itself as a model."},
    {"merge",
     COMMAND_MERGE,
     0,
     {"-o OUT_DIR DIR ADAPTER_DIR", NULL},
     "add adapters to the weights of a Hugging Face folder",
     "ADAPTER_DIR is a folder that `train --save` of a model with --lora wrote, or PEFT's. OUT_DIR gets the files of DIR."},
    {"export",
     COMMAND_EXPORT,
     0,
     {"--gguf -o FILE [--type TYPE] DIR", NULL},
     "write a Hugging Face folder as a file of another program",
     "DIR has config.json, weights and the tokenizer. --gguf writes the file that llama.cpp reads."},
    {"report",
     COMMAND_REPORT,
     0,
     {"[-o FILE] RUN_DIR", NULL},
     "write one HTML page about a run, from its logs",
     "RUN_DIR is the directory of `train --run`, for one model or several."},
    {"checkpoint",
     COMMAND_CHECKPOINT,
     0,
     {"DIR", NULL},
     "list and verify the checkpoints of a training run",
     "DIR is the directory of `train --checkpoint`."},
    {"fmt",
     COMMAND_FORMAT,
     0,
     {"[--check] FILE...", NULL},
     "format models in pdc's style; '-' is standard input",
     NULL},
    {"lsp", COMMAND_LSP, 0, {"", NULL}, "run a language server on standard input and output, for editors", NULL},
    {"explain", COMMAND_EXPLAIN, 0, {"PD0301|LAYER", NULL}, "explain a diagnostic, a layer or a primitive", NULL},
    {"doctor",
     COMMAND_DOCTOR,
     0,
     {"[options]", NULL},
     "check this machine: compilers, libraries, MPI, GPUs, a training",
     NULL},
    {"completion",
     COMMAND_COMPLETION,
     0,
     {"bash|zsh|fish|markdown", "man [COMMAND]"},
     "print a shell completion, a manual page or the reference",
     NULL},
    {"help", COMMAND_HELP, 0, {"[COMMAND|TOPIC]", NULL}, "print help about a command or a topic", NULL},
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };
_Static_assert(ON_ALL == (1 << N_COMMANDS) - 1, "a bit for each command");

const Option *cli_options(int *n) {
  *n = N_OPTIONS;
  return options;
}

const CommandLine *cli_commands(int *n) {
  *n = N_COMMANDS;
  return commands;
}

const CommandLine *cli_command(const char *name) {
  for (int i = 0; i < N_COMMANDS; i++)
    if (!strcmp(name, commands[i].name))
      return &commands[i];
  return NULL;
}

unsigned cli_bit(const CommandLine *c) { return 1u << (c - commands); }

bool cli_lists(const Option *o, unsigned on) { return o->help && o->on & on; }

bool cli_accepts(const Option *o, unsigned on) {
  unsigned all = 0;
  for (int i = 0; i < N_OPTIONS; i++)
    if (!strcmp(options[i].name, o->name))
      all |= options[i].on | options[i].also;
  return all & on;
}

const char *cli_names(unsigned on) {
  Text t = {0};
  for (int i = 0; i < N_COMMANDS; i++)
    if (on & 1u << i) {
      bool last = !(on >> (i + 1));
      text_add(&t, "%s'pdc %s'", !t.n ? "" : last ? " and " : ", ", commands[i].name);
    }
  return t.n ? t.at : "no command";
}

const char *cli_owners(const Option *o) {
  unsigned on = 0;
  for (int i = 0; i < N_OPTIONS; i++)
    if (!strcmp(options[i].name, o->name))
      on |= options[i].on;
  return cli_names(on);
}

const char *cli_targets(void) {
  Text all = {0};
  for (const Backend *const *b = all_backends; *b; b++)
    text_add(&all, "%s%s", all.n ? "|" : "", (*b)->name);
  return all.at;
}

const char *cli_argument(const Option *o) {
  return o->kind == TARGET ? cli_targets() : o->argument ? o->argument : "";
}

const char *cli_group(OptionGroup group) {
  static const char *const names[N_GROUPS] = {"Model",  "Data",     "Pipeline",
                                              "Memory", "Devices",  "Layer profiles (no model)",
                                              "Output", "Debugging"};
  return names[group];
}
