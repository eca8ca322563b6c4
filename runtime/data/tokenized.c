/* Texts and chats among the files of --data, with --tokenizer: `pdc tokenize` writes their tokens into a cache, a folder
 * for each content, which the ranks of a machine fill one after the other before MPI starts. */
#define _GNU_SOURCE /* environ, memmem */
#include "data/load.h"
#include "run/upward.h"
#include "shared/checksum.h"
#include "shared/read_file.h"

#include <cjson/cJSON.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- kinds of files -------------------------------------------------------------------------- */

enum kind { TOKENS, TEXT, CHATS };

static bool ends_with(const char *text, const char *end) {
  size_t n = strlen(text), m = strlen(end);
  return n >= m && !strcmp(text + n - m, end);
}

/* Whether the first line that is not blank is an object of the kind that is one document. */
static bool is_document(const char *line, size_t n) {
  static const char *const chats[] = {"messages", "conversations", "prompt", "instruction"};
  cJSON *json = cJSON_ParseWithLength(line, n);
  bool document = cJSON_IsArray(json) || cJSON_IsString(cJSON_GetObjectItemCaseSensitive(json, "text")) ||
                  cJSON_IsArray(cJSON_GetObjectItemCaseSensitive(json, "input_ids"));
  for (size_t i = 0; i < sizeof chats / sizeof *chats; i++)
    document &= !cJSON_GetObjectItemCaseSensitive(json, chats[i]);
  cJSON_Delete(json);
  return document;
}

/* ---- content --------------------------------------------------------------------------------- */

struct text { /* grows; the process keeps it */
  char *at;
  size_t n, room;
};

static void add(struct text *t, const char *more) {
  const size_t n = strlen(more) + 1;
  while (t->n + n > t->room) {
    t->room = t->room ? 2 * t->room : 4096;
    t->at = realloc(t->at, t->room);
    if (!t->at) pd_fail("out of memory for the names of texts");
  }
  memcpy(t->at + t->n, more, n);
  t->n += n - 1;
}

