/* From folder to file: the family's fields and tensors, then the tokenizer's fields. */
#include "export/export.h"

#include "export/internal.h"

#include <string.h>
#include <sys/stat.h>

/* Refuses what is no regular file, and files of the folder. */
static bool may_write(const char *folder, const char *output) {
  struct stat own, st;
  const char *slash = strrchr(output, '/'), *beside = slash ? format("%.*s/", (int)(slash - output), output) : ".";
  const char *why = NULL;
  if (lstat(output, &own))
    return true;
  if (!S_ISREG(own.st_mode))
    why = "it is not a regular file";
  else if (!stat(folder, &st) && !stat(beside, &own) && st.st_dev == own.st_dev && st.st_ino == own.st_ino &&
           strcmp(output + strlen(output) - (strlen(output) < 5 ? 0 : 5), ".gguf") != 0)
    why = "it is a file of the exported folder";
  if (why)
    error_at(NO_SPAN, "PD0605", "cannot write '%s': %s", output, why);
  return !why;
}

bool export_gguf(const char *folder, const char *output, ExportType type) {
  Imported m;
  Gguf g = {0};
  const GgmlType of = type == EXPORT_F32 ? GGML_F32 : type == EXPORT_F16 ? GGML_F16 : GGML_Q8_0;
  return may_write(folder, output) && import_read(folder, &m) && export_model(&m, of, &g) &&
         export_tokens(m.folder, (int64_t)imported_number(&m, "vocab_size"), &g) && gguf_write(&g, output);
}
