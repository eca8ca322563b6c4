/* The end of pdc tokenize by a signal: files of the call are removed. A mapped file that becomes shorter is an error. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "shared/read_file.h"
#include "tokenize/internal.h"

/* Files of a batch, the next one, and pieces of it. Only the thread that reads texts changes them. */
static struct {
  const char *path, *at; /* at NULL: unused */
  size_t bytes;
} mapped[MOST_PARTS + 3];
enum { N_MAPPED = sizeof mapped / sizeof *mapped };

static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGBUS};
enum { N_NUMBERS = sizeof numbers / sizeof *numbers };
static struct sigaction before[N_NUMBERS];
static const TokenFiles *volatile watched;
static pthread_t writer; /* the thread that called signals_watch() opens and closes files */
static atomic_flag reported = ATOMIC_FLAG_INIT;

static void watch(const char *path, const char *at, size_t bytes) {
  int i = 0;
  while (i < N_MAPPED && mapped[i].at)
    i++;
  ensure(i < N_MAPPED);
  mapped[i].path = path;
  mapped[i].bytes = bytes;
  mapped[i].at = at;
}

const char *map_watched(const char *path, size_t *bytes, char *why) {
  const char *at = pd_map_regular(path, bytes, why);
  if (at)
    watch(path, at, *bytes);
  return at;
}

char *map_memory(const char *path, size_t bytes, char *why) {
  char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) {
    pd_refuse(why, "cannot read '%s': no memory for %zu bytes of it", path, bytes);
    return NULL;
  }
  watch(path, at, bytes);
  return at;
}

void unmap_watched(const char *at) {
  for (int i = 0; at && i < N_MAPPED; i++)
    if (mapped[i].at == at) {
      munmap((void *)at, mapped[i].bytes);
      mapped[i].at = NULL;
      return;
    }
}

static void remove_files(void) {
  pd_output_abandon();
  for (const Shard *s = watched ? watched->shards : NULL; s; s = s->before)
    unlink(s->path);
}

void signals_hold(bool hold) {
  sigset_t set;
  sigemptyset(&set);
  for (int i = 0; i < N_NUMBERS; i++)
    if (numbers[i] != SIGBUS)
      sigaddset(&set, numbers[i]);
  pthread_sigmask(hold ? SIG_BLOCK : SIG_UNBLOCK, &set, NULL);
}

static void end(int number) {
  if (!pthread_equal(pthread_self(), writer)) {
    pthread_kill(writer, number);
    return;
  }
  remove_files();
  signal(number, SIG_DFL);
  raise(number);
}

static const char *path_of(const char *address) {
  for (int i = 0; i < N_MAPPED; i++)
    if (mapped[i].at && address >= mapped[i].at && address < mapped[i].at + mapped[i].bytes)
      return mapped[i].path;
  return NULL;
}

/* Only pdc's own code reads mapped files, never an allocation, so that the handler may report the error. */
static void bus_error(int number, siginfo_t *info, void *context) {
  (void)context;
  const char *path = info->si_code > 0 ? path_of(info->si_addr) : NULL; /* otherwise a process sent the signal */
  if (!path) {
    end(number);
    return;
  }
  while (atomic_flag_test_and_set(&reported)) /* another thread reports it and ends the process */
    pause();
  remove_files();
  error_at(NO_SPAN, "PD0660", "cannot read '%s': it became shorter while it was in use", path);
  diagnostics_flush();
  _exit(1);
}

void signals_watch(const TokenFiles *files) {
  watched = files;
  writer = pthread_self();
  for (int i = 0; i < N_NUMBERS; i++) {
    struct sigaction action = {.sa_handler = end, .sa_flags = SA_RESTART};
    if (numbers[i] == SIGBUS)
      action = (struct sigaction){.sa_sigaction = bus_error, .sa_flags = SA_SIGINFO};
    sigaction(numbers[i], NULL, &before[i]);
    if (before[i].sa_handler != SIG_IGN)
      sigaction(numbers[i], &action, NULL);
  }
}

void signals_restore(void) {
  for (int i = 0; i < N_NUMBERS; i++)
    sigaction(numbers[i], &before[i], NULL);
  watched = NULL;
}
