/* The options of the programs `train`, `infer` and `generate`. Every rank parses the same command line. */
#include "run/upward.h"
#include "shared/safetensors.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct pd_options pd_options;
bool pd_without_targets;

bool pd_only_evaluates(void) { return pd.stage->inference || pd_options.evaluate; }

enum kind {
  FLAG,
  COUNT,
  POSITIVE,
  SIZE,
  SEED,
  SECONDS,
  RATE,
  NUMBER,
  OUTPUT,
  AUGMENT,
  TOKENS,
  DTYPE,
  DOCUMENTS,
  ORDER,
  PATH,
  TEXT,
  PATHS,
  LIST,
  STOPS /* a flag, or a LIST */
};

/* The runs that read an option, as bits; other runs refuse it. */
enum run { TRAIN = 1, EVALUATE = 2 /* train --evaluate */, INFER = 4, GENERATE = 8 };
enum { ALL = TRAIN | EVALUATE | INFER | GENERATE };

enum group { DATA, TEXTS, TRAINING, VALIDATION, CHECKPOINTS, OUTPUTS, DEVICES, RELIABILITY, DEBUGGING, N_GROUPS };
static const char *const group_titles[N_GROUPS] = {
    [DATA] = "Data",
    [TEXTS] = "Prompt and sampling",
    [TRAINING] = "Training",
    [VALIDATION] = "Validation and evaluation",
    [CHECKPOINTS] = "Weights and checkpoints",
    [OUTPUTS] = "Output",
    [DEVICES] = "Devices and memory",
    [RELIABILITY] = "Reliability",
    [DEBUGGING] = "Debugging",
};

struct option {
  const char *name;
  enum kind kind;
  size_t at;    /* offset of the value in pd_options; for PATHS and LIST, of a char ** */
  size_t count; /* offset of the number of values: PATHS can be given once, LIST several times */
  const char *argument, *help;
  enum group group;
  int runs; /* enum run */
};

