/* Regular expressions to items. */
#include "bpe.h"
#include "pattern_parts.h"

#include "shared/why.h"

#include <stdlib.h>

enum { MOST_ITEMS = 1024, MOST_DEPTH = 8, MOST_REPEATS = 1000 };

struct reading {
  struct pd_pattern *p;
  const char *start, *at;
  bool any_case;
  unsigned before; /* of the previous character in (?i:...): its letters among those of ligatures */
  int depth;
  bool failed;
  char *why;
};

/* Fails at the place that is not supported. */
static bool fails(struct reading *r, const char *what) {
  if (!r->failed) pd_refuse(r->why, "%s at byte %zu of its pattern", what, (size_t)(r->at - r->start));
  r->failed = true;
  return false;
}

static bool takes(struct reading *r, const char *text) {
  const size_t n = strlen(text);
  if (strncmp(r->at, text, n) != 0) return false;
  r->at += n;
  return true;
}

static struct pd_item *add_item(struct reading *r, struct pd_item item) {
  static struct pd_item none;
  if (r->p->n == MOST_ITEMS) return fails(r, "more than 1024 parts"), &none;
  r->p->item[r->p->n] = item;
  return &r->p->item[r->p->n++];
}

/* Inserts PD_EITHER before the items from `start` on. Jumps among them are relative. */
static void choose_from(struct reading *r, int start, int to) {
  add_item(r, (struct pd_item){.kind = PD_DONE});
  if (r->failed) return;
  memmove(&r->p->item[start + 1], &r->p->item[start], sizeof(struct pd_item) * (size_t)(r->p->n - 1 - start));
  r->p->item[start] = (struct pd_item){.kind = PD_EITHER, .to = to - start};
}

/* ---- one character --------------------------------------------------------------------------- */

static int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  c |= 32;
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Hexadecimal digits from `least` to `most`. */
static bool read_hex(struct reading *r, int least, int most, int32_t *point) {
  int n = 0;
  for (*point = 0; n < most && hex_digit(*r->at) >= 0; n++) *point = *point * 16 + hex_digit(*r->at++);
  return (n >= least && *point < PD_POINTS) || fails(r, "a number of a character");
}

