/* Input: a checkpoint's manifest. The required checksum is appended, because other texts are refused at once. A
 * printed manifest must read back equal. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shared/checksum.h"
#include "shared/manifest.h"

static void check(const struct pd_manifest *m) {
  if (m->step < 0 || m->samples < 0 || m->n_shards < 1) abort();
  for (int i = 0; i < m->n_shards; i++)
    if (m->shard[i].header_bytes < 0 || m->shard[i].header_bytes > m->shard[i].bytes) abort();
  for (int i = 0; i < m->n_files; i++)
    if (!m->file[i].path || !m->file[i].option || m->file[i].bytes < 0) abort();
  for (int i = 0; i < m->function.n; i++)
    if (!pd_pair_value(&m->function, m->function.at[i].name)) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  struct pd_manifest m, again;
  char why[PD_WHY] = "", *text = malloc(size + 64);
  memcpy(text, data, size);
  int tail =
      sprintf(text + size, ",\n\"checksum\": \"%016llx\"\n}\n", (unsigned long long)pd_checksum(data, size));
  if (!pd_manifest_parse(text, size + (size_t)tail, &m, why)) {
    if (!*why) abort();
    free(text);
    return 0;
  }
  check(&m);
  char *printed = pd_manifest_print(&m), *twice;
  if (!printed || !pd_manifest_parse(printed, strlen(printed), &again, why)) abort();
  twice = pd_manifest_print(&again);
  if (!twice || strcmp(printed, twice)) abort();
  pd_manifest_free(&m);
  pd_manifest_free(&again);
  free(printed);
  free(twice);
  free(text);
  return 0;
}
