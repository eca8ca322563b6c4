/* From folder to file: the family's fields and tensors, then the tokenizer's fields. */
#include "export/export.h"

#include "export/internal.h"

#include <string.h>
#include <sys/stat.h>

static bool is_gguf(const char *path) {
  const size_t n = strlen(path);
  return n >= 5 && !strcmp(path + n - 5, ".gguf");
}

/* Whether the file stands in the folder. */
static bool is_inside(const char *file, const char *folder) {
  const char *slash = strrchr(file, '/'), *own = slash ? format("%.*s/", (int)(slash - file), file) : ".";
  struct stat a, b;
  return !stat(own, &a) && !stat(folder, &b) && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/* Refuses to replace devices, pipes and links, and the folder's files other than earlier exports. */
static bool may_write(const char *folder, const char *output) {
  struct stat st;
  const char *why = lstat(output, &st)                              ? NULL
                    : !S_ISREG(st.st_mode)                          ? "it is not a regular file"
                    : is_inside(output, folder) && !is_gguf(output) ? "it is a file of the exported folder"
                                                                    : NULL;
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
