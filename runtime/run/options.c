/* The options of `train`, `infer` and `generate`. Every rank reads the same command line. */
#include "run/upward.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct pd_options pd_options;
bool pd_without_targets;

bool pd_only_evaluates(void) { return pd.stage->inference || pd_options.evaluate; }

enum kind { FLAG, COUNT, POSITIVE, SEED, SECONDS, RATE, NUMBER, OUTPUT, AUGMENT, TOKENS, PATH, TEXT, PATHS, LIST };
/* What an option is for: TRAINING ones are refused where nothing is trained. */
enum purpose {
  ANY_RUN,
  INFERENCE, /* of what infer alone does */
  TRAINING,
  STATE /* of a training, which --evaluate reads, too */,
  OF_TRAIN /* programs */,
  SEEDED /* what infer draws nothing for */,
  OF_GENERATE,
  OF_OTHERS /* than generate */
};

struct option {
  const char *name;
  enum kind kind;
  size_t at; /* into pd_options; PATHS, which is given once, and LIST, which may be repeated: the char **,
              * whose count is at `count` */
  size_t count;
  const char *argument, *help;
  enum purpose purpose;
};

#define AT(member) offsetof(struct pd_options, member)
static const struct option options[] = {
    {"--data", PATHS, AT(data), AT(n_data), "PATH...",
     "text, .ids, llm.c or CIFAR-10 .bin, .npy, .npz, MNIST's idx, or a pattern of names; NAME=PATH for one input",
     OF_OTHERS},
    {"--validation", PATHS, AT(validation), AT(n_validation), "PATH...", "the same, held out", TRAINING},
    {"--validate-every", POSITIVE, AT(validate_every), 0, "K", "validate after every K updates, and at the end",
     TRAINING},
    {"--evaluate", FLAG, AT(evaluate), 0, NULL, "loss and metrics over --data, and no training", OF_TRAIN},
    {"--augment", AUGMENT, AT(augment), 0, "CHANGES",
     "of the images trained on, at random: flip, crop=PIXELS or flip,crop=PIXELS", TRAINING},
    {"--predict", PATHS, AT(predict), AT(n_predict), "[NAME=]PATH...",
     "write outputs of the model over --data, as .npy", INFERENCE},
    {"--token-type", TOKENS, AT(token_bytes), 0, "u8|u16|u32",
     "what .bin files without a header hold, such as nanoGPT's; u8: bytes, also of texts for any model",
     OF_OTHERS},
    {"--pad", COUNT, AT(pad), 0, "TOKEN", "what fills up lines shorter than their input (default 0)", OF_OTHERS},
    {"--steps", COUNT, AT(steps), 0, "N", "weight updates; 0: only --save and --validation", TRAINING},
    {"--prompt", TEXT, AT(prompt), 0, "TEXT", "to continue (default: standard input)", OF_GENERATE},
    {"--prompt-file", PATH, AT(prompt_file), 0, "FILE", "the text to continue", OF_GENERATE},
    {"--prompt-tokens", TEXT, AT(prompt_tokens), 0, "N,N,..", "tokens to continue, by number", OF_GENERATE},
    {"--tokenizer", PATHS, AT(tokenizer), AT(n_tokenizer), "FILE...",
     "tokenizer.json, or vocab.json and merges.txt (default: tokens are bytes)", OF_GENERATE},
    {"--tokens", COUNT, AT(tokens), 0, "N", "how many to add (default 100)", OF_GENERATE},
    {"--temperature", NUMBER, AT(temperature), 0, "T",
     "logits are divided by it; 0: always the most probable token (default 1)", OF_GENERATE},
    {"--top-k", COUNT, AT(top_k), 0, "K", "draw from the K most probable tokens; 0: from all (default)",
     OF_GENERATE},
    {"--top-p", NUMBER, AT(top_p), 0, "P",
     "draw from the most probable ones that add up to P; 1: from all (default)", OF_GENERATE},
    {"--stop", FLAG, AT(stop), 0, NULL, "end at the token that ends a text", OF_GENERATE},
    {"--window", FLAG, AT(window), 0, NULL, "drop the earlier half of a full context and go on", OF_GENERATE},
    {"--output", OUTPUT, AT(token_numbers), 0, "text|tokens", "what to print (default text)", OF_GENERATE},
    {"--seed", SEED, AT(seed), 0, "S", "of initial weights, sample order, dropout and drawn tokens (default 1)",
     SEEDED},
    {"--init", LIST, AT(init), AT(n_init), "PATH...",
     "start from weights: safetensors, their index.json, folders of a checkpoint's step", ANY_RUN},
    {"--init-partial", LIST, AT(init_partial), AT(n_init_partial), "PATTERN...",
     "parameters that may start fresh where --init's files lack them or have other shapes", TRAINING},
    {"--rename", LIST, AT(rename), AT(n_rename), "OLD=NEW...",
     "names in --init's files to the model's; what * and ? stand for is kept", ANY_RUN},
    {"--save", PATH, AT(save), 0, "FILE", "write the weights at the end, as safetensors", TRAINING},
    {"--save-raw", PATH, AT(save_raw), 0, "FILE", "with ema: write the weights that are not averaged", TRAINING},
    {"--checkpoint", PATH, AT(checkpoint), 0, "DIR", "keep the training's state in this directory", STATE},
    {"--checkpoint-every", POSITIVE, AT(checkpoint_every), 0, "K", "after every K updates, and at the end",
     TRAINING},
    {"--keep", POSITIVE, AT(keep), 0, "N", "of the checkpoints only the newest N, and the best by validation",
     TRAINING},
    {"--keep-every", POSITIVE, AT(keep_every), 0, "K", "with --keep: also those after every K updates", TRAINING},
    {"--checkpoint-optional", FLAG, AT(checkpoint_optional), 0, NULL,
     "go on when a checkpoint cannot be written: the one before is kept", TRAINING},
    {"--checkpoint-background", FLAG, AT(checkpoint_background), 0, NULL,
     "copy the state and write it while training goes on; takes memory for the copy", TRAINING},
    {"--resume", FLAG, AT(resume), 0, NULL, "continue from the directory's newest state, if it has one", STATE},
    {"--resume-or-start", FLAG, AT(resume_or_start), 0, NULL,
     "the same; without a checkpoint start from the first update", TRAINING},
    {"--resume-anyway", FLAG, AT(resume_anyway), 0, NULL,
     "also where the checkpoint's model computes something else", STATE},
    {"--log", PATH, AT(log), 0, "FILE", "one JSON line an update, or an evaluation", OF_OTHERS},
    {"--tensorboard", PATH, AT(tensorboard), 0, "DIR", "the log's figures as an event file for TensorBoard",
     TRAINING},
    {"--trace", PATH, AT(trace), 0, "FILE", "what every rank did when, as a Chrome trace", ANY_RUN},
    {"--run", PATH, AT(run), 0, "DIR", "write log.jsonl, trace.json and the plan there, for pdc report",
     OF_OTHERS},
    {"--stop-when", TEXT, AT(stop_when), 0, "RULE",
     "end after a validation where this holds, as \"validation_loss > best * 1.1\"", TRAINING},
    {"--spill", PATH, AT(spill), 0, "DIR",
     "keep what is not in memory in a file there, which is gone with the run; host: in a GPU's host's memory",
     OF_TRAIN},
    {"--device", COUNT, AT(device), 0, "N",
     "on GPUs: the device, by CUDA's number (default: the rank's number on its machine)", ANY_RUN},
    {"--comm", PATH, AT(comm), 0, "WAY",
     "how messages travel: shared or mpi; between GPUs peer, nccl or mpi (default: what suits)", ANY_RUN},
    {"--timeout", SECONDS, AT(timeout), 0, "SECONDS", "a peer silent for so long is an error (default 300)",
     ANY_RUN},
    {"--check-messages", FLAG, AT(check_messages), 0, NULL,
     "send a checksum with each message between stages and replicas, and compare", ANY_RUN},
    {"--audit", POSITIVE, AT(audit), 0, "K",
     "every K updates run a microbatch's passes and the update twice, and verify weights and moments", TRAINING},
    {"--grace", SECONDS, AT(grace), 0, "SECONDS",
     "a signal to stop gives the update under way so long (default 30)", TRAINING},
    {"--peak", RATE, AT(peak), 0, "FLOPS",
     "of all ranks together, for mfu, as 235e9 or 235GFLOPS (default: measured)", OF_TRAIN},
    {"--emulate", FLAG, AT(emulate), 0, NULL, "sleep for the planned times instead of computing", OF_OTHERS},
    {"--graphs", FLAG, AT(graphs), 0, NULL, "on GPUs: launch each pass as one CUDA graph", ANY_RUN},
    {"--quiet", FLAG, AT(quiet), 0, NULL, "no progress and no notes", ANY_RUN},
    {"--help", FLAG, AT(help), 0, NULL, "print this", ANY_RUN},
};
enum { N_OPTIONS = sizeof options / sizeof *options };

