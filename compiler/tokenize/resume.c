/* `pdc tokenize --resume`: after each complete shard, STEM.resume has the place from which a later call continues. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shared/checksum.h"
#include "shared/read_file.h"
#include "tokenize/internal.h"

#define STATE                                                                                                 \
  "pdc tokenize 1\ncall %" PRIx64 "\nshards %d\nfile %d\noffset %" PRId64 "\nline %" PRId64 "\ntext %" PRId64 \
  "\ndocuments %" PRId64 "\nin_document %" PRId64 "\ntokens %" PRId64 "\nend\n"
#define STATE_READ                                                                                      \
  "pdc tokenize 1 call %" SCNx64 " shards %d file %d offset %" SCNd64 " line %" SCNd64 " text %" SCNd64 \
  " documents %" SCNd64 " in_document %" SCNd64 " tokens %" SCNd64 " %3s"
enum { STATE_FIELDS = 10 };

static const char *state_path(const TokenizeRequest *request) {
  return format("%.*s.resume", (int)(strlen(request->output) - strlen(".bin")), request->output);
}

bool resume_is_possible(const TokenizeRequest *request) {
  return request->resume && access(state_path(request), F_OK) == 0;
}

/* ---- the call ------------------------------------------------------------------------------------ */

static bool add_tokenizer(struct pd_checksum *c, const char *name, char *why) {
  char *path[2] = {NULL, NULL};
  const int n = name ? tokenizer_files(name, path) : 0;
  for (int i = 0; i < n; i++) {
    size_t size;
    const void *map = pd_map_regular(path[i], &size, why);
    if (!map)
      return false;
    pd_checksum_add(c, map, size);
    munmap((void *)map, size);
  }
  return true;
}

static bool add_texts(struct pd_checksum *c, const TokenizeRequest *request, char *why) {
  for (int i = 0; i < request->n_files; i++) {
    struct stat st;
    if (stat(request->files[i], &st))
      return pd_refuse(why, "cannot read '%s': %s", request->files[i], strerror(errno));
    const char *text = format("%s %lld %lld %ld\n", request->files[i], (long long)st.st_size,
                              (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
    pd_checksum_add(c, text, strlen(text));
  }
  return true;
}

/* A checksum of everything that the tokens follow from: the tokenizer, the texts by size and time, the options. */
static bool identify(TokenFiles *f, char *why) {
  const TokenizeRequest *r = f->request;
  struct pd_checksum *c = pd_checksum_start();
  const char *options =
      format("%d %d %lld %s\n", f->bytes, (int)f->end, (long long)r->shard, r->field ? r->field : "");
  if (!c)
    return pd_refuse(why, "no memory for a checksum");
  pd_checksum_add(c, options, strlen(options));
  const bool good = add_tokenizer(c, r->tokenizer, why) && add_texts(c, r, why);
  f->call = pd_checksum_end(c);
  return good;
}

/* ---- the state ----------------------------------------------------------------------------------- */

bool resume_write(const TokenFiles *f, char *why) {
  const char *path = state_path(f->request);
  const Place *p = &f->place;
  struct pd_output o;
  bool good = open_beside(&o, path);
  good = good && fprintf(o.file, STATE, f->call, f->files, p->file, p->offset, p->line, p->text, p->documents,
                         p->in_document, p->tokens) > 0;
  good = close_beside(&o, good) && good;
  return good || pd_refuse(why, "cannot write '%s': %s", path, strerror(errno));
}

static bool tell_damaged(const TokenFiles *f, char *why) {
  return pd_refuse(why, "'%s' is damaged. help: remove it and the shards of the call, and begin again",
                   state_path(f->request));
}

static bool read_state(TokenFiles *f, uint64_t *call, char *why) {
  const char *path = state_path(f->request);
  Place *p = &f->place;
  char *text, end[4] = "";
  size_t size;
  const char *read = pd_read_file(path, &size, why);
  if (!read)
    return false;
  text = format("%.*s", (int)(size < 4096 ? size : 4096), read);
  free((void *)read);
  const int n = sscanf(text, STATE_READ, call, &f->files, &p->file, &p->offset, &p->line, &p->text, &p->documents,
                       &p->in_document, &p->tokens, end);
  return (n == STATE_FIELDS && !strcmp(end, "end")) || tell_damaged(f, why);
}

/* Of a state of this call: other calls have other files and shards. */
static bool is_possible(const TokenFiles *f) {
  const Place *p = &f->place;
  return f->files > 0 && p->file >= 0 && p->file < f->request->n_files && p->offset >= 0 && p->line >= 0 &&
         p->text >= 0 && p->documents >= 0 && p->in_document >= 0 && p->tokens >= 0 &&
         p->tokens <= f->files * f->request->shard;
}

/* The complete shards have their size. */
static bool check_shards(const TokenFiles *f, char *why) {
  for (int i = 0; i < f->files; i++) {
    struct stat st;
    const char *path = output_path(f->request, i);
    if (stat(path, &st))
      return pd_refuse(why, "cannot read '%s', a shard of the call that --resume continues: %s", path,
                       strerror(errno));
    if (st.st_size != SHARD_HEADER + f->request->shard * f->bytes)
      return pd_refuse(
          why, "'%s' has not the size of a complete shard. help: remove '%s' and its shards, and begin again",
          path, state_path(f->request));
  }
  return true;
}

bool resume_read(TokenFiles *f, char *why) {
  uint64_t call;
  const bool again = resume_is_possible(f->request);
  if (!identify(f, why) || !again)
    return !*why;
  if (!read_state(f, &call, why))
    return false;
  if (call != f->call)
    return pd_refuse(
        why,
        "'%s' is of a call with other texts, tokenizer or options. help: give the same ones, or remove it "
        "and its shards to begin again",
        state_path(f->request));
  if (!is_possible(f))
    return tell_damaged(f, why);
  f->n = f->place.tokens;
  f->skip = f->files * f->request->shard - f->n;
  f->earlier = f->files * f->request->shard;
  if (!f->request->quiet)
    fprintf(stderr, "pdc: note: continues after %d complete shard%s\n", f->files, f->files == 1 ? "" : "s");
  return check_shards(f, why);
}

void resume_end(const TokenizeRequest *request) {
  if (request->resume)
    unlink(state_path(request));
}
