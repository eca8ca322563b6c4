/* Input: STEM.resume, which `pdc tokenize --shard --resume` left. Reads it for a call whose complete shards are there. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fuzz.h"
#include "tokenize/internal.h"

enum { SHARD_TOKENS = 8, SHARDS = 3 };

static char folder[] = "/tmp/fuzz-resume-XXXXXX";
static char output[64], state[64], text[64];
static const char *const texts[] = {text, text};
static const TokenizeRequest request = {
    .files = texts, .n_files = 2, .output = output, .shard = SHARD_TOKENS, .resume = true, .quiet = true};

static void remove_folder(void) {
  for (int i = 0; i < SHARDS; i++) unlink(output_path(&request, i));
  unlink(state);
  unlink(text);
  rmdir(folder);
}

static void write_bytes(const char *path, const void *bytes, size_t n) {
  FILE *file = fopen(path, "w");
  ensure(file && fwrite(bytes, 1, n, file) == n && fclose(file) == 0);
}

static void make_folder(void) {
  static const char shard[SHARD_HEADER + 2 * SHARD_TOKENS];
  ensure(mkdtemp(folder));
  snprintf(output, sizeof output, "%s/t.bin", folder);
  snprintf(state, sizeof state, "%s/t.resume", folder);
  snprintf(text, sizeof text, "%s/t.txt", folder);
  write_bytes(text, "some text\n", 10);
  for (int i = 0; i < SHARDS; i++) write_bytes(output_path(&request, i), shard, sizeof shard);
  atexit(remove_folder);
}

/* The state's checksum of the call is the call's own, so that inputs get behind it. */
static bool read_as_own(const uint8_t *data, size_t size, TokenFiles *f, char *why) {
  static const char call[] = "pdc tokenize 1\ncall ";
  const size_t n = strlen(call);
  if (size < n || memcmp(data, call, n) != 0) {
    write_bytes(state, data, size);
    return resume_read(f, why);
  }
  unlink(state);
  ensure(resume_read(f, why)); /* identifies the call */
  const char *rest = memchr(data + n, '\n', size - n);
  FILE *file = fopen(state, "w");
  ensure(file);
  fprintf(file, "%s%llx", call, (unsigned long long)f->call);
  if (rest) fwrite(rest, 1, size - (size_t)(rest - (const char *)data), file);
  ensure(fclose(file) == 0);
  return resume_read(f, why);
}

static int run(const uint8_t *data, size_t size) {
  char why[PD_WHY] = "";
  TokenFiles f = {.request = &request, .bytes = 2, .end = NO_END};
  if (!*output) make_folder();
  const bool good = read_as_own(data, size, &f, why);
  if (good == (*why != 0)) abort();
  if (!good || !f.earlier) return 0;
  const Place *p = &f.place;
  if (f.files < 1 || f.files > SHARDS || f.earlier != (int64_t)f.files * SHARD_TOKENS || f.skip < 0 || f.n < 0)
    abort();
  if (p->file < 0 || p->file >= request.n_files || p->offset < 0 || f.n + f.skip != f.earlier) abort();
  Texts t;
  if (texts_open(&t, &request, NULL, why) && texts_resume(&t, p, why) && t.at >= t.size) abort();
  texts_close(&t);
  return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) { return size ? fuzz_afresh(run, data, size) : 0; }