static bool belongs(const struct pd_stage *s, const struct option *o) {
  switch (o->purpose) {
  case ANY_RUN: return true;
  case INFERENCE: return s->inference && !s->generation;
  case OF_GENERATE: return s->generation != NULL;
  case OF_OTHERS: return !s->generation;
  case SEEDED: return s->generation || !s->inference;
  default: return !s->inference;
  }
}

void pd_print_usage(const struct pd_stage *stage) {
  const char *plural = stage->n_stages == 1 ? "" : "s";
  if (stage->generation)
    printf("usage: mpirun -n %d generate --init FILE [--prompt TEXT] [options]\n"
           "continues a text by %s: %d stage%s, %lld at once\n\n",
           pd_planned_ranks(), stage->model, stage->n_stages, plural, (long long)stage->microbatch);
  else if (stage->inference)
    printf("usage: mpirun -n %d infer --data PATH... --init FILE [options]\n"
           "evaluates %s: %d stage%s, microbatches of %lld\n\n",
           pd_planned_ranks(), stage->model, stage->n_stages, plural, (long long)stage->microbatch);
  else
    printf("usage: mpirun -n %d train --data PATH... --steps N [options]\n"
           "trains %s: %d stage%s, schedule %s, batches of %lld\n\n",
           pd_planned_ranks(), stage->model, stage->n_stages, plural, stage->schedule, (long long)stage->batch);
  for (const struct option *o = options; o < options + N_OPTIONS; o++) {
    if (!belongs(stage, o)) continue;
    char left[40];
    snprintf(left, sizeof left, "%s %s", o->name, o->argument ? o->argument : "");
    printf("  %-20s %s\n", left, o->help);
  }
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

/* flip, crop=PIXELS or both, with a comma between. */
static bool parse_augment(const char *text, struct pd_augment *a) {
  static const char crop[] = "crop=";
  for (;; text++) {
    size_t n = strcspn(text, ",");
    if (n == 4 && !strncmp(text, "flip", n))
      a->flip = true;
    else if (n > sizeof crop - 1 && n < sizeof crop + 4 && !strncmp(text, crop, sizeof crop - 1)) {
      char pixels[8] = "";
      memcpy(pixels, text + sizeof crop - 1, n - (sizeof crop - 1));
      if (!parse_count(pixels, 1, &a->crop)) return false;
    } else
      return false;
    text += n;
    if (!*text) return true;
  }
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
           pd_refuse(why, "%s needs a whole number from 1 up, not '%s'", o->name, text);
  case SEED:
    errno = 0;
    *(uint64_t *)at = strtoull(text, &end, 10);
    return (*text >= '0' && *text <= '9' && !*end && !errno) ||
           pd_refuse(why, "%s needs a whole number, not '%s'", o->name, text);
  case SECONDS:
    seconds = strtod(text, &end);
    if (end == text || *end || !(seconds > 0 && seconds < 1e9))
      return pd_refuse(why, "%s needs seconds, not '%s'", o->name, text);
    *(double *)at = seconds;
    return true;
  case RATE:
    return parse_rate(text, (double *)at) ||
           pd_refuse(why, "%s needs operations a second, as 235e9 or 235GFLOPS, not '%s'", o->name, text);
  case NUMBER:
    *(double *)at = strtod(text, &end);
    return (end != text && !*end && *(double *)at >= 0 && *(double *)at < 1e9) ||
           pd_refuse(why, "%s needs a number from 0 up, not '%s'", o->name, text);
  case OUTPUT:
    *(bool *)at = !strcmp(text, "tokens");
    return !strcmp(text, "text") || *(bool *)at ||
           pd_refuse(why, "%s needs text or tokens, not '%s'", o->name, text);
  case TEXT: *(const char **)at = text; return true;
  case AUGMENT:
    return parse_augment(text, (struct pd_augment *)at) ||
           pd_refuse(why, "%s needs flip, crop=PIXELS or both with a comma, not '%s'", o->name, text);
  case TOKENS:
    *(int *)at = !strcmp(text, "u8") ? 1 : !strcmp(text, "u16") ? 2 : !strcmp(text, "u32") ? 4 : 0;
    return *(int *)at || pd_refuse(why, "%s needs u8, u16 or u32, not '%s'", o->name, text);
  default:
    if (!*text) return pd_refuse(why, "%s needs a path", o->name);
    *(const char **)at = text;
    return true;
  }
}

