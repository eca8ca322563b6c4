/* Texts, or pairs of texts, with a label, as encoders of BERT's kind read them: the tokenizer's prefix, the text and a
 * separator, and for a pair the second text and a separator, whose tokens have type 1. */
#include <stdlib.h>
#include <string.h>

#include "tokenize/internal.h"

enum { MOST_LABEL = 1 << 24, MOST_LENGTH = 1 << 22 };

/* ---- lines ------------------------------------------------------------------------------------------ */

typedef struct Encoded {
  int32_t *tokens;
  int64_t n;
} Encoded;

static bool encode(const LabelReader *r, const struct pd_value *line, const char *member, Encoded *to, char *why) {
  const struct pd_value *text = pd_member(line, member);
  if (!text || text->kind != PD_TEXT)
    return pd_refuse(why, text ? "its member '%s' is not a text" : "it has no member '%s'", member);
  to->n = pd_tokenizer_encode(r->tokenizer, text->text.at, text->text.n, &to->tokens, why);
  return to->n >= 0;
}

static bool read_label(const struct pd_value *line, int32_t *to, char *why) {
  const struct pd_value *label = pd_member(line, "label");
  if (!label)
    return pd_refuse(why, "it has no member 'label'");
  if (label->kind != PD_INT || label->whole < 0 || label->whole > MOST_LABEL)
    return pd_refuse(why,
                     "its member 'label' is not a whole number of at least 0. help: number the classes; an .npz "
                     "of numpy.savez takes other targets");
  *to = (int32_t)label->whole;
  return true;
}

/* Cuts both texts to `most` tokens in total, as the strategy longest_first of Hugging Face's tokenizers. */
static void truncate_pair(Encoded *a, Encoded *b, int64_t most) {
  Encoded *brief = a->n > b->n ? b : a, *extended = a->n > b->n ? a : b;
  if (a->n + b->n <= most)
    return;
  const int64_t left = most - brief->n;
  extended->n = left > brief->n ? left : brief->n;
  if (brief->n + extended->n > most) {
    brief->n = most / 2;
    extended->n = most / 2 + most % 2;
  }
}

static void append(Part *p, const int32_t *tokens, int64_t n) {
  memcpy(p->tokens + p->n, tokens, (size_t)n * sizeof *tokens);
  p->n += n;
}

static bool join(const LabelReader *r, Part *p, Encoded *text, bool paired, char *why) {
  const int32_t *prefix, separators[] = {r->separator, r->separator};
  const int n_prefix = pd_tokenizer_prefix(r->tokenizer, &prefix), between = r->doubled ? 2 : 1;
  const int64_t around = n_prefix + 1 + (paired ? between : 0);
  p->least = around + 1;
  if (r->truncates && r->length > around)
    truncate_pair(&text[0], &text[1], r->length - around);
  p->tokens = malloc((size_t)(around + text[0].n + text[1].n) * sizeof *p->tokens);
  if (!p->tokens)
    return pd_refuse(why, "no memory for its tokens");
  append(p, prefix, n_prefix);
  append(p, text[0].tokens, text[0].n);
  append(p, separators, paired ? between : 1);
  p->second = paired && !r->doubled ? p->n : INT64_MAX;
  if (paired) {
    append(p, text[1].tokens, text[1].n);
    append(p, separators, 1);
  }
  return true;
}

bool labelled_of_line(const LabelReader *r, Part *p, char *why) {
  struct pd_arena arena = {0};
  struct pd_value line = {.kind = PD_UNDEFINED};
  Encoded text[2] = {{0}};
  const char *at = p->at, *end = p->at + p->bytes;
  while (at < end && memchr(" \t\r", *at, 3))
    at++;
  if (at == end)
    return true;
  bool good = pd_json_parse(&arena, p->at, p->bytes, &line, why) && encode(r, &line, r->field, &text[0], why) &&
              read_label(&line, &p->label, why);
  const struct pd_value *pair = good ? pd_member(&line, "text_pair") : NULL;
  const bool paired = pair && pair->kind != PD_NONE;
  good = good && (!paired || encode(r, &line, "text_pair", &text[1], why)) && join(r, p, text, paired, why);
  free(text[0].tokens);
  free(text[1].tokens);
  pd_arena_free(&arena);
  return good;
}