/* Appends a file's checksum. The folder `cache` keeps it under the file's place, size and times. */
static bool add_checksum(struct text *to, const char *cache, const char *path, char *why) {
  char place[256], name[PATH_MAX], value[32];
  struct stat st;
  size_t size;
  if (stat(path, &st)) return pd_refuse(why, "cannot read '%s': %s", path, strerror(errno));
  snprintf(place, sizeof place, "%lld %lld %lld %lld.%09ld %lld.%09ld", (long long)st.st_dev, (long long)st.st_ino,
           (long long)st.st_size, (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec, (long long)st.st_ctim.tv_sec,
           st.st_ctim.tv_nsec);
  if (snprintf(name, sizeof name, "%s/seen-%016llx", cache,
               (unsigned long long)pd_checksum(place, strlen(place))) >= (int)sizeof name)
    return pd_refuse(why, "the path '%.100s...' is too long", cache);
  char *known = pd_exists(name) ? pd_read_file(name, &size, why) : NULL;
  if (known && size == 16) {
    snprintf(value, sizeof value, "%.16s", known);
    free(known);
  } else {
    const char *map = pd_map_regular(path, &size, why);
    if (!map) return false;
    snprintf(value, sizeof value, "%016llx", (unsigned long long)pd_checksum(map, size));
    munmap((void *)map, size);
    struct pd_output out;
    pd_output_close(&out,
                    pd_output_open(&out, name) && fputs(value, out.file) >= 0); /* else: computed next time */
  }
  add(to, value);
  add(to, " ");
  return true;
}

/* The files of the tokenizer that `pdc tokenize` reads. */
static bool add_tokenizer(struct text *to, const char *cache, char *why) {
  static const char *const names[] = {
      "tokenizer.json",          "vocab.json",         "merges.txt", "tokenizer_config.json",
      "special_tokens_map.json", "chat_template.jinja"};
  const struct pd_options *o = &pd_options;
  char path[PATH_MAX];
  struct stat st;
  for (int i = 0; i < o->n_tokenizer; i++) {
    const char *given = o->tokenizer[i];
    if (!strcmp(given, "bytes")) continue;
    if (stat(given, &st)) return pd_refuse(why, "cannot read --tokenizer '%s': %s", given, strerror(errno));
    if (!S_ISDIR(st.st_mode) && !add_checksum(to, cache, given, why)) return false;
    for (size_t k = 0; k < sizeof names / sizeof *names && S_ISDIR(st.st_mode); k++) {
      snprintf(path, sizeof path, "%s/%s", given, names[k]);
      if (access(path, F_OK)) continue;
      add(to, names[k]);
      if (!add_checksum(to, cache, path, why)) return false;
    }
  }
  return true;
}

/* ---- pdc tokenize ---------------------------------------------------------------------------- */

enum { MOST_WORDS = 64 };

struct job { /* the texts, or the chats, of a source */
  char **files;
  int n;
  bool chats;
};

static const char *cache_folder(void) { return pd_options.token_cache ? pd_options.token_cache : "pdc.tokens"; }
static const char *pdc_program(void) { return getenv("PDC") ? getenv("PDC") : "pdc"; }

/* Options of `pdc tokenize` for one kind of files. */
static const struct own_option {
  const char *name;
  enum kind kind;
  bool flag; /* without a value */
} own_options[] = {{"--chat-template", CHATS, false}, {"--length", CHATS, false}, {"--loss-on", CHATS, false},
                   {"--pack", CHATS, true},           {"--shard", TEXT, false},   {"--too-long", CHATS, false}};

static struct {
  bool seen[CHATS + 1];             /* by kind: files of --data or --validation have it */
  const char *left_out[CHATS + 1];  /* by kind: an ignored option, for the other kind */
  volatile pid_t child;             /* that tokenizes; 0: none */
  const char *volatile child_words; /* the file of its messages */
} tokenizing;

/* The option of the word, --NAME or --NAME=VALUE, if it belongs to another kind of files; else NULL. */
static const struct own_option *foreign_option(const char *word, enum kind kind) {
  for (const struct own_option *o = own_options; o < own_options + sizeof own_options / sizeof *own_options; o++) {
    const size_t n = strlen(o->name);
    if (o->kind != kind && !strncmp(word, o->name, n) && (!word[n] || word[n] == '=')) return o;
  }
  return NULL;
}

/* The command, without the output and the files, which come last. `length`: text of the positions of a sample. */
static bool command_of(const struct job *job, char **words, int *n, char *length, char *why) {
  const struct pd_options *o = &pd_options;
  static char several[PATH_MAX];
  words[(*n)++] = (char *)pdc_program();
  words[(*n)++] = "tokenize";
  words[(*n)++] = "--quiet";
  snprintf(several, sizeof several, "%s%s%s", o->tokenizer[0], o->n_tokenizer > 1 ? "," : "",
           o->n_tokenizer > 1 ? o->tokenizer[1] : "");
  if (strcmp(o->tokenizer[0], "bytes")) {
    words[(*n)++] = "--tokenizer";
    words[(*n)++] = several;
  }
  if (job->chats) words[(*n)++] = "--length", words[(*n)++] = length;
  if (!job->chats) words[(*n)++] = "--shard", words[(*n)++] = "1000000000";
  char *more = pd_copy_text(o->tokenize ? o->tokenize : "");
  const enum kind kind = job->chats ? CHATS : TEXT;
  tokenizing.seen[kind] = true;
  for (char *word = strtok(more, " "); word; word = strtok(NULL, " ")) {
    const struct own_option *foreign = foreign_option(word, kind);
    if (foreign) {
      tokenizing.left_out[kind] = foreign->name;
      if (!foreign->flag && !strchr(word, '=')) strtok(NULL, " ");
      continue;
    }
    if (*n == MOST_WORDS - 4) return pd_refuse(why, "--tokenize has too many words");
    words[(*n)++] = word;
  }
  return true;
}

/* The first error that `pdc tokenize` wrote. */
static bool refuse_said(const char *said, char *why) {
  size_t size;
  char cause[PD_WHY], *text = pd_read_file(said, &size, cause);
  const char *error = text ? memmem(text, size, "error: ", 7) : NULL;
  const char *end = error ? memchr(error, '\n', (size_t)(text + size - error)) : NULL;
  pd_refuse(why, "pdc tokenize: %.*s", error ? (int)((end ? end : text + size) - error - 7) : 7,
            error ? error + 7 : "failed.");
  free(text);
  return false;
}

/* ---- signals while it runs ------------------------------------------------------------------- */

static const int endings[] = {SIGHUP, SIGINT, SIGTERM};
enum { N_ENDINGS = sizeof endings / sizeof *endings };

/* The child removes its own files; this process removes the folder, then ends by the signal. */
static void end_with_child(int signal_number) {
  if (tokenizing.child > 0) {
    kill(tokenizing.child, SIGTERM);
    while (waitpid(tokenizing.child, NULL, 0) < 0 && errno == EINTR) {
    }
  }
  unlink(tokenizing.child_words);
  pd_output_abandon();
  signal(signal_number, SIG_DFL);
  raise(signal_number);
}

/* Starts the program. The signals are blocked until `child` is set. */
static int start(char **words, const char *said) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t how;
  sigset_t blocked, before;
  pid_t started = 0;
  sigemptyset(&blocked);
  for (int i = 0; i < N_ENDINGS; i++) sigaddset(&blocked, endings[i]);
  sigprocmask(SIG_BLOCK, &blocked, &before);
  posix_spawnattr_init(&how);
  posix_spawnattr_setsigmask(&how, &before);
  posix_spawnattr_setflags(&how, POSIX_SPAWN_SETSIGMASK);
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, said, O_WRONLY | O_CREAT | O_TRUNC, 0666);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  const int failed = posix_spawnp(&started, words[0], &actions, &how, words, environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&how);
  tokenizing.child = failed ? 0 : started;
  sigprocmask(SIG_SETMASK, &before, NULL);
  return failed;
}

