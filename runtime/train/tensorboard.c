/* Event files for TensorBoard: TFRecords (a length, its checksum, the bytes, theirs) of Event messages in
 * protocol buffers' wire format, of which scalars need few fields (tensorflow/core/util/event.proto,
 * framework/summary.proto). One call writes each record when its update
 * is logged, so that records stay complete if the run ends. */
#include "train/train.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Fields by number, and how they are encoded. */
enum { VARINT, DOUBLE, BYTES, FLOAT = 5 };
enum { EVENT_WALL_TIME = 1, EVENT_STEP = 2, EVENT_FILE_VERSION = 3, EVENT_SUMMARY = 5, EVENT_SESSION_LOG = 7 };
enum { SUMMARY_VALUE = 1, VALUE_TAG = 1, VALUE_SIMPLE_VALUE = 2, SESSION_LOG_STATUS = 1, SESSION_START = 1 };

struct bytes {
  unsigned char *at;
  size_t n, room;
};

static struct {
  int file;
  char path[4096];
  struct bytes scalars, message,
      record; /* of the current event: its summary, the event, the event with its frame */
} events = {.file = -1};

/* ---- encoding -------------------------------------------------------------------------------- */

static void append(struct bytes *b, const void *from, size_t n) {
  if (b->n + n > b->room) {
    b->room = 2 * (b->n + n);
    b->at = realloc(b->at, b->room);
    if (!b->at) pd_fail("out of memory for a TensorBoard event");
  }
  memcpy(b->at + b->n, from, n);
  b->n += n;
}

static void append_varint(struct bytes *b, uint64_t x) {
  for (; x > 0x7f; x >>= 7) append(b, &(unsigned char){(unsigned char)(x | 0x80)}, 1);
  append(b, &(unsigned char){(unsigned char)x}, 1);
}

static void append_key(struct bytes *b, unsigned field, unsigned encoding) {
  append_varint(b, field << 3 | encoding);
}

static void append_bytes(struct bytes *b, unsigned field, const void *from, size_t n) {
  append_key(b, field, BYTES);
  append_varint(b, n);
  append(b, from, n);
}

/* CRC-32C (Castagnoli), rotated and offset as TFRecords require, because records may contain checksums. */
static uint32_t masked_checksum(const unsigned char *at, size_t n) {
  uint32_t crc = ~0u;
  for (size_t i = 0; i < n; i++) {
    crc ^= at[i];
    for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
  }
  crc = ~crc;
  return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

/* ---- records --------------------------------------------------------------------------------- */

static void write_record(const struct bytes *b) {
  uint64_t length = b->n;
  uint32_t of_length = masked_checksum((const unsigned char *)&length, sizeof length);
  uint32_t of_bytes = masked_checksum(b->at, b->n);
  events.record.n = 0;
  append(&events.record, &length, sizeof length);
  append(&events.record, &of_length, sizeof of_length);
  append(&events.record, b->at, b->n);
  append(&events.record, &of_bytes, sizeof of_bytes);
  for (size_t done = 0; done < events.record.n;) {
    ssize_t n = write(events.file, events.record.at + done, events.record.n - done);
    if (n < 0 && errno != EINTR) pd_fail("cannot write '%s': %s", events.path, strerror(errno));
    if (n > 0) done += (size_t)n;
  }
}

/* An event with the current time and one field of bytes. */
static void write_event(int64_t step, unsigned field, const void *content, size_t n) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  double seconds = (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
  events.message.n = 0;
  append_key(&events.message, EVENT_WALL_TIME, DOUBLE);
  append(&events.message, &seconds, sizeof seconds);
  append_key(&events.message, EVENT_STEP, VARINT);
  append_varint(&events.message, (uint64_t)step);
  append_bytes(&events.message, field, content, n);
  write_record(&events.message);
}

/* ---- what the log calls ---------------------------------------------------------------------- */

void pd_tensorboard_start(int64_t first_step) {
  if (!pd_options.tensorboard) return;
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  snprintf(events.path, sizeof events.path, "%s/events.out.tfevents.%010lld.%s.%d", pd_options.tensorboard,
           (long long)time(NULL), host, (int)getpid());
  events.file = open(events.path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (events.file < 0) pd_fail("cannot write '%s': %s", events.path, strerror(errno));
  static const char version[] = "brain.Event:2";
  write_event(0, EVENT_FILE_VERSION, version, sizeof version - 1);
  struct bytes session = {0};
  append_key(&session, SESSION_LOG_STATUS, VARINT);
  append_varint(&session, SESSION_START);
  write_event(first_step, EVENT_SESSION_LOG, session.at, session.n);
  free(session.at);
}

void pd_tensorboard_scalar(const char *prefix, const char *name, double x) {
  if (events.file < 0) return;
  static struct bytes value, tag;
  float number = (float)x;
  value.n = tag.n = 0;
  append(&tag, prefix, strlen(prefix));
  append(&tag, name, strlen(name));
  append_bytes(&value, VALUE_TAG, tag.at, tag.n);
  append_key(&value, VALUE_SIMPLE_VALUE, FLOAT);
  append(&value, &number, sizeof number);
  append_bytes(&events.scalars, SUMMARY_VALUE, value.at, value.n);
}

void pd_tensorboard_write(int64_t step) {
  if (events.file < 0) return;
  write_event(step, EVENT_SUMMARY, events.scalars.at, events.scalars.n);
  events.scalars.n = 0;
}

void pd_tensorboard_finish(void) {
  if (events.file >= 0 && close(events.file)) pd_fail("cannot write '%s': %s", events.path, strerror(errno));
  events.file = -1;
}