#define AT(member) offsetof(struct pd_options, member)
/* tools/describe-options reads this table. A line of --help has at most 100 columns, 70 of them for `help`. */
static const struct option options[] = {
    {"--data", PATHS, AT(data), AT(n_data), "PATH...", "files, patterns or folders: [SOURCE=SHARE:][INPUT=]PATH",
     DATA, TRAIN | EVALUATE | INFER},
    {"--token-type", TOKENS, AT(token_bytes), 0, "u8|u16|u32",
     "token type of .bin files without a header; u8 also reads text as bytes", DATA, TRAIN | EVALUATE | INFER},
    {"--pad", COUNT, AT(pad), 0, "TOKEN", "token that fills short lines and documents (default 0)", DATA,
     TRAIN | EVALUATE | INFER},
    {"--documents", DOCUMENTS, AT(documents), 0, "joined|TOKEN",
     "join documents, or the token that ends them (default: the file's)", DATA, TRAIN | EVALUATE | INFER},
    {"--tokenizer", PATHS, AT(tokenizer), AT(n_tokenizer), "PATH...",
     "tokenizer.json, or vocab.json merges.txt; for data also a folder, bytes", DATA, ALL},
    {"--tokenize", TEXT, AT(tokenize), 0, "OPTIONS", "options of pdc tokenize, such as \"--too-long skip\"", DATA,
     TRAIN | EVALUATE | INFER},
    {"--token-cache", PATH, AT(token_cache), 0, "DIR", "folder for the tokens of --tokenizer (default pdc.tokens)",
     DATA, TRAIN | EVALUATE | INFER},
    {"--order", ORDER, AT(in_file_order), 0, "shuffled|file", "order of training samples (default shuffled)", DATA,
     TRAIN},
    {"--resize", POSITIVE, AT(resize), 0, "PIXELS",
     "height of images before the crop (default: the input's / 0.875)", DATA, TRAIN | EVALUATE | INFER},
    {"--skip-broken", FLAG, AT(skip_broken), 0, NULL,
     "replace unreadable training images by others of their class, and warn", DATA, TRAIN},
    {"--data-threads", COUNT, AT(data_threads), 0, "N",
     "threads that decode images ahead (default: unused processors)", DATA, TRAIN | EVALUATE | INFER},
    {"--augment", AUGMENT, AT(augment), 0, "CHANGES",
     "random changes of images: flip, crop=PIXELS, resized_crop, color=SHARE", DATA, TRAIN},
    {"--prompt", TEXT, AT(prompt), 0, "TEXT", "text to continue (default: standard input)", TEXTS, GENERATE},
    {"--prompt-file", PATH, AT(prompt_file), 0, "FILE", "file with the text to continue", TEXTS, GENERATE},
    {"--prompt-tokens", TEXT, AT(prompt_tokens), 0, "N,N,..", "tokens to continue, by number", TEXTS, GENERATE},
    {"--prompts", PATH, AT(prompts), 0, "FILE",
     "prompts: a text a line, or in .jsonl an object; prints JSON lines", TEXTS, GENERATE},
    {"--features", PATH, AT(features), 0, "FILE", "models that read numbers: sources in a .npy or .npz array",
     TEXTS, GENERATE},
    {"--chat", FLAG, AT(chat), 0, NULL, "chat in turns: a line of standard input is a message", TEXTS, GENERATE},
    {"--chat-template", TEXT, AT(chat_template), 0, "NAME",
     "template: auto, a file, chatml, gemma, .. (default: the tokenizer's)", TEXTS, GENERATE},
    {"--system", TEXT, AT(system), 0, "TEXT", "--chat: first message, of the role system", TEXTS, GENERATE},
    {"--tokens", COUNT, AT(tokens), 0, "N", "most tokens to generate (default 100; --chat: the context)", TEXTS,
     GENERATE},
    {"--temperature", NUMBER, AT(temperature), 0, "T",
     "divisor of the logits; 0 picks the most probable token (default 1)", TEXTS, GENERATE},
    {"--top-k", COUNT, AT(top_k), 0, "K", "sample from the K most probable tokens (default 0: all tokens)", TEXTS,
     GENERATE},
    {"--top-p", NUMBER, AT(top_p), 0, "P",
     "sample from the most probable tokens of total probability P (default 1)", TEXTS, GENERATE},
    {"--stop", STOPS, AT(stop_texts), AT(n_stop_texts), "[TEXT...]",
     "stop at the tokenizer's end-of-text token, and before each TEXT", TEXTS, GENERATE},
    {"--window", FLAG, AT(window), 0, NULL, "drop the older half of a full context and continue", TEXTS, GENERATE},
    {"--steps", COUNT, AT(steps), 0, "N", "weight updates (default: length of the learning rate schedule)",
     TRAINING, TRAIN},
    {"--seed", SEED, AT(seed), 0, "S", "seed of initial weights, sample order, dropout, sampling (default 1)",
     TRAINING, TRAIN | GENERATE},
    {"--validation", PATHS, AT(validation), AT(n_validation), "PATH...", "validation data, as for --data",
     VALIDATION, TRAIN},
    {"--validate-every", POSITIVE, AT(validate_every), 0, "K",
     "updates between validations (default: only at the end)", VALIDATION, TRAIN},
    {"--stop-when", TEXT, AT(stop_when), 0, "RULE",
     "rule that ends training, such as \"validation_loss > best * 1.1\"", VALIDATION, TRAIN},
    {"--evaluate", FLAG, AT(evaluate), 0, NULL, "compute loss and metrics over --data without training",
     VALIDATION, TRAIN | EVALUATE},
    {"--predict", PATHS, AT(predict), AT(n_predict), "[NAME=]PATH...",
     "write outputs over --data as .npy, or as .tsv with classes, by NAME", OUTPUTS, INFER},
    {"--init", LIST, AT(init), AT(n_init), "PATH...",
     "weights: safetensors, their index.json, or step folders of a checkpoint", CHECKPOINTS, ALL},
    {"--init-partial", LIST, AT(init_partial), AT(n_init_partial), "PATTERN...",
     "parameters that --init files may lack or hold with another shape", CHECKPOINTS, TRAIN},
    {"--rename", LIST, AT(rename), AT(n_rename), "OLD=NEW...",
     "rename tensors of --init files; * and ? copy the text that they match", CHECKPOINTS, ALL},
    {"--save", PATH, AT(save), 0, "PATH", "final weights: a safetensors file, or as DIR/ a Hugging Face folder",
     CHECKPOINTS, TRAIN},
    {"--save-raw", PATH, AT(save_raw), 0, "PATH", "with ema: the final weights without averaging", CHECKPOINTS,
     TRAIN},
    {"--save-only", TEXT, AT(save_only), 0, "PATTERN", "--save FILE: only the parameters that match", CHECKPOINTS,
     TRAIN},
    {"--save-dtype", DTYPE, AT(save_dtype), 0, "TYPE",
     "type of saved weights: f32, bf16, f16 (default f32; DIR/: config.json)", CHECKPOINTS, TRAIN},
    {"--save-config", PATH, AT(save_config), 0, "DIR",
     "--save DIR/: folder whose config.json is copied (default: --init's)", CHECKPOINTS, TRAIN},
    {"--save-shard", SIZE, AT(save_shard), 0, "BYTES",
     "--save DIR/: most bytes of tensors in a file (default 5GB)", CHECKPOINTS, TRAIN},
    {"--checkpoint", PATH, AT(checkpoint), 0, "DIR", "checkpoint directory, shared by all ranks", CHECKPOINTS,
     TRAIN | EVALUATE},
    {"--checkpoint-every", POSITIVE, AT(checkpoint_every), 0, "K",
     "updates between checkpoints (default: only at the end)", CHECKPOINTS, TRAIN},
    {"--keep", POSITIVE, AT(keep), 0, "N", "newest checkpoints to keep, besides the best one (default: all)",
     CHECKPOINTS, TRAIN},
    {"--keep-every", POSITIVE, AT(keep_every), 0, "K", "with --keep: also keep the checkpoint of every Kth update",
     CHECKPOINTS, TRAIN},
    {"--checkpoint-optional", FLAG, AT(checkpoint_optional), 0, NULL,
     "warn, instead of failing, when a checkpoint cannot be written", CHECKPOINTS, TRAIN},
    {"--checkpoint-background", FLAG, AT(checkpoint_background), 0, NULL,
     "write checkpoints during training, from a copy in memory", CHECKPOINTS, TRAIN},
    {"--resume", FLAG, AT(resume), 0, NULL, "continue from the newest checkpoint in --checkpoint DIR", CHECKPOINTS,
     TRAIN | EVALUATE},
    {"--resume-or-start", FLAG, AT(resume_or_start), 0, NULL,
     "like --resume; without a checkpoint, start with the first update", CHECKPOINTS, TRAIN},
    {"--resume-anyway", FLAG, AT(resume_anyway), 0, NULL,
     "with --resume: accept a checkpoint of a different computation", CHECKPOINTS, TRAIN | EVALUATE},
    {"--output", OUTPUT, AT(output), 0, "text|tokens|json",
     "print text, token numbers or JSON lines (default text; --prompts: json)", OUTPUTS, GENERATE},
    {"--results", PATH, AT(results), 0, "FILE", "file for the output (default: standard output)", OUTPUTS,
     GENERATE},
    {"--logprobs", POSITIVE, AT(logprobs), 0, "K",
     "with JSON: log-probabilities of a token and the K most probable ones", OUTPUTS, GENERATE},
    {"--log", PATH, AT(log), 0, "FILE", "JSON log with one line per update or evaluation", OUTPUTS,
     TRAIN | EVALUATE | INFER},
    {"--tensorboard", PATH, AT(tensorboard), 0, "DIR", "directory for a TensorBoard event file", OUTPUTS, TRAIN},
    {"--trace", PATH, AT(trace), 0, "FILE", "Chrome trace of what each rank does over time", OUTPUTS, ALL},
    {"--run", PATH, AT(run), 0, "DIR", "directory for log, trace and plan, as pdc report reads them", OUTPUTS,
     TRAIN | EVALUATE | INFER},
    {"--quiet", FLAG, AT(quiet), 0, NULL, "print warnings and errors only, no progress and no notes", OUTPUTS,
     ALL},
    {"--device", COUNT, AT(device), 0, "N", "CUDA device number (default: the rank's number on its machine)",
     DEVICES, ALL},
    {"--comm", PATH, AT(comm), 0, "WAY", "transport: shared, mpi; on GPUs peer, nccl, mpi (default: automatic)",
     DEVICES, ALL},
    {"--spill", PATH, AT(spill), 0, "DIR",
     "offload directory (default: of pdc --spill); host: a GPU's host memory", DEVICES, TRAIN | EVALUATE},
    {"--graphs", FLAG, AT(graphs), 0, NULL, "on GPUs: launch each pass as one CUDA graph", DEVICES, ALL},
    {"--peak", RATE, AT(peak), 0, "FLOPS", "peak rate of all ranks for mfu, such as 235GFLOPS (default: measured)",
     DEVICES, TRAIN | EVALUATE},
    {"--timeout", SECONDS, AT(timeout), 0, "SECONDS", "longest wait for another rank, in seconds (default 300)",
     RELIABILITY, ALL},
    {"--grace", SECONDS, AT(grace), 0, "SECONDS",
     "seconds to finish the current update after a stop signal (default 30)", RELIABILITY, TRAIN},
    {"--check-messages", FLAG, AT(check_messages), 0, NULL,
     "send a checksum with each message and verify it on arrival", RELIABILITY, ALL},
    {"--audit", POSITIVE, AT(audit), 0, "K",
     "every K updates compute a microbatch and the update twice and compare", RELIABILITY, TRAIN},
    {"--emulate", FLAG, AT(emulate), 0, NULL, "sleep for the planned times instead of computing", DEBUGGING,
     TRAIN | EVALUATE | INFER},
    {"--help", FLAG, AT(help), 0, NULL, "print this help", DEBUGGING, ALL},
};
enum { N_OPTIONS = sizeof options / sizeof *options };

