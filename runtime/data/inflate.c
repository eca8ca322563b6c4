/* Deflated data as in zip files (Deutsch, RFC 1951), and their checksum. Codes of up to nine bits are looked up,
 * longer ones decoded bit by bit. */
#include "data/data.h"

#include <string.h>

enum { LONGEST = 15, LITERALS = 288, DISTANCES = 30, LENGTH_CODES = 19, QUICK = 9 };

struct stream {
  const unsigned char *from;
  size_t packed, in;
  unsigned char *to;
  size_t size, out;
  uint64_t bits; /* the next `held` ones, the first lowest */
  int held;
  bool broken;
};

/* A canonical Huffman code: codes are consecutive by length. */
struct code {
  uint16_t count[LONGEST + 1], symbol[LITERALS];
  uint16_t quick[1 << QUICK]; /* by the next bits: symbol << 4 | length; 0: a longer code */
};

static void fill(struct stream *s) {
  for (; s->held <= 56 && s->in < s->packed; s->held += 8) s->bits |= (uint64_t)s->from[s->in++] << s->held;
}

/* The next n <= 16 bits, the first lowest; past the end 0, and the stream is marked invalid. */
static unsigned take(struct stream *s, int n) {
  if (s->held < n) fill(s);
  if (s->held < n) {
    s->broken = true;
    return 0;
  }
  unsigned x = (unsigned)(s->bits & ((1u << n) - 1));
  s->bits >>= n;
  s->held -= n;
  return x;
}

/* ---- codes ------------------------------------------------------------------------------------- */

static void fill_quick(struct code *c) {
  unsigned code = 0, at = 0;
  memset(c->quick, 0, sizeof c->quick);
  for (unsigned length = 1; length <= QUICK; length++, code <<= 1)
    for (unsigned i = 0; i < c->count[length]; i++, code++, at++) {
      unsigned reversed = 0; /* codes come highest bit first */
      for (unsigned bit = 0; bit < length; bit++) reversed |= (code >> bit & 1) << (length - 1 - bit);
      for (unsigned rest = reversed; rest < 1u << QUICK; rest += 1u << length)
        c->quick[rest] = (uint16_t)(c->symbol[at] << 4 | length);
    }
}

/* Builds a code from the length of each symbol's code, 0 for none; false if the lengths are not a prefix code.
 * Only a code with a single word may be incomplete. */
static bool make_code(struct code *c, const unsigned char *length, int n) {
  unsigned at[LONGEST + 2] = {0};
  int left = 1, used = 0;
  memset(c->count, 0, sizeof c->count);
  for (int i = 0; i < n; i++) c->count[length[i]]++;
  used = n - c->count[0];
  c->count[0] = 0;
  for (int l = 1; l <= LONGEST; l++) {
    left = 2 * left - c->count[l];
    if (left < 0) return false;
    at[l + 1] = at[l] + c->count[l];
  }
  if (left > 0 && used > 1) return false;
  for (int i = 0; i < n; i++)
    if (length[i]) c->symbol[at[length[i]]++] = (uint16_t)i;
  fill_quick(c);
  return true;
}

static int decode(struct stream *s, const struct code *c) {
  if (s->held < LONGEST) fill(s);
  unsigned quick = c->quick[s->bits & ((1u << QUICK) - 1)];
  if (quick && (int)(quick & 15) <= s->held) {
    s->bits >>= quick & 15;
    s->held -= (int)(quick & 15);
    return (int)(quick >> 4);
  }
  int code = 0, first = 0, index = 0;
  for (int length = 1; length <= LONGEST && !s->broken; length++) {
    code |= (int)take(s, 1);
    int count = c->count[length];
    if (code - count < first) return s->broken ? -1 : c->symbol[index + code - first];
    index += count;
    first = (first + count) << 1;
    code <<= 1;
  }
  s->broken = true;
  return -1;
}

/* ---- blocks ------------------------------------------------------------------------------------ */

static void stored_block(struct stream *s) {
  take(s, s->held & 7);
  unsigned n = take(s, 16), check = take(s, 16);
  s->in -= (size_t)(s->held / 8); /* bits read ahead */
  s->bits = 0;
  s->held = 0;
  if (s->broken || n != (check ^ 0xffff) || n > s->packed - s->in || n > s->size - s->out) {
    s->broken = true;
    return;
  }
  memcpy(s->to + s->out, s->from + s->in, n);
  s->in += n;
  s->out += n;
}

