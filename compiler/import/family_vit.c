/* vit: ViT's encoder of images, with the head for classes. */
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "import/internal.h"

static const Field fields[] = {{"hidden_size", FIELD_COUNT, "768", NULL},
                               {"num_hidden_layers", FIELD_COUNT, "12", NULL},
                               {"num_attention_heads", FIELD_COUNT, "12", NULL},
                               {"intermediate_size", FIELD_COUNT, "3072", NULL},
                               {"hidden_act", FIELD_WORD, "gelu",
                                "gelu|gelu_python|gelu_new|gelu_pytorch_tanh|relu|silu|swish"},
                               {"layer_norm_eps", FIELD_EPSILON, "1e-12", NULL},
                               {"num_channels", FIELD_COUNT, "3", "1|3"},
                               {"qkv_bias", FIELD_FLAG, "true", NULL},
                               {"pooler_act", FIELD_WORD, "tanh", "tanh"},
                               {"pooler_output_size", FIELD_COUNT, "=hidden_size", NULL},
                               {"image_size", FIELD_OTHER, NULL, NULL},
                               {"patch_size", FIELD_OTHER, NULL, NULL},
                               {"architectures", FIELD_OTHER, NULL, NULL},
                               {"id2label", FIELD_OTHER, NULL, NULL},
                               {"num_labels", FIELD_OTHER, NULL, NULL},
                               {"problem_type", FIELD_OTHER, NULL, NULL},
                               {0}};
static const ShapeRule shapes[] = {{"hidden_size", "embeddings.cls_token", 2, NULL},
                                   {"num_channels", "embeddings.patch_embeddings.projection.weight", 1, NULL},
                                   {"patch", "embeddings.patch_embeddings.projection.weight", 2, NULL},
                                   {"num_hidden_layers", "encoder.layer.", COUNT_LAYERS, NULL},
                                   {"intermediate_size", "encoder.layer.0.intermediate.dense.weight", 0, NULL},
                                   {"qkv_bias", "encoder.layer.0.attention.attention.query.bias", IS_THERE, NULL},
                                   {"pooler", "pooler.dense.weight", IS_THERE, NULL},
                                   {"labels", "/classifier.weight", 0, NULL},
                                   {0}};

/* The number of a field that is a number or a list of two equal numbers; 0 after a diagnostic. */
static double square(Import *m, const char *field, double usual) {
  enum { MOST = 100000 };
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(m->config, field);
  if (!item || cJSON_IsNull(item))
    return usual;
  const cJSON *side = item;
  if (cJSON_IsArray(item)) {
    const cJSON *a = cJSON_GetArrayItem(item, 0), *b = cJSON_GetArrayItem(item, 1);
    if (cJSON_IsNumber(a) && cJSON_IsNumber(b) && cJSON_GetArraySize(item) == 2) {
      side = a;
      if (a->valuedouble != b->valuedouble) {
        refuse_field(m, field, format("[%g, %g]", a->valuedouble, b->valuedouble), "one number for both axes");
        return 0;
      }
    }
  }
  const double x = side->valuedouble;
  if (cJSON_IsNumber(side) && x >= 1 && x <= MOST && x == floor(x))
    return x;
  error_at((Span){.file = m->file}, "PD0603", "'%s' must be a whole number from 1 to 100000, or a list of two",
           field);
  return 0;
}

/* ---- preprocessor_config.json ------------------------------------------------------------------------ */

/* "0.5" of equal numbers for all channels, or "[0.485, 0.456, 0.406]"; NULL after a diagnostic. */
static const char *channels_text(const JsonPlace *at, const char *field, int channels, bool positive,
                                 const char *usual) {
  const cJSON *list = cJSON_GetObjectItemCaseSensitive(at->object, field), *item;
  if (!list || cJSON_IsNull(list))
    return usual;
  Text all = {0};
  bool good = cJSON_IsArray(list) && cJSON_GetArraySize(list) == channels, equal = true;
  cJSON_ArrayForEach(item, list) {
    good = good && cJSON_IsNumber(item) && isfinite(item->valuedouble) && (!positive || item->valuedouble > 0);
    equal = equal && good && item->valuedouble == list->child->valuedouble;
    text_add(&all, "%s%s", all.n ? ", " : "", good ? number_text(item->valuedouble) : "");
  }
  if (good)
    return equal ? number_text(list->child->valuedouble) : format("[%s]", all.at);
  error_at((Span){.file = at->file}, "PD0603", "'%s' must be a list of %d %snumbers", field, channels,
           positive ? "positive " : "");
  return NULL;
}