static bool run_command(char **words, const char *said, char *why) {
  struct sigaction before[N_ENDINGS], during = {.sa_handler = end_with_child, .sa_flags = SA_RESTART};
  int status = 0, wrong = 0;
  tokenizing.child_words = said;
  for (int i = 0; i < N_ENDINGS; i++) {
    sigaction(endings[i], NULL, &before[i]);
    if (before[i].sa_handler != SIG_IGN) sigaction(endings[i], &during, NULL);
  }
  const int failed = start(words, said);
  while (!failed && !wrong && waitpid(tokenizing.child, &status, 0) < 0)
    if (errno != EINTR) wrong = errno;
  tokenizing.child = 0;
  for (int i = 0; i < N_ENDINGS; i++) sigaction(endings[i], &before[i], NULL);
  if (failed)
    return pd_refuse(why,
                     "--tokenizer needs the program '%s': %s. help: put pdc into PATH, or its path into the "
                     "variable PDC",
                     words[0], strerror(failed));
  if (wrong) return pd_refuse(why, "cannot wait for '%s': %s", words[0], strerror(wrong));
  return (WIFEXITED(status) && !WEXITSTATUS(status)) || refuse_said(said, why);
}

/* ---- kinds of files: lines ------------------------------------------------------------------- */

/* The first line of a compressed text, by pdc, in *text, malloc'd. */
static bool unpack_first_line(const char *path, char **text, size_t *size, char *why) {
  const char *cache = cache_folder();
  char said[PATH_MAX];
  char *words[] = {(char *)pdc_program(), "data", "--first-line", (char *)path, NULL};
  if (!pd_make_directories(cache, why)) return false;
  if (snprintf(said, sizeof said, "%s/first-XXXXXX", cache) >= (int)sizeof said)
    return pd_refuse(why, "the path '%.100s...' is too long", cache);
  const int file = mkstemp(said);
  if (file < 0) return pd_refuse(why, "cannot write '%s': %s", said, strerror(errno));
  close(file);
  *text = run_command(words, said, why) ? pd_read_file(said, size, why) : NULL;
  unlink(said);
  return *text != NULL;
}

/* --field names the member of documents. */
static bool kind_of(const char *path, bool has_field, enum kind *kind, char *why) {
  static const char *const tokens[] = {".bin", ".npy", ".npz", ".ids", ".idx", "ubyte", ".tar", ".zip"};
  struct stat st;
  size_t size, n;
  char *unpacked = NULL;
  *kind = TEXT;
  for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++)
    if (ends_with(path, tokens[i])) *kind = TOKENS;
  if (!stat(path, &st) && S_ISDIR(st.st_mode)) *kind = TOKENS;
  if (*kind == TOKENS || has_field || !pd_is_lines_name(path)) return true;
  const char *map = pd_map_regular(path, &size, why);
  if (!map) return false;
  const bool packed = pd_packing_of(map, size) != PD_NOT_PACKED;
  const bool good = !packed || unpack_first_line(path, &unpacked, &n, why);
  const char *at = packed ? unpacked : map, *end = at + (packed ? n : size);
  if (good) {
    while (at < end && strchr(" \t\r\n", *at)) at++;
    const char *newline = memchr(at, '\n', (size_t)(end - at));
    *kind = is_document(at, (size_t)((newline ? newline : end) - at)) ? TEXT : CHATS;
  }
  munmap((void *)map, size);
  free(unpacked);
  return good;
}