/* ---- rows -------------------------------------------------------------------------------------------- */

enum { ROW_TOKENS, ROW_TYPES, ROW_LABEL, N_COLUMNS };

struct Labelled {
  const TokenizeRequest *request;
  Archive *archive;
  Column columns[N_COLUMNS];
  int32_t *row[N_COLUMNS], pad, smallest, largest;
  int64_t samples, written, tokens, too_long, longest, least;
  const char *place; /* of the longest sample */
};

Labelled *labelled_open(const TokenizeRequest *request, int32_t pad, char *why) {
  static const char *const names[] = {"tokens.npy", "token_types.npy", "label.npy"};
  if (request->length > MOST_LENGTH) {
    pd_refuse(why, "--length %lld: at most %d positions are supported", (long long)request->length, MOST_LENGTH);
    return NULL;
  }
  Labelled *l = alloc(sizeof *l);
  *l = (Labelled){.request = request, .pad = pad, .smallest = MOST_LABEL};
  for (int i = 0; i < N_COLUMNS; i++) {
    l->columns[i] = (Column){names[i], i == ROW_LABEL ? 1 : request->length};
    l->row[i] = alloc((size_t)l->columns[i].length * sizeof(int32_t));
  }
  l->archive = archive_open(request->output, l->columns, N_COLUMNS, why);
  return l->archive ? l : NULL;
}

bool labelled_add(Labelled *l, const Part *p, char *why) {
  if (p->n == 0)
    return true;
  l->samples++;
  if (p->n > l->request->length) {
    l->too_long++;
    if (p->n > l->longest)
      l->place = format("'%s': line %lld", p->path, (long long)p->line);
    l->longest = p->n > l->longest ? p->n : l->longest;
    l->least = p->least > l->least ? p->least : l->least;
    return true;
  }
  for (int64_t i = 0; i < l->request->length; i++) {
    l->row[ROW_TOKENS][i] = i < p->n ? p->tokens[i] : l->pad;
    l->row[ROW_TYPES][i] = i < p->n && i >= p->second;
  }
  *l->row[ROW_LABEL] = p->label;
  l->smallest = p->label < l->smallest ? p->label : l->smallest;
  l->largest = p->label > l->largest ? p->label : l->largest;
  l->tokens += p->n;
  l->written++;
  return archive_add(l->archive, (const int32_t *const *)l->row, why);
}

static bool check(const Labelled *l, char *why) {
  const long long length = l->request->length;
  if (l->too_long && l->request->too_long == LONG_TRUNCATE)
    return pd_refuse(
        why,
        "--length %lld is too small for the special tokens and a token of text. help: use --length %lld or more",
        length, (long long)l->least);
  if (l->too_long && l->request->too_long != LONG_SKIP)
    return pd_refuse(why,
                     "%lld of %lld samples are longer than --length %lld; the longest has %lld tokens (%s). "
                     "help: --too-long skip leaves them out, --too-long truncate cuts them",
                     (long long)l->too_long, (long long)l->samples, length, (long long)l->longest, l->place);
  return l->written || pd_refuse(why, l->samples ? "all samples are too long" : "the files hold no samples");
}

bool labelled_close(Labelled *l, bool good, char *why) {
  const TokenizeRequest *request = l->request;
  good = good && check(l, why);
  good = archive_close(l->archive, good, why) && good;
  if (!good || request->quiet)
    return good;
  const double positions = (double)l->written * (double)request->length;
  printf("%s: %s sample%s of %lld positions, labels from %d to %d, %.1f %% padding\n", plain_path(request->output),
         with_commas(l->written), l->written == 1 ? "" : "s", (long long)request->length, (int)l->smallest,
         (int)l->largest, 100.0 * (1.0 - (double)l->tokens / positions));
  if (l->too_long)
    printf("%s left out, the longest of %s tokens\n", with_commas(l->too_long), with_commas(l->longest));
  return true;
}