static bool belongs(const struct pd_stage *s, const struct option *o) {
  return o->runs & (s->generation ? GENERATE : s->inference ? INFER : TRAIN);
}

static void print_group(const struct pd_stage *stage, enum group group) {
  bool titled = false;
  for (const struct option *o = options; o < options + N_OPTIONS; o++) {
    if (o->group != group || !belongs(stage, o)) continue;
    if (!titled) printf("\n%s:\n", group_titles[group]);
    titled = true;
    char left[40];
    snprintf(left, sizeof left, "%s %s", o->name, o->argument ? o->argument : "");
    printf("  %-25s  %s\n", left, o->help);
  }
}

void pd_print_usage(const struct pd_stage *stage) {
  const char *plural = stage->n_stages == 1 ? "" : "s";
  if (stage->generation)
    printf("usage: mpirun -n %d generate --init FILE [--prompt TEXT] [options]\n"
           "Continue a text with %s: %d stage%s, %lld at once.\n",
           pd_planned_ranks(), stage->model, stage->n_stages, plural, (long long)stage->microbatch);
  else if (stage->inference)
    printf("usage: mpirun -n %d infer --data PATH... --init FILE [options]\n"
           "Evaluate %s: %d stage%s, microbatches of %lld samples.\n",
           pd_planned_ranks(), stage->model, stage->n_stages, plural, (long long)stage->microbatch);
  else
    printf("usage: mpirun -n %d train --data PATH... --steps N [options]\n"
           "Train %s: %d stage%s, schedule %s, batches of %lld samples.\n",
           pd_planned_ranks(), stage->model, stage->n_stages, plural, stage->schedule, (long long)stage->batch);
  for (int group = 0; group < N_GROUPS; group++) print_group(stage, group);
}