/* ---- the cache ------------------------------------------------------------------------------- */

static const char sizes[] = "sizes"; /* of a folder's files: lines of bytes and name */

/* Writes the sizes of the folder's files. */
static bool write_sizes(struct pd_output_folder *out) {
  DIR *folder = opendir(out->self.beside);
  FILE *file = folder ? pd_output_folder_file(out, sizes) : NULL;
  bool good = file != NULL;
  for (struct dirent *entry; good && (entry = readdir(folder));) {
    struct stat st;
    if (*entry->d_name == '.' || !strcmp(entry->d_name, sizes)) continue;
    good = !fstatat(dirfd(folder), entry->d_name, &st, 0) &&
           fprintf(file, "%lld %s\n", (long long)st.st_size, entry->d_name) > 0;
  }
  if (folder) closedir(folder);
  return file && pd_output_folder_file_close(file, good) && good;
}

/* Whether the folder has all files in their sizes. */
static bool is_whole(const char *folder) {
  char path[PATH_MAX], name[256];
  long long bytes;
  struct stat st;
  int files = 0;
  snprintf(path, sizeof path, "%.4000s/%s", folder, sizes);
  FILE *list = fopen(path, "r");
  bool whole = list != NULL;
  for (; whole && fscanf(list, "%lld %255s", &bytes, name) == 2; files++) {
    snprintf(path, sizeof path, "%.3800s/%s", folder, name);
    whole = !stat(path, &st) && st.st_size == bytes;
  }
  if (list) fclose(list);
  return whole && files;
}

/* Writes the job's tokens into a new folder. */
static bool fill(const struct job *job, char **words, int n, const char *folder, char *why) {
  struct pd_output_folder out;
  char output[PATH_MAX], said[PATH_MAX];
  char **all = pd_allocate(sizeof *all * (size_t)(n + job->n + 3));
  if (!pd_output_folder_open(&out, folder))
    return pd_refuse(why, "cannot write '%s': %s", folder, strerror(errno));
  snprintf(output, sizeof output, "%.4000s/%s", out.self.beside, job->chats ? "samples.npz" : "tokens.bin");
  snprintf(said, sizeof said, "%.4000s/said", out.self.beside);
  memcpy(all, words, sizeof *all * (size_t)n);
  all[n] = "-o";
  all[n + 1] = output;
  memcpy(all + n + 2, job->files, sizeof *all * (size_t)job->n);
  pd_note("tokenizing %d file%s into '%s'", job->n, job->n == 1 ? "" : "s", folder);
  const bool ran = run_command(all, said, why);
  unlink(said);
  free(all);
  const bool good = ran && (write_sizes(&out) || pd_refuse(why, "cannot write '%s': %s", folder, strerror(errno)));
  return pd_output_folder_close(&out, good) ||
         (good && pd_refuse(why, "cannot write '%s': %s", folder, strerror(errno)));
}

/* Fills the folder unless it is whole. A whole one needs no lock, so the cache may be read-only. */
static bool with_lock(const struct job *job, char **words, int n, const char *cache, const char *folder,
                      char *why) {
  char path[PATH_MAX];
  if (is_whole(folder)) return true;
  snprintf(path, sizeof path, "%.4000s/lock", cache);
  const int lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (lock < 0)
    return pd_refuse(why, "cannot write '%s': %s. help: give a folder for the tokens with --token-cache DIR", path,
                     strerror(errno));
  int failed;
  do failed = flock(lock, LOCK_EX);
  while (failed && errno == EINTR);
  if (!failed) pd_remove_left(cache, folder + strlen(cache) + 1);
  const bool good = failed ? pd_refuse(why, "cannot lock '%s': %s", path, strerror(errno))
                           : is_whole(folder) || fill(job, words, n, folder, why);
  close(lock);
  return good;
}

