/* Checks that all ranks read the same files. Options are compared as text (start.c), but a path may be a different
 * file on another host, or have a different length a moment later; with such files ranks would compute results
 * that no single rank computes, or deadlock. */
#include "checkpoint/checkpoint.h"
#include "data/load.h"
#include "messages/messages.h"

#include "shared/checksum.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- files ----------------------------------------------------------------------------------- */

struct seen {
  int64_t bytes;
  uint64_t sample;
};

/* A digest that must be equal on all ranks; details are exchanged only if it differs. */
struct digest {
  int64_t files, training, evaluation; /* how many; samples */
  uint64_t content;                    /* of the files' struct seen, in the order of opening */
};

static struct seen *look(int first, int n) {
  struct seen *all = pd_allocate(sizeof *all * (size_t)(n > first ? n - first : 0));
  for (int i = first; i < n; i++) {
    struct pd_mapped file = pd_mapped_file(i);
    all[i - first] = (struct seen){(int64_t)file.size, pd_sampled_checksum(file.at, file.size)};
  }
  return all;
}

static int64_t samples_of(const struct pd_dataset *data) { return data ? pd_dataset_samples(data) : 0; }

static bool all_alike(const struct digest *mine, const struct digest *of_first) {
  int alike = !memcmp(mine, of_first, sizeof *mine), all;
  MPI_Request request;
  MPI_Iallreduce(&alike, &all, 1, MPI_INT, MPI_MIN, pd_comm_everyone, &request);
  pd_wait(1, &request, "all ranks to compare their files", -1, NULL, -1);
  return all;
}

/* Compares this rank's files with rank 0's. */
static void compare(int first, const struct seen *mine, const struct seen *of_first,
                    const struct digest *my_digest, const struct digest *digest, char *why) {
  for (int i = 0; i < digest->files && i < my_digest->files; i++) {
    const char *path = pd_mapped_file(first + i).path;
    if (mine[i].bytes != of_first[i].bytes) {
      pd_refuse(why, "'%s' has %lld bytes on this rank, but %lld on rank 0. help: give every rank the same file",
                path, (long long)mine[i].bytes, (long long)of_first[i].bytes);
      return;
    }
    if (mine[i].sample != of_first[i].sample) {
      pd_refuse(why, "the content of '%s' differs from rank 0's. help: give every rank the same file", path);
      return;
    }
  }
  if (my_digest->files != digest->files)
    pd_refuse(why, "this rank reads %lld files, but rank 0 reads %lld. help: give every rank the same files",
              (long long)my_digest->files, (long long)digest->files);
  else if (my_digest->training != digest->training || my_digest->evaluation != digest->evaluation)
    pd_refuse(
        why,
        "this rank finds %lld samples (%lld for validation), but rank 0 finds %lld (%lld). help: give every rank "
        "the same files",
        (long long)my_digest->training, (long long)my_digest->evaluation, (long long)digest->training,
        (long long)digest->evaluation);
}

void pd_agree_on_files(int first) {
  char why[PD_WHY] = "";
  int n = pd_mapped_files();
  struct seen *mine = look(first, n);
  struct digest digest = {.files = n - first,
                          .training = samples_of(pd_training_data),
                          .evaluation = samples_of(pd_evaluation_data),
                          .content = pd_checksum(mine, sizeof *mine * (size_t)(n - first))},
                of_first = digest;
  MPI_Request request;
  MPI_Ibcast(&of_first, sizeof of_first, MPI_BYTE, 0, pd_comm_everyone, &request);
  pd_wait(1, &request, "rank 0's list of files", -1, NULL, -1);
  if (!all_alike(&digest, &of_first)) {
    size_t bytes = sizeof *mine * (size_t)of_first.files;
    struct seen *theirs = pd_allocate(bytes);
    if (!pd.self) memcpy(theirs, mine, bytes);
    MPI_Ibcast(theirs, (int)bytes, MPI_BYTE, 0, pd_comm_everyone, &request);
    pd_wait(1, &request, "rank 0's list of files", -1, NULL, -1);
    compare(first, mine, theirs, &digest, &of_first, why);
    free(theirs);
    pd_agree(why);
  }
  free(mine);
}

/* ---- the folder of checkpoints --------------------------------------------------------------- */

struct token {
  int64_t pid;
  uint64_t number;
};

static void check_token(const char *path, uint64_t number, char *why) {
  uint64_t found = 0;
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0 || read(fd, &found, sizeof found) != sizeof found || found != number)
    pd_refuse(
        why,
        "'%s' is not the same directory as on rank 0: it lacks '%s', which rank 0 wrote. help: use a directory "
        "that all ranks share",
        pd_options.checkpoint, path);
  if (fd >= 0) close(fd);
}

void pd_agree_on_folder(void) {
  char why[PD_WHY] = "", path[PD_PATH];
  struct timespec now;
  struct pd_output out = {.file = NULL};
  if (!pd_options.checkpoint || pd_options.evaluate) return;
  if (snprintf(path, sizeof path, "%s/shared", pd_options.checkpoint) >= PD_PATH)
    pd_refuse(why, "the path '%.100s...' is too long", pd_options.checkpoint);
  clock_gettime(CLOCK_REALTIME, &now);
  struct token token = {getpid(), pd_checksum(&now, sizeof now)};
  if (!pd.self && !*why && pd_checkpoint_folder(why) &&
      (!pd_output_open(&out, path) || fwrite(&token.number, sizeof token.number, 1, out.file) != 1 ||
       fflush(out.file) || fsync(fileno(out.file))))
    pd_refuse(why, "cannot write '%s': %s", path, strerror(errno));
  pd_agree(why);
  MPI_Request request;
  MPI_Ibcast(&token, sizeof token, MPI_BYTE, 0, pd_comm_everyone, &request);
  pd_wait(1, &request, "rank 0's test file", -1, NULL, -1);
  snprintf(path, sizeof path, "%s/shared.%lld.new", pd_options.checkpoint, (long long)token.pid);
  check_token(path, token.number, why);
  pd_agree(why);
  pd_output_close(&out, false);
}