/* A whole number from `low` up; false when the text is anything else. */
static bool parse_count(const char *text, int64_t low, int64_t *to) {
  char *end;
  errno = 0;
  long long n = strtoll(text, &end, 10);
  *to = n;
  return end != text && !*end && !errno && n >= low;
}

static bool parse_rate(const char *text, double *to) {
  static const struct {
    const char *unit;
    double factor;
  } units[] = {{"", 1}, {"FLOPS", 1}, {"GFLOPS", 1e9}, {"TFLOPS", 1e12}};
  char *end;
  double x = strtod(text, &end);
  while (*end == ' ') end++;
  for (size_t i = 0; i < sizeof units / sizeof *units; i++)
    if (end != text && x > 0 && x < 1e30 && !strcmp(end, units[i].unit)) {
      *to = x * units[i].factor;
      return true;
    }
  return false;
}

/* A number of bytes, such as 5000000, 5GB or "1 GiB"; from 1 to 2^60. */
static bool parse_size(const char *text, int64_t *to) {
  static const struct {
    const char *unit;
    double factor;
  } units[] = {{"", 1},      {"B", 1},        {"KB", 1e3},     {"MB", 1e6},     {"GB", 1e9},
               {"TB", 1e12}, {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}};
  char *end;
  const double x = strtod(text, &end);
  while (*end == ' ') end++;
  for (size_t i = 0; i < sizeof units / sizeof *units; i++)
    if (end != text && !strcmp(end, units[i].unit) && x * units[i].factor >= 1 && x * units[i].factor <= 0x1p60) {
      *to = (int64_t)(x * units[i].factor);
      return true;
    }
  return false;
}