/* The folder of the job's tokens, as a pattern of its files. NULL after filling `why`. */
static char *tokens_of(const struct job *job, int64_t positions, char *why) {
  const char *cache = cache_folder();
  struct text key = {0};
  char *words[MOST_WORDS], length[32];
  int n = 0;
  snprintf(length, sizeof length, "%lld", (long long)positions);
  if (!pd_make_directories(cache, why) || !command_of(job, words, &n, length, why)) return NULL;
  add(&key, "1 "); /* version of the tokens of equal texts */
  for (int i = 2; i < n; i++) {
    struct stat st;
    if (!strcmp(words[i - 1], "--tokenizer")) continue;
    add(&key, words[i]);
    add(&key, " ");
    const bool file = !stat(words[i], &st) && S_ISREG(st.st_mode); /* such as a chat template */
    if (file && !add_checksum(&key, cache, words[i], why)) return NULL;
  }
  if (!add_tokenizer(&key, cache, why)) return NULL;
  for (int i = 0; i < job->n; i++) {
    add(&key, pd_is_lines_name(job->files[i]) ? "lines " : "text ");
    if (!add_checksum(&key, cache, job->files[i], why)) return NULL;
  }
  char *folder = pd_allocate(strlen(cache) + 64);
  sprintf(folder, "%s/%016llx%016llx", cache, (unsigned long long)pd_checksum(key.at, key.n),
          (unsigned long long)pd_seeded_checksum(key.at, key.n, 1));
  free(key.at);
  if (!with_lock(job, words, n, cache, folder, why)) return NULL;
  strcat(folder, job->chats ? "/samples.npz" : "/tokens*.bin");
  return folder;
}

/* ---- arguments ------------------------------------------------------------------------------- */

/* Positions of a sample of chats: the first input of tokens. */
static int64_t positions_of_model(void) {
  const struct pd_stage *s = pd.stage;
  for (int i = 0; i < s->n_inputs; i++)
    if (!pd_is_derived(&s->inputs[i]) && s->inputs[i].token && !s->inputs[i].target) return s->inputs[i].elements;
  return 0;
}

static bool same_prefix(const char *a, const char *a_path, const char *b, const char *b_path) {
  return a_path - a == b_path - b && !memcmp(a, b, (size_t)(a_path - a));
}

/* If argument `first` is a text or chats, takes all such files of its source, whose arguments become NULL. */
static bool take_job(char **list, int n, int first, struct job *job, char *why) {
  const struct pd_stage *s = pd.stage;
  const char *head = list[first], *head_path = pd_data_path(s->inputs, s->n_inputs, head);
  const bool has_field = pd_options.tokenize && strstr(pd_options.tokenize, "--field");
  job->files = pd_allocate(sizeof *job->files * (size_t)n);
  for (int i = first; i < n; i++) {
    enum kind kind;
    if (!list[i]) continue;
    const char *path = pd_data_path(s->inputs, s->n_inputs, list[i]);
    if (!same_prefix(head, head_path, list[i], path)) continue;
    if (!kind_of(path, has_field, &kind, why)) return false;
    if (kind == TOKENS && i == first) return true;
    if (kind == TOKENS) continue;
    if (!job->n) job->chats = kind == CHATS;
    if (job->chats != (kind == CHATS))
      return pd_refuse(
          why, "'%s' holds %s, unlike '%s'. help: make them sources with shares, such as a=1:FILE b=1:FILE", path,
          kind == CHATS ? "chats" : "texts", job->files[0]);
    job->files[job->n++] = (char *)path;
    list[i] = NULL;
  }
  return true;
}

bool pd_tokenize_files(const char *option, char **list, int *n, char *why) {
  const struct pd_stage *s = pd.stage;
  const int64_t positions = positions_of_model();
  int left = 0;
  for (int i = 0; i < *n; i++) {
    struct job job = {0};
    char *head = list[i];
    if (!head) continue;
    const char *path = pd_data_path(s->inputs, s->n_inputs, head);
    if (!take_job(list, *n, i, &job, why)) return false;
    if (!job.n) continue;
    if (path > head && path[-1] == '=')
      return pd_refuse(why, "%s '%s': a file of an input is not tokenized. help: leave out the input's name",
                       option, head);
    if (!positions) return pd_refuse(why, "--tokenizer has no use: the model has no input of tokens");
    const char *folder = tokens_of(&job, positions, why);
    if (!folder) return false;
    list[i] = pd_allocate((size_t)(path - head) + strlen(folder) + 1);
    memcpy(list[i], head, (size_t)(path - head));
    strcpy(list[i] + (path - head), folder);
  }
  for (int i = 0; i < *n; i++)
    if (list[i]) list[left++] = list[i];
  *n = left;
  for (enum kind kind = TEXT; kind <= CHATS; kind++) {
    if (tokenizing.left_out[kind] && !tokenizing.seen[TEXT + CHATS - kind])
      pd_note("--tokenize: %s has no effect: %s has no %s", tokenizing.left_out[kind], option,
              kind == TEXT ? "chats" : "texts");
    tokenizing.left_out[kind] = NULL;
  }
  return true;
}