/* The character behind a backslash. */
static bool read_escaped(struct reading *r, int32_t *point) {
  static const char names[] = "rntfv", values[] = "\r\n\t\f\v";
  const char c = *r->at, *known = c ? strchr(names, c) : NULL;
  if (known) {
    *point = (unsigned char)values[known - names];
    r->at++;
    return true;
  }
  if (takes(r, "x{")) return read_hex(r, 1, 6, point) && (takes(r, "}") || fails(r, "a missing '}'"));
  if (takes(r, "u")) return read_hex(r, 4, 4, point);
  if (c <= ' ' || c >= 127 || hex_digit(c) >= 0 || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z'))
    return fails(r, "an escaped character");
  *point = (unsigned char)c;
  r->at++;
  return true;
}

static bool read_character(struct reading *r, int32_t *point) {
  if (takes(r, "\\")) return read_escaped(r, point);
  const struct pd_character c = pd_character_at(r->at, strlen(r->at));
  if (c.point < 0) return fails(r, "a byte that is not UTF-8");
  *point = c.point;
  r->at += c.bytes;
  return true;
}

static void complement(uint64_t *bits) {
  for (int i = 0; i < PD_BITS; i++) bits[i] = ~bits[i];
}

/* Categories of a name such as L or Lu, as bits; 0: unknown. */
static uint32_t categories_named(const char *name, size_t n) {
  static const char names[] = "LuLlLtLmLoMnMcMeNdNlNoPcPdPsPePiPfPoSmScSkSoZsZlZpCcCfCsCoCn";
  uint32_t mask = 0;
  for (int i = 0; names[2 * i]; i++)
    if ((n == 1 || n == 2) && !strncmp(names + 2 * i, name, n)) mask |= 1u << i;
  return mask;
}

/* \p{Lu}, \P{L}, \p{^L}. */
static bool add_property(struct reading *r, uint64_t *bits) {
  bool negated = *r->at++ == 'P';
  if (!takes(r, "{")) return fails(r, "a property");
  if (takes(r, "^")) negated = !negated;
  const size_t n = strcspn(r->at, "}");
  const uint32_t mask = categories_named(r->at, n);
  if (!mask || r->at[n] != '}') return fails(r, "a property other than a general category");
  r->at += n + 1;
  pd_bits_add_categories(bits, negated ? ~mask : mask);
  return true;
}

/* Adds a set of one name, such as \s; false: there is none here. */
static bool add_named(struct reading *r, uint64_t *bits) {
  if (r->at[0] != '\\' || !r->at[1] || !strchr("sSdDpP", r->at[1])) return false;
  const char name = r->at[1];
  uint64_t *own = NULL;
  r->at++;
  if (name == 'p' || name == 'P') {
    add_property(r, bits);
    return true;
  }
  r->at++;
  own = calloc(PD_BITS, sizeof *own);
  if (name == 's' || name == 'S')
    pd_bits_add_spaces(own);
  else
    pd_bits_add_categories(own, 1u << PD_ND);
  if (name == 'S' || name == 'D') complement(own);
  for (int i = 0; i < PD_BITS; i++) bits[i] |= own[i];
  free(own);
  return true;
}

static bool read_set(struct reading *r, uint64_t *bits);

/* One member of a set: a set, a name, a character or a range. */
static bool add_member(struct reading *r, uint64_t *bits) {
  int32_t first, last;
  if (*r->at == '[') {
    if (r->at[1] == ':') return fails(r, "a POSIX class");
    uint64_t *inner = calloc(PD_BITS, sizeof *inner);
    const bool ok = read_set(r, inner);
    for (int i = 0; i < PD_BITS; i++) bits[i] |= inner[i];
    free(inner);
    return ok;
  }
  if (add_named(r, bits)) return !r->failed;
  if (!read_character(r, &first)) return false;
  last = first;
  if (r->at[0] == '-' && r->at[1] && r->at[1] != ']') {
    r->at++;
    if (*r->at == '[' || !read_character(r, &last) || last < first) return fails(r, "a range");
  }
  pd_bits_add(bits, first, last);
  return true;
}

/* [...]: an intersection of unions. */
static bool read_set(struct reading *r, uint64_t *bits) {
  if (++r->depth > MOST_DEPTH) return fails(r, "a set within eight others");
  r->at++;
  const bool negated = takes(r, "^");
  uint64_t *both = NULL;
  if (*r->at == ']') return fails(r, "an empty set");
  while (!r->failed && *r->at && *r->at != ']')
    if (takes(r, "&&")) {
      uint64_t *left = malloc(PD_BITS * sizeof *left);
      for (int i = 0; i < PD_BITS && left; i++) left[i] = bits[i] & (both ? both[i] : ~(uint64_t)0);
      memset(bits, 0, PD_BITS * sizeof *bits);
      free(both);
      both = left;
    } else
      add_member(r, bits);
  for (int i = 0; i < PD_BITS && both; i++) bits[i] &= both[i];
  free(both);
  r->depth--;
  if (r->failed || !takes(r, "]")) return fails(r, "a set without an end");
  if (negated) complement(bits);
  return true;
}

/* In (?i:...): adds each letter's upper or lower case. Refuses letters that a ligature may match, such as ss. */
static bool add_cases(struct reading *r, uint64_t *bits) {
  static const char letters[] = "stfil"; /* of ligatures: ss, st, ff, fi, fl */
  for (int i = 2; i < PD_BITS; i++)
    if (bits[i]) return fails(r, "(?i: with characters outside ASCII");
  const uint64_t either = (bits[1] | bits[1] >> 32 | bits[1] << 32) & 0x07FFFFFE07FFFFFEu;
  bits[1] |= either;
  unsigned now = 0;
  for (int i = 0; letters[i]; i++) now |= (unsigned)(bits[1] >> (letters[i] - 64) & 1) << i;
  if (((r->before & 1) && (now & 3)) || ((r->before & 4) && (now & 28)))
    return fails(r, "(?i: with letters of a ligature");
  r->before = now;
  if (bits[1] >> ('s' - 64) & 1) pd_bits_add(bits, 0x17F, 0x17F);
  if (bits[1] >> ('k' - 64) & 1) pd_bits_add(bits, 0x212A, 0x212A);
  return true;
}

/* The set of one character of the expression; -1 after a failure. */
static int read_one(struct reading *r) {
  uint64_t *bits = calloc(PD_BITS, sizeof *bits);
  int32_t point;
  int set = -1;
  bool ok = true;
  if (*r->at == '[')
    ok = read_set(r, bits);
  else if (takes(r, ".")) {
    pd_bits_add(bits, '\n', '\n');
    complement(bits);
  } else if (*r->at && strchr("^*+?{", *r->at))
    ok = fails(r, "an operator");
  else if (!add_named(r, bits)) {
    ok = read_character(r, &point);
    if (ok) pd_bits_add(bits, point, point);
  }
  if (ok && !r->failed && (!r->any_case || add_cases(r, bits))) {
    set = pd_sets_add(&r->p->sets, bits);
    if (set < 0) fails(r, "too many sets of characters");
  }
  free(bits);
  return set;
}

/* ---- sequences ------------------------------------------------------------------------------- */

static int read_number(struct reading *r) {
  int n = 0;
  while (*r->at >= '0' && *r->at <= '9' && n <= MOST_REPEATS) n = n * 10 + *r->at++ - '0';
  return n;
}

/* {2}, {2,}, {,3}, {2,3}. A + behind it repeats the whole, unlike behind other operators. */
static bool read_interval(struct reading *r, struct pd_item *run) {
  const bool has = *r->at != ',';
  run->min = run->max = read_number(r);
  if (takes(r, ",")) run->max = *r->at == '}' && has ? PD_UNLIMITED : read_number(r);
  if (run->min > run->max || !run->max || run->min > MOST_REPEATS || !takes(r, "}"))
    return fails(r, "an interval");
  if (run->max != PD_UNLIMITED && run->max > MOST_REPEATS) return fails(r, "an interval");
  if (!takes(r, "+")) return true;
  run->max = PD_UNLIMITED;
  return run->min < 2 || fails(r, "'+' behind an interval");
}

static bool read_repeats(struct reading *r, struct pd_item *run) {
  bool one = false;
  if (takes(r, "{")) {
    if (!read_interval(r, run)) return false;
  } else if (takes(r, "?") || takes(r, "*") || takes(r, "+")) {
    run->min = r->at[-1] == '+';
    run->max = r->at[-1] == '?' ? 1 : PD_UNLIMITED;
    run->possessive = takes(r, "+");
  } else
    one = true;
  if (!one && *r->at && strchr("?*+{", *r->at)) return fails(r, "a second operator");
  return true;
}

static bool read_either(struct reading *r);

static bool read_look(struct reading *r, bool negated) {
  const bool any_case = r->any_case;
  r->any_case = false;
  struct pd_item look = {.kind = PD_LOOK, .set = read_one(r), .negated = negated};
  if (r->failed) return false;
  if (!takes(r, ")")) return fails(r, "more than one character to look at");
  if (*r->at && strchr("?*+{", *r->at)) return fails(r, "an operator behind a group");
  r->any_case = any_case;
  add_item(r, look);
  return !r->failed;
}

static bool read_group(struct reading *r) {
  const bool any_case = r->any_case;
  if (takes(r, "?!")) return read_look(r, true);
  if (takes(r, "?=")) return read_look(r, false);
  if (takes(r, "?i:"))
    r->any_case = true;
  else if (!takes(r, "?:") && *r->at == '?')
    return fails(r, "a group");
  if (++r->depth > MOST_DEPTH) return fails(r, "a group within eight others");
  const int start = r->p->n;
  r->before = 0;
  if (!read_either(r)) return false;
  if (!takes(r, ")")) return fails(r, "a group without an end");
  r->depth--;
  r->any_case = any_case;
  r->before = 31; /* unknown */
  if (takes(r, "?")) choose_from(r, start, r->p->n + 1);
  if (*r->at && strchr("?*+{", *r->at)) return fails(r, "an operator behind a group");
  return !r->failed;
}

static bool read_sequence(struct reading *r) {
  while (!r->failed && *r->at && *r->at != '|' && *r->at != ')') {
    if (takes(r, "(")) {
      read_group(r);
      continue;
    }
    if (takes(r, "$")) { /* also before a newline */
      uint64_t *bits = calloc(PD_BITS, sizeof *bits);
      pd_bits_add(bits, '\n', '\n');
      complement(bits);
      add_item(r, (struct pd_item){.kind = PD_LOOK, .set = pd_sets_add(&r->p->sets, bits), .negated = true});
      free(bits);
      continue;
    }
    struct pd_item run = {.kind = PD_RUN, .set = read_one(r), .min = 1, .max = 1};
    if (!r->failed && read_repeats(r, &run)) add_item(r, run);
  }
  return !r->failed;
}

/* a|b|c: each but the last is a choice, with a jump behind it. */
static bool read_either(struct reading *r) {
  int *jump = NULL, n_jumps = 0;
  for (;;) {
    const int start = r->p->n;
    r->before = 0;
    if (!read_sequence(r) || *r->at != '|') break;
    r->at++;
    choose_from(r, start, r->p->n + 2);
    if (r->failed) break;
    jump = pd_grown(jump, sizeof *jump * (size_t)(n_jumps + 1));
    jump[n_jumps++] = r->p->n;
    add_item(r, (struct pd_item){.kind = PD_JUMP});
  }
  for (int i = 0; i < n_jumps && !r->failed; i++) r->p->item[jump[i]].to = r->p->n - jump[i];
  free(jump);
  return !r->failed;
}

/* ---- effort of matching ---------------------------------------------------------------------- */

/* Of the part of a pattern from an item on: whether it matches the empty text, the ways to try it, and the number of
 * long repetitions after which it can fail. */
struct effort {
  bool empty;
  double ways;
  int long_runs;
};
enum { FEW = 16, MOST_WAYS = 256 };

static void rate_run(const struct pd_pattern *p, struct pd_item *item, struct effort *e) {
  const struct pd_set *set = &p->sets.set[item->set];
  const bool sure = item[1].sure;
  *e = e[1];
  e->empty &= !item->min;
  item->sure = sure && !item->min;
  for (int i = 0; i < 2; i++) item->first[i] = set->ascii[i] | (item->min ? 0 : item[1].first[i]);
  if (sure) return;
  if (item->max > FEW)
    e->long_runs++;
  else if (!item->possessive)
    e->ways *= item->max - item->min + 1;
}

/* Fills the members that depend on later items, from the last item back. */
static struct effort rate(struct pd_pattern *p) {
  struct effort *e = pd_grown(NULL, sizeof *e * (size_t)p->n), whole;
  for (int i = p->n - 1; i >= 0; i--) {
    struct pd_item *item = &p->item[i], *to = item + item->to;
    const struct effort *other = &e[i + item->to];
    if (item->kind == PD_RUN)
      rate_run(p, item, &e[i]);
    else if (item->kind == PD_DONE) {
      item->sure = true;
      item->first[0] = item->first[1] = ~(uint64_t)0;
      e[i] = (struct effort){true, 1, 0};
    } else {
      if (item->kind != PD_JUMP) to = item + 1;
      e[i] = item->kind == PD_JUMP ? *other : e[i + 1];
      item->sure = to->sure && item->kind != PD_LOOK;
      memcpy(item->first, to->first, sizeof item->first);
    }
    if (item->kind != PD_EITHER) continue;
    to = item + item->to;
    item->sure |= to->sure;
    for (int k = 0; k < 2; k++) item->first[k] |= to->first[k];
    e[i].empty |= other->empty;
    e[i].ways += other->ways;
    if (other->long_runs > e[i].long_runs) e[i].long_runs = other->long_runs;
  }
  whole = e[0];
  free(e);
  return whole;
}

/* The first alternative that can begin with this byte, without a choice if it is the only one. */
static int start_of(const struct pd_pattern *p, int byte) {
  int first = 0, others = 0;
  while (p->item[first].kind == PD_EITHER && !pd_can_begin(&p->item[first + 1], byte)) first += p->item[first].to;
  if (p->item[first].kind != PD_EITHER) return first;
  for (int i = first + p->item[first].to;; i += p->item[i].to) {
    const bool last = p->item[i].kind != PD_EITHER;
    others += pd_can_begin(&p->item[last ? i : i + 1], byte);
    if (last) return others ? first : first + 1;
  }
}

static struct pd_pattern *finish(struct reading *r) {
  if (!r->failed && *r->at) fails(r, "')'");
  add_item(r, (struct pd_item){.kind = PD_DONE});
  const struct effort e = r->failed ? (struct effort){0} : rate(r->p);
  if (e.empty) fails(r, "a match of the empty text");
  if (e.ways > MOST_WAYS || e.long_runs > 1) fails(r, "an expression that can take too long");
  for (int byte = 0; byte < 128 && !r->failed; byte++) r->p->start[byte] = (int16_t)start_of(r->p, byte);
  if (!r->failed) return r->p;
  pd_pattern_free(r->p);
  return NULL;
}

static struct pd_pattern *started(void) {
  struct pd_pattern *p = pd_grown(NULL, sizeof *p);
  *p = (struct pd_pattern){.item = pd_grown(NULL, sizeof *p->item * MOST_ITEMS)};
  return p;
}

struct pd_pattern *pd_pattern_compile(const char *expression, char *why) {
  struct reading r = {.p = started(), .start = expression, .at = expression, .why = why};
  read_either(&r);
  return finish(&r);
}

struct pd_pattern *pd_pattern_of_text(const char *text, char *why) {
  struct reading r = {.p = started(), .start = text, .at = text, .why = why};
  while (*r.at && !r.failed) {
    uint64_t *bits = calloc(PD_BITS, sizeof *bits);
    const struct pd_character c = pd_character_at(r.at, strlen(r.at));
    if (c.point >= 0) pd_bits_add(bits, c.point, c.point);
    struct pd_item one = {.kind = PD_RUN, .min = 1, .max = 1, .set = pd_sets_add(&r.p->sets, bits)};
    r.at += c.bytes;
    if (c.point < 0 || one.set < 0) fails(&r, "a text");
    add_item(&r, one);
    free(bits);
  }
  return finish(&r);
}

void pd_pattern_free(struct pd_pattern *p) {
  if (!p) return;
  pd_sets_free(&p->sets);
  free(p->item);
  free(p);
}