/* Parses the value of a change of --augment: `n` characters, or a whole number of pixels or a share, 0 to 1. */
static bool parse_change(const char *text, size_t n, struct pd_augment *a) {
  char word[32] = "", *end;
  if (n >= sizeof word) return false;
  memcpy(word, text, n);
  char *value = strchr(word, '=');
  if (value) *value++ = 0;
  if (!strcmp(word, "flip")) return a->flip = !value;
  if (!strcmp(word, "crop")) return value && strlen(value) < 4 && parse_count(value, 1, &a->crop);
  double *share = !strcmp(word, "resized_crop") ? &a->resized_crop : !strcmp(word, "color") ? &a->color : NULL;
  if (share == &a->resized_crop && !value) value = "0.08"; /* torchvision's */
  if (!share || !value || !*value) return false;
  *share = strtod(value, &end);
  return !*end && *share > 0 && *share <= 1;
}

/* Parses changes with commas between them. */
/* Help for names and sizes of torchvision; "": there is none. */
static const char *help_of_change(const char *text, size_t n) {
  if (n >= 9 && !strncmp(text, "normali", 7))
    return ". help: leave it out; the model's input normalizes: image(mean = .., std = ..)";
  if (n > 13 && !strncmp(text, "resized_crop=", 13))
    return ". help: images get the size of the model's input; resized_crop=SHARE is the smallest share of the area";
  return "";
}

static bool parse_augment(const struct option *o, const char *text, struct pd_augment *a, char *why) {
  for (;; text++) {
    const size_t n = strcspn(text, ",");
    if (!parse_change(text, n, a))
      return pd_refuse(why,
                       "%s needs flip, crop=PIXELS, resized_crop or color=SHARE with commas between them, not "
                       "'%.*s'%s",
                       o->name, (int)n, text, help_of_change(text, n));
    text += n;
    if (!*text) return true;
  }
}