/* The option that argument `a` names; its value, when it is written as --name=value, in *value. */
static const struct option *find(char *a, char **value) {
  *value = strchr(a, '=');
  size_t n = *value ? (size_t)(*value - a) : strlen(a);
  if (*value) ++*value;
  for (const struct option *o = options; o < options + N_OPTIONS; o++)
    if (strlen(o->name) == n && !strncmp(o->name, a, n)) return o;
  return NULL;
}

/* --run DIR names the files that no option of their own names. */
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

/* Takes the arguments behind argv[*i], up to the next option, and `value` before them, if there is one. */
static bool parse_several(const struct option *p, struct pd_options *o, int argc, char **argv, int *i, char *value,
                          char *why) {
  char ***list = (char ***)((char *)o + p->at);
  int *n = (int *)((char *)o + p->count), before = *n;
  if (before && p->kind == PATHS)
    return pd_refuse(why, "%s is given twice; it takes several paths at once", p->name);
  if (value) argv[*i] = value;
  char **first = argv + *i + !value;
  int more = value != NULL;
  for (; *i + 1 < argc && argv[*i + 1][0] != '-'; ++*i) more++;
  if (!more) return pd_refuse(why, "%s needs %s", p->name, p->kind == PATHS ? "a path" : p->argument);
  char **whole = pd_allocate(sizeof *whole * (size_t)(before + more));
  if (before) memcpy(whole, *list, sizeof *whole * (size_t)before);
  memcpy(whole + before, first, sizeof *whole * (size_t)more);
  *list = whole;
  *n = before + more;
  return true;
}

