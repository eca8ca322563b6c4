/* The table of front ends. */
#include "front/front.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "import/import.h"

static bool is_folder(const char *path) {
  struct stat st;
  return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static bool read_folder(const char *path, FrontModel *to) {
  Imported model;
  if (!import_read(path, &model))
    return false;
  const char *task = imported_value(&model, "task");
  const char *tokenizer = format("%s/tokenizer.json", model.folder);
  *to = (FrontModel){.ast = parse_text(model.name, model.text, strlen(model.text), NULL),
                     .init = model.has_weights ? model.folder : NULL,
                     .task = *task ? format("%s %s", imported_type(&model), task) : NULL,
                     .tokenizer = access(tokenizer, R_OK) == 0 ? tokenizer : NULL};
  return to->ast != NULL;
}

static bool is_any(const char *path) {
  (void)path;
  return true;
}

static bool read_model(const char *path, FrontModel *to) {
  *to = (FrontModel){.ast = parse_file(path)};
  return to->ast != NULL;
}

static const struct FrontEnd {
  bool (*takes)(const char *path);
  bool (*read)(const char *path, FrontModel *to); /* false after diagnostics */
} front_ends[] = {{is_folder, read_folder}, {is_any, read_model}};

bool front_read(const char *path, FrontModel *to) {
  const struct FrontEnd *f = front_ends;
  while (!f->takes(path))
    f++;
  return f->read(path, to);
}