static bool parse_documents(const struct option *o, const char *text, struct pd_document_option *to, char *why) {
  int64_t token;
  const bool number = parse_count(text, 0, &token) && token < INT32_MAX;
  to->joined = !strcmp(text, "joined");
  to->end = number ? token + 1 : 0;
  return number || to->joined ||
         pd_refuse(why, "%s needs joined or the number of the token that ends documents, not '%s'", o->name, text);
}

static bool parse_value(const struct option *o, const char *text, char *at, char *why) {
  char *end;
  double seconds;
  switch (o->kind) {
  case COUNT:
    return parse_count(text, 0, (int64_t *)at) ||
           pd_refuse(why, "%s needs a whole number, not '%s'", o->name, text);
  case POSITIVE:
    return parse_count(text, 1, (int64_t *)at) ||
           pd_refuse(why, "%s needs a whole number of at least 1, not '%s'", o->name, text);
  case SIZE:
    return parse_size(text, (int64_t *)at) ||
           pd_refuse(why, "%s needs a size such as 5GB or 1GiB, not '%s'", o->name, text);
  case SEED:
    errno = 0;
    *(uint64_t *)at = strtoull(text, &end, 10);
    return (*text >= '0' && *text <= '9' && !*end && !errno) ||
           pd_refuse(why, "%s needs a whole number, not '%s'", o->name, text);
  case SECONDS:
    seconds = strtod(text, &end);
    if (end == text || *end || !(seconds > 0 && seconds < 1e9))
      return pd_refuse(why, "%s needs a number of seconds, not '%s'", o->name, text);
    *(double *)at = seconds;
    return true;
  case RATE:
    return parse_rate(text, (double *)at) ||
           pd_refuse(why, "%s needs operations per second, such as 235e9 or 235GFLOPS, not '%s'", o->name, text);
  case NUMBER:
    *(double *)at = strtod(text, &end);
    return (end != text && !*end && *(double *)at >= 0 && *(double *)at < 1e9) ||
           pd_refuse(why, "%s needs a number of at least 0, not '%s'", o->name, text);
  case OUTPUT:
    *(int *)at = !strcmp(text, "tokens") ? PD_PRINT_TOKENS : !strcmp(text, "json") ? PD_PRINT_JSON : PD_PRINT_TEXT;
    return !strcmp(text, "text") || *(int *)at ||
           pd_refuse(why, "%s needs text, tokens or json, not '%s'", o->name, text);
  case TEXT: *(const char **)at = text; return true;
  case AUGMENT: return parse_augment(o, text, (struct pd_augment *)at, why);
  case ORDER:
    *(bool *)at = !strcmp(text, "file");
    return *(bool *)at || !strcmp(text, "shuffled") ||
           pd_refuse(why, "%s needs shuffled or file, not '%s'", o->name, text);
  case DOCUMENTS: return parse_documents(o, text, (struct pd_document_option *)at, why);
  case DTYPE:
    *(const char **)at = text;
    return pd_dtype_of(text) != PD_DTYPE_OTHER ||
           pd_refuse(why, "%s needs f32, bf16 or f16, not '%s'", o->name, text);
  case TOKENS:
    *(int *)at = !strcmp(text, "u8") ? 1 : !strcmp(text, "u16") ? 2 : !strcmp(text, "u32") ? 4 : 0;
    return *(int *)at || pd_refuse(why, "%s needs u8, u16 or u32, not '%s'", o->name, text);
  default:
    if (!*text) return pd_refuse(why, "%s needs a path", o->name);
    *(const char **)at = text;
    return true;
  }
}

/* Returns the option that argument `a` names, or NULL. Points *value at the value of --name=value, else NULL. */
static const struct option *find(char *a, char **value) {
  *value = strchr(a, '=');
  size_t n = *value ? (size_t)(*value - a) : strlen(a);
  if (*value) ++*value;
  for (const struct option *o = options; o < options + N_OPTIONS; o++)
    if (strlen(o->name) == n && !strncmp(o->name, a, n)) return o;
  return NULL;
}

