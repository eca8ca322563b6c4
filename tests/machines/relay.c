/* The cable between two machines of the tests, as a process: frames go from one network namespace to the other through a
 * TAP device in each, and on the way they are late, held or lost as a line in a FIFO says.
 *   relay FIFO NAMESPACE0 DEVICE0 NAMESPACE1 DEVICE1
 * Lines: "delay MS" each frame takes so long; "stall" frames are held; "go" they go on, first those that were held; "cut"
 * frames are lost; "end" the cable, and its devices, are gone. A relay that nobody ends does so after ten minutes. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum { FRAME = 1 << 11, ROOM = 1 << 14 }; /* bytes of a frame at most; frames on their way */

struct frame {
  double due;
  ssize_t bytes;
  char at[FRAME];
};
static struct way { /* from device i to the other; a ring */
  int device, first, n;
  struct frame *frame;
} ways[2];
static double delay; /* seconds */
static enum { GOES, STALLS, IS_CUT } line = GOES;

static void fail(const char *what) {
  fprintf(stderr, "relay: %s: %s\n", what, strerror(errno));
  exit(77);
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* A TAP device in a namespace; it goes with this process. */
static int make_device(const char *namespace, const char *name) {
  char path[256];
  snprintf(path, sizeof path, "/run/netns/%s", namespace);
  int there = open(path, O_RDONLY | O_CLOEXEC);
  struct ifreq request = {.ifr_flags = IFF_TAP | IFF_NO_PI};
  snprintf(request.ifr_name, sizeof request.ifr_name, "%s", name);
  if (there < 0 || setns(there, CLONE_NEWNET)) fail(path);
  int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC); /* whose namespace is that of its opening */
  if (fd < 0 || ioctl(fd, TUNSETIFF, &request)) fail("/dev/net/tun");
  close(there);
  return fd;
}

static void take_in(struct way *w) {
  static struct frame lost;
  for (;;) {
    bool room = w->n < ROOM && line != IS_CUT;
    struct frame *f = room ? &w->frame[(w->first + w->n) % ROOM] : &lost;
    f->bytes = read(w->device, f->at, FRAME);
    if (f->bytes <= 0) return;
    f->due = now() + delay;
    if (room) w->n++;
  }
}

/* Frames whose time has come; returns when that of the next one is. */
static double let_out(struct way *w, int to) {
  for (; w->n && line == GOES; w->n--, w->first = (w->first + 1) % ROOM) {
    const struct frame *f = &w->frame[w->first];
    if (f->due > now()) return f->due;
    if (write(to, f->at, (size_t)f->bytes) < 0 && errno == EAGAIN) return now() + 1e-3;
  }
  return now() + 1;
}

static void obey(FILE *fifo) {
  char text[64];
  double ms;
  while (fgets(text, sizeof text, fifo)) {
    if (sscanf(text, "delay %lf", &ms) == 1) delay = ms * 1e-3;
    if (!strcmp(text, "stall\n")) line = STALLS;
    if (!strcmp(text, "go\n")) line = GOES;
    if (!strcmp(text, "cut\n")) {
      line = IS_CUT;
      ways[0].n = ways[1].n = 0;
    }
    if (!strcmp(text, "end\n")) exit(0);
  }
  clearerr(fifo);
}

int main(int argc, char **argv) {
  if (argc != 6) return 2;
  alarm(600);
  FILE *fifo = fdopen(open(argv[1], O_RDWR | O_NONBLOCK | O_CLOEXEC), "r");
  if (!fifo) fail(argv[1]);
  for (int i = 0; i < 2; i++) {
    ways[i].device = make_device(argv[2 + 2 * i], argv[3 + 2 * i]);
    ways[i].frame = calloc(ROOM, sizeof *ways[i].frame);
    if (!ways[i].frame) fail("memory");
  }
  puts("ready");
  fflush(stdout);
  struct pollfd polled[] = {{ways[0].device, POLLIN, 0}, {ways[1].device, POLLIN, 0}, {fileno(fifo), POLLIN, 0}};
  for (;;) {
    double next = now() + 1;
    for (int i = 0; i < 2; i++) {
      double due = let_out(&ways[i], ways[1 - i].device);
      if (due < next) next = due;
    }
    double wait = (next - now()) * 1e3;
    if (poll(polled, 3, wait > 0 ? (int)wait + 1 : 0) < 0 && errno != EINTR) fail("poll");
    for (int i = 0; i < 2; i++) take_in(&ways[i]);
    if (polled[2].revents) obey(fifo);
  }
}
