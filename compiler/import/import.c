/* From folder to model: reads config.json and headers, fills the family's template, compares the result with the
 * tensors. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "format/format.h"
#include "import/internal.h"

static const Family *const families[] = {&family_llama, &family_mistral,   &family_mixtral,     &family_qwen2,
                                         &family_qwen3, &family_qwen3_moe, &family_deepseek_v3, &family_olmo2,
                                         &family_phi3,  &family_gemma,     &family_gemma2,      &family_gemma3,
                                         &family_gpt2,  &family_gpt_neox,  &family_bert,        &family_roberta,
                                         &family_vit,   &family_t5,        &family_whisper};
enum { N_FAMILIES = sizeof families / sizeof *families };

/* Text around the family's part: common to all models, but for the inputs and the objective, which are those of language
 * models. */
static const char before[] = "# $title, written by pdc import; parameters have the folder's names.\n"
                             "use $use;\n[[multi_label: use functional;\n]]"
                             "\n"
                             "model $model_type(";
static const char inputs[] = "n_ctx = $n_ctx, vocab_size = $vocab_size, ignore = none, packed = false) {\n"
                             "input  tokens[n_ctx] : token(vocab_size);\n"
                             "target next[n_ctx] : token(vocab_size);\n"
                             "\n"
                             "document = none;\n"
                             "if packed {  # several samples in a row, as pdc tokenize --pack writes them\n"
                             "input documents[n_ctx] : token(n_ctx);\n"
                             "document = documents;\n"
                             "}\n";
static const char objective[] =
    "output logits;\n"
    "entropy = cross_entropy(logits, next);\n"
    "if ignore != none {  # -100: targets without loss, as pdc tokenize writes them for chats\n"
    "target weight[n_ctx] : counted(next, ignore = ignore);\n"
    "entropy = weight * entropy;\n"
    "}\n"
    "loss entropy;\n"
    "metric perplexity = entropy, of_mean = exp;\n";
static const char training[] = "}\n"
                               "\n"
                               "train $model_type {\n"
                               "batch = 8;\n"
                               "optimizer = adamw(lr = 2e-5, betas = (0.9, 0.95), weight_decay = 0.01);\n"
                               "lr_schedule = constant(warmup = 20);\n"
                               "clip_norm = 1.0;\n"
                               "pipeline = 2bw;\n"
                               "delay_correction = auto;  # gradients under 2bw are one update late\n"
                               "[[frozen: freeze \"$frozen\";\n]]"
                               "}\n";

static const Family *find_family(const Import *m) {
  const char *names[N_FAMILIES];
  Text all = {0};
  const cJSON *type = cJSON_GetObjectItemCaseSensitive(m->config, "model_type");
  const char *wanted = cJSON_IsString(type) ? type->valuestring : NULL;
  for (int i = 0; i < N_FAMILIES; i++) {
    names[i] = families[i]->model_type;
    text_add(&all, "%s%s", i ? ", " : "", names[i]);
    if (wanted && !strcmp(wanted, names[i]))
      return families[i];
  }
  Diagnostic *d = wanted ? error_at((Span){.file = m->file}, "PD0650", "'model_type' is '%s', which is not known",
                                    make_utf8(format("%.100s", wanted)))
                         : error_at((Span){.file = m->file}, "PD0650", "there is no 'model_type'");
  help(d, "known: %s", all.at);
  return NULL;
}

/* Parameter names have the family's root prefix, except in a folder of the model without its head. */
static const char *find_root(const Import *m) {
  const char *root = m->family->root;
  for (int i = 0; i < m->tensors.n; i++)
    if (!strncmp(m->tensors.at[i].name, root, strlen(root)))
      return root;
  return m->tensors.n ? "" : root;
}

/* Positions per sample: at most 1024 to save memory; -D n_ctx=N overrides it. */
static void set_context(Import *m) {
  enum { MOST = 1024 };
  const double positions = known_number(m, "max_position_embeddings");
  set_known(m, "n_ctx", number_text(positions < MOST ? positions : MOST));
}

static char *fill(Import *m) {
  Text all = {0};
  set_known(m, "model_type", m->family->model_type);
  set_known(m, "title", m->family->title);
  set_known(m, "use", m->family->use);
  set_known(m, "root", m->root);
  set_context(m);
  const char *own_inputs = known(m, "inputs"), *own_objective = known(m, "objective");
  const char *const parts[] = {before,
                               m->family->attributes,
                               *own_inputs ? own_inputs : inputs,
                               m->family->body,
                               *own_objective ? own_objective : objective,
                               training};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
    text_add(&all, "%s", template_fill(m, parts[i]));
  return format_text(m->name, all.at, all.n);
}

char *import_config(const char *path, const char *name, Tensors tensors, Import *to) {
  *to = (Import){.tensors = tensors, .name = name, .path = path};
  to->config = json_load(path, &to->file);
  if (!to->config && access(path, F_OK) != 0)
    help(diagnostic_last(), "a folder is a model if it has Hugging Face's config.json");
  if (!to->config || !(to->family = find_family(to)))
    return NULL;
  to->root = find_root(to);
  if (!fields_read(to) || !shapes_apply(to) || !derive_padding(to) || !to->family->derive(to))
    return NULL;
  char *text = fill(to);
  return text && shapes_compare(to, text) ? text : NULL;
}

const char *imported_type(const Imported *m) { return m->fields->family->model_type; }
const char *imported_value(const Imported *m, const char *name) { return known(m->fields, name); }
double imported_number(const Imported *m, const char *name) { return known_number(m->fields, name); }
const cJSON *imported_config(const Imported *m) { return m->fields->config; }
const char *imported_root(const Imported *m) { return m->fields->root; }
const Tensors *imported_tensors(const Imported *m) { return &m->fields->tensors; }

bool import_read(const char *folder, Imported *to) {
  Tensors tensors = {0};
  struct stat st;
  to->folder = folder = without_slashes(folder);
  if (stat(folder, &st) != 0 || !S_ISDIR(st.st_mode)) {
    Diagnostic *d = error_at((Span){.file = source_add(folder, "")}, "PD0601", "this is not a folder");
    help(d, "'pdc import' takes a folder with config.json");
    return false;
  }
  if (!tensors_read(folder, &tensors))
    return false;
  to->name = format("<pdc import %s>", folder);
  Import *fields = alloc(sizeof *fields);
  to->fields = fields;
  to->text = import_config(format("%s/config.json", folder), to->name, tensors, fields);
  to->has_weights = tensors.n > 0;
  return to->text != NULL;
}

bool import_folder(const char *folder, const char *output) {
  Imported model;
  if (!import_read(folder, &model))
    return false;
  if (!output)
    return fputs(model.text, stdout) >= 0;
  if (write_file(output, model.text, strlen(model.text)))
    return true;
  error_at(NO_SPAN, "PD0605", "cannot write '%s': %s", output, strerror(errno));
  return false;
}