/* Places in --run DIR the files that no other option places. */
static void place_in_run(struct pd_options *o) {
  static const char *const names[] = {"log.jsonl", "trace.json", "plan.json", "model.svg"};
  const char **paths[] = {&o->log, &o->trace, &o->plan, &o->picture};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    if (*paths[i]) continue;
    char *path = pd_allocate(strlen(o->run) + strlen(names[i]) + 2);
    sprintf(path, "%s/%s", o->run, names[i]);
    *paths[i] = path;
  }
}

/* Whether the path of --save names a folder: it ends in a slash, or is a folder. Removes slashes at the end. */
static bool take_folder(const char **path) {
  struct stat st;
  size_t n = *path ? strlen(*path) : 0;
  bool folder = n && ((*path)[n - 1] == '/' || (!stat(*path, &st) && S_ISDIR(st.st_mode)));
  char *plain = folder ? pd_copy_text(*path) : NULL;
  while (plain && n > 1 && plain[n - 1] == '/') plain[--n] = 0;
  if (plain) *path = plain;
  return folder;
}

/* Appends `value`, if any, and the arguments after argv[*i] up to the next option. */
static bool parse_several(const struct option *p, struct pd_options *o, int argc, char **argv, int *i, char *value,
                          char *why) {
  char ***list = (char ***)((char *)o + p->at);
  int *n = (int *)((char *)o + p->count), before = *n;
  if (before && p->kind == PATHS)
    return pd_refuse(why, "%s is given twice. help: give all paths after one %s", p->name, p->name);
  if (value) argv[*i] = value;
  char **first = argv + *i + !value;
  int more = value != NULL;
  for (; *i + 1 < argc && argv[*i + 1][0] != '-'; ++*i) more++;
  if (!more && p->kind != STOPS)
    return pd_refuse(why, "%s needs %s", p->name, p->kind == PATHS ? "a path" : p->argument);
  char **whole = pd_allocate(sizeof *whole * (size_t)(before + more));
  if (before) memcpy(whole, *list, sizeof *whole * (size_t)before);
  memcpy(whole + before, first, sizeof *whole * (size_t)more);
  *list = whole;
  *n = before + more;
  return true;
}

/* `training`: the first given option that --evaluate ignores, or NULL. */
static bool options_agree(struct pd_options *o, const struct option *training, char *why) {
  enum { MOST_SIDE = 1 << 16, MOST_THREADS = 256 };
  if (o->evaluate && training)
    return pd_refuse(why, "%s has no effect with --evaluate. help: leave out %s or --evaluate", training->name,
                     training->name);
  if ((o->n_init_partial || o->n_rename) && !o->n_init)
    return pd_refuse(why, "%s needs --init PATH", o->n_rename ? "--rename" : "--init-partial");
  if (o->resize > MOST_SIDE)
    return pd_refuse(why, "--resize %lld is more than %d", (long long)o->resize, MOST_SIDE);
  if (o->data_threads > MOST_THREADS)
    return pd_refuse(why, "--data-threads %lld is more than %d", (long long)o->data_threads, MOST_THREADS);
  if (o->validate_every && !o->n_validation) return pd_refuse(why, "--validate-every needs --validation PATH");
  if (o->stop_when && !o->n_validation) return pd_refuse(why, "--stop-when needs --validation PATH");
  if ((o->checkpoint_every || o->resume) && !o->checkpoint)
    return pd_refuse(why, "%s needs --checkpoint DIR", o->resume ? "--resume" : "--checkpoint-every");
  if ((o->keep || o->checkpoint_optional || o->checkpoint_background) && !o->checkpoint)
    return pd_refuse(why, "%s needs --checkpoint DIR",
                     o->keep                  ? "--keep"
                     : o->checkpoint_optional ? "--checkpoint-optional"
                                              : "--checkpoint-background");
  if (o->keep_every && !o->keep)
    return pd_refuse(why, "--keep-every needs --keep N: without --keep, all checkpoints are kept");
  if ((o->save_dtype || o->save_config || o->save_only) && !o->save && !o->save_raw)
    return pd_refuse(why, "%s needs --save PATH",
                     o->save_dtype    ? "--save-dtype"
                     : o->save_config ? "--save-config"
                                      : "--save-only");
  if ((o->tokenize || o->token_cache) && !o->n_tokenizer)
    return pd_refuse(why, "%s needs --tokenizer PATH", o->tokenize ? "--tokenize" : "--token-cache");
  if (o->resume_anyway && !o->resume) return pd_refuse(why, "--resume-anyway needs --resume");
  if (o->skip_broken && o->n_validation)
    return pd_refuse(why, "--skip-broken is for training alone: with --validation, figures would count replaced "
                          "images. help: remove the broken files, or train without --validation");
  if (o->evaluate && o->checkpoint && !o->resume)
    return pd_refuse(why, "--evaluate ignores --checkpoint without --resume. help: add --resume");
  return true;
}

