/* Token files: texts, tokens without a header as nanoGPT's, and llm.c's shards: 256 int32 of header (magic,
 * version, count), then tokens. GPT-2's are uint16, version 1; Llama 3's have another magic, version 7 and
 * uint32. Word 3 is 0, or from `pdc tokenize` the token that ends documents, plus 1. */
#include "data/data.h"

#include <string.h>

enum { HEADER = 256 * 4, GPT2 = 20240520, LLAMA3 = 20240801 };

static int32_t word(const struct pd_array *a, int i) {
  int32_t x = 0;
  if (a->size >= (size_t)(i + 1) * 4) memcpy(&x, a->map + i * 4, 4);
  return x;
}

static void set_tokens(struct pd_array *a, enum pd_element type, size_t first) {
  a->type = type;
  a->first = first;
  a->stride = pd_element_bytes(type);
  a->rows = (int64_t)(a->size - first) / a->stride;
  a->row = 1;
  a->rank = 0;
}

void pd_parse_bytes(struct pd_array *a) { set_tokens(a, PD_TYPE_U8, 0); }

bool pd_parse_tokens(struct pd_array *a, int bytes, char *why) {
  if (a->size % (size_t)bytes)
    return pd_refuse(why, "'%s' is not a whole number of tokens of %d bytes: it has %lld bytes", a->path, bytes,
                     (long long)a->size);
  set_tokens(a, bytes == 1 ? PD_TYPE_U8 : bytes == 2 ? PD_TYPE_U16 : PD_TYPE_U32, 0);
  return true;
}

bool pd_is_shard(const struct pd_array *a) { return word(a, 0) == GPT2 || word(a, 0) == LLAMA3; }

bool pd_parse_shard(struct pd_array *a, char *why) {
  if (!pd_is_shard(a))
    return pd_refuse(
        why,
        "'%s' is not an llm.c token file: it does not start with %d. help: read tokens without a header, such as "
        "nanoGPT's, with --token-type u16",
        a->path, GPT2);
  int version = word(a, 0) == GPT2 ? 1 : 7;
  if (word(a, 1) != version)
    return pd_refuse(why, "'%s' is an llm.c token file of version %d: only version %d is supported", a->path,
                     word(a, 1), version);
  if (a->size < HEADER)
    return pd_refuse(why, "'%s' is cut short at offset %lld, within its header of %d bytes", a->path,
                     (long long)a->size, HEADER);
  set_tokens(a, version == 1 ? PD_TYPE_U16 : PD_TYPE_U32, HEADER);
  a->document_end = word(a, 3) > 0 ? word(a, 3) : 0;
  if (word(a, 2) != a->rows || (a->size - HEADER) % (size_t)a->stride)
    return pd_refuse(why, "'%s' is cut short or damaged: its header says %d tokens, but its size is for %lld",
                     a->path, word(a, 2), (long long)a->rows);
  return true;
}