/* `training`: the first option given that --evaluate has no use for, or NULL. */
static bool options_agree(struct pd_options *o, const struct option *training, char *why) {
  if (o->evaluate && training) return pd_refuse(why, "%s trains, and --evaluate does not", training->name);
  if ((o->n_init_partial || o->n_rename) && !o->n_init)
    return pd_refuse(why, "%s needs --init PATH", o->n_rename ? "--rename" : "--init-partial");
  if (o->validate_every && !o->n_validation) return pd_refuse(why, "--validate-every needs --validation PATH");
  if (o->stop_when && !o->n_validation) return pd_refuse(why, "--stop-when needs --validation PATH");
  if ((o->checkpoint_every || o->resume) && !o->checkpoint)
    return pd_refuse(why, "%s needs --checkpoint DIR", o->resume ? "--resume" : "--checkpoint-every");
  if ((o->keep || o->checkpoint_optional || o->checkpoint_background) && !o->checkpoint)
    return pd_refuse(why, "%s needs --checkpoint DIR",
                     o->keep                  ? "--keep"
                     : o->checkpoint_optional ? "--checkpoint-optional"
                                              : "--checkpoint-background");
  if (o->keep_every && !o->keep) return pd_refuse(why, "--keep-every needs --keep N: without it all are kept");
  if (o->resume_anyway && !o->resume) return pd_refuse(why, "--resume-anyway needs --resume");
  if (o->evaluate && o->checkpoint && !o->resume)
    return pd_refuse(why, "--evaluate reads --checkpoint's state with --resume");
  return true;
}

bool pd_parse_options(struct pd_options *o, int argc, char **argv, char *why) {
  const struct option *training = NULL;
  *o = (struct pd_options){.steps = -1,
                           .device = -1,
                           .seed = 1,
                           .timeout = 300,
                           .grace = 30,
                           .tokens = 100,
                           .temperature = 1,
                           .top_p = 1};
  for (int i = 1; i < argc; i++) {
    char *value;
    if (!strcmp(argv[i], "-h")) {
      o->help = true;
      continue;
    }
    const struct option *p = find(argv[i], &value);
    if (!p) return pd_refuse(why, "unknown option '%s'; --help lists them", argv[i]);
    if (!belongs(pd.stage, p) && (pd.stage->generation || p->purpose == OF_GENERATE))
      return pd_refuse(why, "%s is not for %s", p->name,
                       pd.stage->generation ? "generating" : "this program: pdc --generate makes one");
    if (!belongs(pd.stage, p) && p->purpose == INFERENCE)
      return pd_refuse(why, "%s is for programs that run the model alone: build them with pdc --infer", p->name);
    if (!belongs(pd.stage, p))
      return pd_refuse(why, "%s is for training: this program runs the model alone (pdc --infer)", p->name);
    if ((p->purpose == TRAINING || p->purpose == SEEDED) && !training) training = p;
    char *at = (char *)o + p->at;
    if (p->kind == FLAG) {
      if (value) return pd_refuse(why, "%s takes no value", p->name);
      *(bool *)at = true;
    } else if (p->kind == PATHS || p->kind == LIST) {
      if (!parse_several(p, o, argc, argv, &i, value, why)) return false;
    } else {
      if (!value && i + 1 >= argc) return pd_refuse(why, "%s needs a value: %s", p->name, p->argument);
      if (!parse_value(p, value ? value : argv[++i], at, why)) return false;
    }
  }
  if (o->run) place_in_run(o);
  o->resume |= o->resume_or_start;
  return pd_expand_files("--data", &o->data, &o->n_data, why) &&
         pd_expand_files("--validation", &o->validation, &o->n_validation, why) && options_agree(o, training, why);
}