/* Refuses an option that this program would ignore. */
static bool refuse_option(const struct option *p, char *why) {
  const struct pd_stage *s = pd.stage;
  const char *program = s->generation ? "generate" : s->inference ? "infer" : "train";
  if (p->runs & TRAIN) return pd_refuse(why, "%s has no effect in %s: it is an option of train", p->name, program);
  return pd_refuse(why, "%s has no effect in %s. help: build with pdc --%s", p->name, program,
                   p->runs & INFER ? "infer" : "generate");
}

static bool expand_files(const char *option, char ***list, int *n, char *why) {
  if (!pd_expand_files(option, list, n, why)) return false;
  return pd.stage->generation || !pd_options.n_tokenizer ||
         (pd_tokenize_files(option, *list, n, why) && pd_expand_files(option, list, n, why));
}

bool pd_parse_options(struct pd_options *o, int argc, char **argv, char *why) {
  const struct option *training = NULL;
  *o = (struct pd_options){.steps = -1,
                           .device = -1,
                           .data_threads = -1,
                           .seed = 1,
                           .save_shard = 5000000000,
                           .timeout = 300,
                           .grace = 30,
                           .tokens = -1,
                           .temperature = 1,
                           .top_p = 1};
  for (int i = 1; i < argc; i++) {
    char *value;
    if (!strcmp(argv[i], "-h")) {
      o->help = true;
      continue;
    }
    const struct option *p = find(argv[i], &value);
    if (!p) return pd_refuse(why, "unknown option '%s'. help: --help lists all options", argv[i]);
    if (!belongs(pd.stage, p)) return refuse_option(p, why);
    if (!(p->runs & EVALUATE) && !training) training = p;
    char *at = (char *)o + p->at;
    if (p->kind == FLAG) {
      if (value) return pd_refuse(why, "%s takes no value", p->name);
      *(bool *)at = true;
    } else if (p->kind == PATHS || p->kind == LIST || p->kind == STOPS) {
      o->stop |= p->kind == STOPS;
      if (!parse_several(p, o, argc, argv, &i, value, why)) return false;
    } else {
      if (!value && i + 1 >= argc) return pd_refuse(why, "%s needs a value: %s", p->name, p->argument);
      if (!parse_value(p, value ? value : argv[++i], at, why)) return false;
    }
  }
  if (o->run) place_in_run(o);
  o->resume |= o->resume_or_start;
  o->save_folder = take_folder(&o->save);
  o->save_raw_folder = take_folder(&o->save_raw);
  return expand_files("--data", &o->data, &o->n_data, why) &&
         expand_files("--validation", &o->validation, &o->n_validation, why) && options_agree(o, training, why);
}
