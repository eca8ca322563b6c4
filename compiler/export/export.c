/* From folder to file: the family's fields and tensors, then the tokenizer's fields. */
#include "export/export.h"

#include "export/internal.h"

bool export_gguf(const char *folder, const char *output, ExportType type) {
  Imported m;
  Gguf g = {0};
  const GgmlType of = type == EXPORT_F32 ? GGML_F32 : type == EXPORT_F16 ? GGML_F16 : GGML_Q8_0;
  return import_read(folder, &m) && export_model(&m, of, &g) &&
         export_tokens(m.folder, (int64_t)imported_number(&m, "vocab_size"), &g) && gguf_write(&g, output);
}
