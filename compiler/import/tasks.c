/* Encoders with a head for one of several tasks: the task, its labels and its loss. */
#include <string.h>

#include "import/internal.h"

static const cJSON *member(const Import *m, const char *name) {
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(m->config, name);
  return cJSON_IsNull(item) ? NULL : item;
}

/* ---- tasks --------------------------------------------------------------------------------------- */

static void choose(Import *m, const Task *t) {
  set_known(m, "task", t->ending);
  set_known(m, t->ending, "true");
  set_known(m, "own_heads", t->own);
}

static bool ends_with(const char *text, const char *ending) {
  const size_t n = strlen(text), k = strlen(ending);
  return n >= k && !strcmp(text + n - k, ending);
}

/* A class of another task may have a head and a loss that no template has. */
static bool choose_class(Import *m, const Task *tasks, const char *class) {
  Text all = {0};
  for (const Task *t = tasks; t->ending; t++) {
    text_add(&all, "%s*%s", t > tasks ? ", " : "", t->ending);
    if (ends_with(class, t->ending)) {
      choose(m, t);
      return true;
    }
  }
  refuse_field(m, "architectures", make_utf8(format("'%.100s'", class)), all.at);
  return false;
}

bool derive_task(Import *m, const Task *tasks) {
  const cJSON *classes = member(m, "architectures"), *class = cJSON_GetArrayItem(classes, 0);
  if (classes && (!cJSON_IsString(class) || cJSON_GetArraySize(classes) != 1)) {
    error_at((Span){.file = m->file}, "PD0603", "'architectures' must be a list of one class");
    return false;
  }
  if (class)
    return choose_class(m, tasks, class->valuestring);
  const Task *t = tasks;
  while (t[1].ending && !(t->tensor && tensors_find(&m->tensors, t->tensor)))
    t++;
  choose(m, t);
  return true;
}

/* ---- labels -------------------------------------------------------------------------------------- */

static bool refuse_value(const Import *m, const char *field, const char *must) {
  error_at((Span){.file = m->file}, "PD0603", "'%s' must be %s", field, must);
  return false;
}

/* The labels that config.json has; num_labels counts where both fields differ, as in transformers. */
static bool count_labels(const Import *m, double *to) {
  enum { USUAL = 2, MOST = 1000000 };
  const cJSON *names = member(m, "id2label"), *count = member(m, "num_labels");
  const double n = cJSON_IsNumber(count) ? count->valuedouble : 0, named = cJSON_GetArraySize(names);
  if (count && !(n >= 1 && n <= MOST && n == (int)n))
    return refuse_value(m, "num_labels", "a whole number from 1 to 1000000");
  if (names && !(cJSON_IsObject(names) && named >= 1 && named <= MOST))
    return refuse_value(m, "id2label", "an object with a member for each label");
  if (names && !object_is_plain(m, names))
    return false;
  if (names && count && n != named)
    help(warning_at((Span){.file = m->file}, "PD0654",
                    "'num_labels' is %g, which counts, but 'id2label' has %g label%s", n, named,
                    named == 1 ? "" : "s"),
         "give 'id2label' and 'label2id' %g label%s, or remove them", n, n == 1 ? "" : "s");
  *to = count ? n : names ? named : USUAL;
  return true;
}

static bool derive_problem(Import *m, double labels) {
  const cJSON *type = member(m, "problem_type");
  if (type && !cJSON_IsString(type))
    return refuse_value(m, "problem_type", "a string or null");
  const char *usual = labels == 1 ? "regression" : "single_label_classification";
  const char *name = type ? type->valuestring : usual;
  static const char *const known_types[][2] = {{"single_label_classification", "single_label"},
                                               {"multi_label_classification", "multi_label"},
                                               {"regression", "regression"}};
  for (int i = 0; i < 3; i++)
    if (!strcmp(name, known_types[i][0])) {
      set_known(m, known_types[i][1], "true");
      return true;
    }
  refuse_field(m, "problem_type", make_utf8(format("'%.100s'", name)),
               "single_label_classification, multi_label_classification, regression");
  return false;
}

bool derive_labels(Import *m) {
  double said;
  if (!count_labels(m, &said))
    return false;
  const double found = known_number(m, "labels"); /* by the tensors */
  if (found && found != said)
    warning_at((Span){.file = m->file}, "PD0654",
               "config.json has %g label%s, but by the tensors there are %g, which counts", said,
               said == 1 ? "" : "s", found);
  set_known(m, "num_labels", number_text(found ? found : said));
  return derive_problem(m, found ? found : said);
}

/* ---- activations ----------------------------------------------------------------------------------- */

void derive_activation(Import *m) {
  static const char *const layers[][2] = {
      {"gelu", ""},     {"gelu_python", ""}, {"gelu_new", "gelu_tanh"}, {"gelu_pytorch_tanh", "gelu_tanh"},
      {"relu", "relu"}, {"silu", "silu"},    {"swish", "silu"}};
  for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
    if (!strcmp(known(m, "hidden_act"), layers[i][0]))
      set_known(m, "activation", layers[i][1]);
}