/* Copies earlier bytes from `distance` before; the ranges may overlap. */
static void repeat(struct stream *s, size_t length, size_t distance) {
  if (s->broken || distance > s->out || length > s->size - s->out) {
    s->broken = true;
    return;
  }
  for (; length; length--, s->out++) s->to[s->out] = s->to[s->out - distance];
}

static void coded_block(struct stream *s, const struct code *literals, const struct code *distances) {
  static const uint16_t length_base[] = {3,  4,  5,  6,  7,  8,  9,  10, 11,  13,  15,  17,  19,  23, 27,
                                         31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258};
  static const unsigned char length_bits[] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2,
                                              2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0};
  enum { LENGTHS = sizeof length_base / sizeof *length_base, END = 256 };
  while (!s->broken) {
    int symbol = decode(s, literals), distance;
    if (symbol == END || s->broken) return;
    if (symbol < END) {
      if (s->out == s->size)
        s->broken = true;
      else
        s->to[s->out++] = (unsigned char)symbol;
      continue;
    }
    symbol -= END + 1;
    if (symbol >= LENGTHS) {
      s->broken = true;
      return;
    }
    size_t length = length_base[symbol] + take(s, length_bits[symbol]);
    distance = decode(s, distances);
    if (s->broken || distance >= DISTANCES) {
      s->broken = true;
      return;
    }
    int extra = distance < 4 ? 0 : distance / 2 - 1; /* distances 1, 2, 3, 4, then two for each number of bits */
    size_t base = distance < 4 ? (size_t)distance + 1 : ((size_t)(2 + distance % 2) << extra) + 1;
    repeat(s, length, base + take(s, extra));
  }
}

static void fixed_block(struct stream *s) {
  unsigned char length[LITERALS], five[32]; /* two more code words than distances */
  struct code literals, distances;
  for (int i = 0; i < LITERALS; i++) length[i] = i < 144 ? 8 : i < 256 ? 9 : i < 280 ? 7 : 8;
  memset(five, 5, sizeof five);
  make_code(&literals, length, LITERALS);
  make_code(&distances, five, sizeof five);
  coded_block(s, &literals, &distances);
}

/* The lengths of both codes are coded themselves, with runs. */
static bool read_lengths(struct stream *s, const struct code *code, unsigned char *to, int n) {
  for (int i = 0; i < n;) {
    int symbol = decode(s, code), times = 1;
    unsigned char value = (unsigned char)symbol;
    if (s->broken) return false;
    if (symbol == 16) {
      if (!i) return false;
      value = to[i - 1];
      times = 3 + (int)take(s, 2);
    } else if (symbol > 16) {
      value = 0;
      times = symbol == 17 ? 3 + (int)take(s, 3) : 11 + (int)take(s, 7);
    }
    if (times > n - i) return false;
    while (times--) to[i++] = value;
  }
  return !s->broken;
}

static void dynamic_block(struct stream *s) {
  static const unsigned char order[LENGTH_CODES] = {16, 17, 18, 0, 8,  7, 9,  6, 10, 5,
                                                    11, 4,  12, 3, 13, 2, 14, 1, 15};
  unsigned char length[LITERALS + 32] = {0}, of_lengths[LENGTH_CODES] = {0};
  struct code lengths, literals, distances;
  int n_literals = 257 + (int)take(s, 5), n_distances = 1 + (int)take(s, 5), n_lengths = 4 + (int)take(s, 4);
  for (int i = 0; i < n_lengths; i++) of_lengths[order[i]] = (unsigned char)take(s, 3);
  bool ok = n_literals <= 286 && n_distances <= DISTANCES && make_code(&lengths, of_lengths, LENGTH_CODES) &&
            read_lengths(s, &lengths, length, n_literals + n_distances) &&
            make_code(&literals, length, n_literals) && make_code(&distances, length + n_literals, n_distances);
  if (ok)
    coded_block(s, &literals, &distances);
  else
    s->broken = true;
}

bool pd_inflate(const char *from, size_t packed, char *to, size_t size) {
  struct stream s = {
      .from = (const unsigned char *)from, .packed = packed, .to = (unsigned char *)to, .size = size};
  for (bool last = false; !last && !s.broken;) {
    last = take(&s, 1);
    switch (take(&s, 2)) {
    case 0: stored_block(&s); break;
    case 1: fixed_block(&s); break;
    case 2: dynamic_block(&s); break;
    default: s.broken = true;
    }
  }
  return !s.broken && s.out == size;
}
