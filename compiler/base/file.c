/* Reads and writes whole files; SHA-256 (FIPS 180-4). */
#include "base/base.h"
#include "shared/beside.h"
#include "shared/named_pipe.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NAMED_PIPE = ESPIPE }; /* an errno that no other call here sets */

const char *read_failure(int failed) {
  return failed == NAMED_PIPE ? "it is a named pipe: /dev/stdin reads a command's output" : strerror(failed);
}

char *read_file(const char *path, size_t *length) {
  const bool waits = pd_is_named_pipe(path);
  FILE *f = waits ? NULL : fopen(path, "rb");
  if (waits)
    errno = NAMED_PIPE;
  if (!f)
    return NULL;
  enum { STREAM = 64 << 20 }; /* limit for a device or pipe, which may be endless */
  struct stat st = {0};
  if (fstat(fileno(f), &st) == 0 && S_ISDIR(st.st_mode)) {
    fclose(f);
    errno = EISDIR;
    return NULL;
  }
  const size_t most = S_ISREG(st.st_mode) ? SIZE_MAX : STREAM;
  size_t n = 0, room = 4096;
  char *text = malloc(room);
  for (size_t got; text && n <= most && (got = fread(text + n, 1, room - n - 1, f)) > 0;) {
    n += got;
    if (room - n < 2) {
      char *grown = realloc(text, room *= 2);
      if (!grown)
        free(text);
      text = grown;
    }
  }
  int failed = !text ? ENOMEM : n > most ? EFBIG : ferror(f) ? errno ? errno : EIO : 0;
  fclose(f);
  if (failed) {
    free(text);
    errno = failed;
    return NULL;
  }
  char *kept = alloc(n + 1);
  memcpy(kept, text, n);
  free(text);
  if (length)
    *length = n;
  return kept;
}

/* Devices, pipes and open files such as /dev/stdout are written directly: renaming a file over one would remove
 * it. */
static bool is_stream(const char *path) {
  struct stat st;
  return stat(path, &st) == 0 && !S_ISDIR(st.st_mode) && (!S_ISREG(st.st_mode) || pd_is_descriptor(path));
}

static bool write_into(const char *path, const char *text, size_t length) {
  struct stat st;
  int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
  if (fd < 0)
    return false;
  bool good = fstat(fd, &st) == 0;
  if (good && S_ISREG(st.st_mode) && !pd_is_descriptor(path)) { /* it became a regular file since is_stream() */
    errno = EEXIST;
    good = false;
  }
  for (size_t done = 0; good && done < length;) {
    ssize_t n = write(fd, text + done, length - done);
    if (n > 0)
      done += (size_t)n;
    else if (n < 0 && errno != EINTR)
      good = false;
  }
  int failed = errno;
  if (close(fd) != 0 && good)
    return false;
  errno = failed;
  return good;
}

bool write_file(const char *path, const char *text, size_t length) {
  if (is_stream(path))
    return write_into(path, text, length);
  struct pd_output o;
  char folder[PATH_MAX];
  const char *name = pd_folder_of(path, folder);
  pd_remove_left(folder, name);
  return pd_output_open(&o, path) && pd_output_close(&o, fwrite(text, 1, length, o.file) == length);
}

static bool is_within(const char *path, const char *folder) {
  char file[PATH_MAX], above[PATH_MAX];
  if (!realpath(path, file) || !realpath(folder, above))
    return false;
  const size_t n = strlen(above);
  return !strncmp(file, above, n) && (file[n] == '/' || n == 1);
}

static bool ends_with(const char *text, const char *end) {
  const size_t n = strlen(text), m = strlen(end);
  return n >= m && !strcmp(text + n - m, end);
}

bool output_is_no_input(const char *output, const char *input, const char *ending) {
  struct stat to, from;
  if (!output || !input || pd_is_descriptor(output) || stat(output, &to) || !S_ISREG(to.st_mode) ||
      stat(input, &from))
    return true;
  Diagnostic *d = NULL;
  if (to.st_dev == from.st_dev && to.st_ino == from.st_ino)
    d = error_at(NO_SPAN, "PD0605", "cannot write '%s': it is the input", output);
  else if (S_ISDIR(from.st_mode) && is_within(output, input) && !ends_with(output, ending))
    d = error_at(NO_SPAN, "PD0605", "cannot write '%s': it is a file of the input, '%s'", output, input);
  if (d)
    help(d, "give the output another name, such as 'output%s'", ending);
  return !d;
}

int output_status(int status) {
  if (fflush(stdout) == 0 && !ferror(stdout))
    return status;
  fprintf(stderr, "pdc: error: cannot write to standard output: %s\n", strerror(errno));
  return status ? status : 1;
}

/* ---- SHA-256 ------------------------------------------------------------------------------- */

static const uint32_t K[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t rotate(uint32_t x, int n) { return x >> n | x << (32 - n); }

static void sha256_block(uint32_t state[8], const unsigned char *block) {
  uint32_t w[64], s[8];
  for (int i = 0; i < 16; i++)
    w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 | (uint32_t)block[4 * i + 2] << 8 |
           block[4 * i + 3];
  for (int i = 16; i < 64; i++) {
    uint32_t a = rotate(w[i - 15], 7) ^ rotate(w[i - 15], 18) ^ w[i - 15] >> 3;
    uint32_t b = rotate(w[i - 2], 17) ^ rotate(w[i - 2], 19) ^ w[i - 2] >> 10;
    w[i] = w[i - 16] + a + w[i - 7] + b;
  }
  memcpy(s, state, sizeof s);
  for (int i = 0; i < 64; i++) {
    uint32_t e = rotate(s[4], 6) ^ rotate(s[4], 11) ^ rotate(s[4], 25);
    uint32_t t1 = s[7] + e + ((s[4] & s[5]) ^ (~s[4] & s[6])) + K[i] + w[i];
    uint32_t a = rotate(s[0], 2) ^ rotate(s[0], 13) ^ rotate(s[0], 22);
    uint32_t t2 = a + ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
    memmove(s + 1, s, 7 * sizeof *s);
    s[4] += t1;
    s[0] = t1 + t2;
  }
  for (int i = 0; i < 8; i++)
    state[i] += s[i];
}

char *sha256_hex(const void *bytes, size_t length) {
  uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                       0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  const unsigned char *p = bytes;
  size_t left = length;
  for (; left >= 64; left -= 64, p += 64)
    sha256_block(state, p);
  unsigned char tail[128] = {0};
  if (left)
    memcpy(tail, p, left);
  tail[left] = 0x80;
  size_t padded = left < 56 ? 64 : 128;
  for (int i = 0; i < 8; i++)
    tail[padded - 1 - (size_t)i] = (unsigned char)((uint64_t)length * 8 >> 8 * i);
  for (size_t i = 0; i < padded; i += 64)
    sha256_block(state, tail + i);
  char *hex = alloc(65);
  for (int i = 0; i < 8; i++)
    snprintf(hex + 8 * i, 9, "%08x", state[i]);
  return hex;
}

const char *without_slashes(const char *path) {
  size_t n = strlen(path);
  while (n > 1 && path[n - 1] == '/')
    n--;
  return format("%.*s", (int)n, path);
}