static bool is_on(const JsonPlace *at, const char *field) {
  return !cJSON_IsFalse(cJSON_GetObjectItemCaseSensitive(at->object, field));
}

/* Sets normalized to the arguments of the type image, "(mean = 0.5, std = 0.5)". Sizes in the file are those of config.json;
 * options of the run resize. */
static bool derive_pixels(Import *m) {
  const char *slash = strrchr(m->path, '/');
  const char *path = format("%.*spreprocessor_config.json", slash ? (int)(slash + 1 - m->path) : 0, m->path);
  JsonPlace at = {.path = ""};
  if (access(path, F_OK) == 0 && !(at.object = json_load(path, &at.file)))
    return false;
  const cJSON *factor = cJSON_GetObjectItemCaseSensitive(at.object, "rescale_factor");
  const double most = 255, found = cJSON_IsNumber(factor) ? factor->valuedouble * most : 1;
  if (!is_on(&at, "do_rescale") || fabs(found - 1) > 1e-6) {
    help(error_at((Span){.file = at.file}, "PD0652",
                  "pixels are not from 0 to 1: 'do_rescale' or 'rescale_factor'"),
         "known: do_rescale true, rescale_factor 1/255");
    return false;
  }
  const int channels = (int)known_number(m, "num_channels");
  const char *mean = channels_text(&at, "image_mean", channels, false, "0.5");
  const char *std = mean ? channels_text(&at, "image_std", channels, true, "0.5") : NULL;
  if (std && is_on(&at, "do_normalize"))
    set_known(m, "normalized", format("(mean = %s, std = %s)", mean, std));
  return std != NULL;
}

/* ---- the model ------------------------------------------------------------------------------------- */

static const Task tasks[] = {{"ForImageClassification", "classifier.weight", "classifier"},
                             {"Model", NULL, "pooler"},
                             {0}};

static const char inputs[] = "[[num_labels: n_label = $num_labels, ]]p_drop = 0) {\n"
                             "input image[$num_channels, side, side] : image$normalized;\n"
                             "[[ForImageClassification: " LABELS_TARGET "]]\n";
static const char objective[] = "[[ForImageClassification: " LABELS_OBJECTIVE "]]"
                                "[[Model: output hidden = x;\n[[pooler: output pooled;\n]]]]";

static bool derive(Import *m) {
  const double side = square(m, "image_size", 224), patch = side ? square(m, "patch_size", 16) : 0;
  if (!patch || !heads_divide(m) || !derive_task(m, tasks) || !derive_pixels(m))
    return false;
  const bool of_tensors = is_known(m, "patch") && known_number(m, "patch") != patch;
  if (of_tensors)
    warning_at((Span){.file = m->file}, "PD0654", "'patch_size' is %g, but by the tensors %s, which counts", patch,
               known(m, "patch"));
  set_known(m, "patch", of_tensors ? known(m, "patch") : number_text(patch));
  set_known(m, "side", number_text(side));
  if (fmod(side, known_number(m, "patch")) != 0) {
    refuse_field(m, "image_size", number_text(side), format("multiples of 'patch_size', %s", known(m, "patch")));
    return false;
  }
  set_known(m, "inputs", inputs);
  set_known(m, "objective", objective);
  derive_activation(m);
  if (!m->tensors.n)
    set_known(m, "pooler", "true");
  if (!is_known(m, "Model"))
    return derive_labels(m);
  set_known(m, "outputs_only", "true");
  m->root = m->tensors.n ? m->root : "";
  return true;
}

const Family family_vit = {
    "vit",
    "A ViT",
    "vit.",
    "vit",
    fields,
    shapes,
    "encoder_stride",
    derive,
    "n_layer = $num_hidden_layers, n_head = $num_attention_heads, n_embd = $hidden_size, hidden = $intermediate_size, "
    "side = $side, patch = $patch, ",
    "x = ${root}embeddings: vit_embeddings(image, n_embd, patch, [[init_differs: init = $init, ]]p_drop = p_drop);\n"
    "for i in 0..n_layer {\n"
    "x = ${root}encoder.layer[i]: vit_layer(x, n_head, hidden, [[!qkv_bias: bias = false, ]]p_drop = p_drop, "
    "[[init_differs: init = $init, ]][[activation: activation = $activation, ]]eps = $layer_norm_eps);\n}\n"
    "x = ${root}layernorm: layer_norm(x, eps = $layer_norm_eps);\n"
    "[[ForImageClassification: logits = classifier: linear(x[0], n_label, init = $init, bias_init = zeros);\n]]"
    "[[Model: [[pooler: pooled = tanh(${root}pooler.dense: linear(x[0], $pooler_output_size, init = $init, "
    "bias_init = zeros));\n]]]]"};
