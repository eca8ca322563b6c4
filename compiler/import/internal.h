/* Shared by the files of import/: a family's data, and the state of one import. */
#ifndef PDC_IMPORT_INTERNAL_H
#define PDC_IMPORT_INTERNAL_H

#include "import/import.h"

/* ---- families (family_*.c) ----------------------------------------------------------------------- */

typedef enum {
  FIELD_COUNT,   /* an integer of at least 1 */
  FIELD_NUMBER,  /* finite */
  FIELD_EPSILON, /* finite, at least 0 */
  FIELD_OPTION,  /* a finite number, or null for none */
  FIELD_WINDOW,  /* an integer of at least 1, or null for none */
  FIELD_PAD,     /* a row of embeddings, from the last one if negative, or null for none; sets padding, too */
  FIELD_FLAG,    /* true or false */
  FIELD_WORD,    /* a string, one of `only` */
  FIELD_OTHER    /* read by `derive` */
} FieldKind;

/* A field of config.json that the template uses by this name, or that must have a certain value. */
typedef struct Field {
  const char *name;
  FieldKind kind;
  /* Default for a missing or null field (null may have its own meaning): a text, or "=FIELD" or "=FIELD/FIELD" of
   * earlier fields. NULL: the field is mandatory. */
  const char *usual;
  const char *only; /* the supported values, "silu|swish"; NULL: any */
} Field;

enum { COUNT_LAYERS = -1, IS_THERE = -2, IS_NOT_THERE = -3 };

/* Derives a field from a tensor. `tensor`: a name after the family's root, or a full name if it starts with
 * '/'. */
typedef struct ShapeRule {
  const char *field, *tensor;
  int axis; /* the axis with this size; COUNT_LAYERS: the count of N in tensor + "N."; IS_THERE, IS_NOT_THERE: a
               flag */
  const char *per; /* the field that divides the size; NULL: none */
} ShapeRule;

typedef struct Import Import;

typedef struct Family {
  const char *model_type, *title;
  const char *root;        /* prefix of names, "model."; absent in folders of the model without its head */
  const char *use;         /* file of layers */
  const Field *fields;     /* ends with a NULL name, as does: */
  const ShapeRule *shapes; /* applied in this order */
  const char *harmless;    /* additional fields without influence on results: "a|b"; NULL: none */
  bool (*derive)(
      Import *m);         /* computes values from several fields; false after a diagnostic. Models other than those
                                of language set "inputs" and "objective" to templates, of the last attributes and the
                                inputs, and of outputs and losses, and "outputs_only" to "true" without losses */
  const char *attributes; /* template of the model's first attributes */
  const char *body;       /* template from the tokens to `logits` */
} Family;

extern const Family family_llama, family_mistral, family_qwen2, family_qwen3, family_olmo2, family_gpt2,
    family_gpt_neox, family_gemma, family_gemma2, family_gemma3, family_phi3, family_mixtral, family_qwen3_moe,
    family_deepseek_v3, family_bert, family_roberta, family_vit, family_t5, family_whisper;

/* ---- tensors (tensors.c) ------------------------------------------------------------------------- */

void tensors_sort(Tensors *all);
/* Reads the headers of the folder's safetensors, sorted by name; none if the folder has no weights. False after a
 * diagnostic. */
bool tensors_read(const char *folder, Tensors *to);

/* ---- a folder ------------------------------------------------------------------------------------ */

typedef struct Known { /* a template's name and its text in .pdm syntax; "" and "0" are false */
  const char *name, *text;
} Known;

struct Import {
  const Family *family;
  const cJSON *config;
  int file;         /* of config.json, for diagnostics */
  const char *path; /* of config.json */
  const char *name; /* of the written model, for diagnostics */
  Tensors tensors;
  const char *root;
  Vec(Known) known;
};

/* import.c: the text of the model of a config.json and tensors, under this name in diagnostics; NULL after
 * diagnostics. Fills *to. */
char *import_config(const char *path, const char *name, Tensors tensors, Import *to);

/* fields.c */
bool fields_read(Import *m);
bool object_is_plain(const Import *m, const cJSON *object); /* reports duplicate members */
const char *known(const Import *m, const char *name);       /* "" if unknown */
bool is_known(const Import *m, const char *name);           /* known and not false */
double known_number(const Import *m, const char *name);
void set_known(Import *m, const char *name, const char *text);
const char *number_text(double x);
Diagnostic *refuse_field(const Import *m, const char *field, const char *value, const char *computed);
/* Sets padding to the argument "padding_idx = N, " of the families with a FIELD_PAD, else to ""; false after a diagnostic. */
bool derive_padding(Import *m);
#define EMBEDDED "embedding(tokens, vocab_size, n_embd, ${padding}init = $init);\n"
bool heads_divide(const Import *m); /* num_attention_heads divides hidden_size; false after a diagnostic */
Diagnostic *refuse_unknown(const Import *m, const char *field);

/* shapes.c */
bool shapes_apply(Import *m);                           /* tensors override config.json */
bool shapes_compare(const Import *m, const char *text); /* compares the model's parameters with the tensors */

/* positions.c: building blocks of the families' `derive` */
/* Reads rope_theta, rope_scaling and rope_parameters; sets base, scaling ("" or a list) and partial_rotary_factor.
 * `scalings` false: only plain frequencies are supported. */
bool derive_rope(Import *m, double usual_theta, bool scalings);
/* The same for models whose layers with a window have another base: sets base and scaling of the layers with full attention, and
 * local_base. */
bool derive_ropes(Import *m, double usual_theta, double usual_local);
/* Sets rotary_size: the fraction partial_rotary_factor of a head. */
bool derive_rotary_size(Import *m, double head_size);
/* Sets window, window_lines and sliding, the condition for a layer with a window, from sliding_window and layer_types. `usual`: the condition on layer i for a window
 * if layer_types is missing; "" none, "true" all. */
void derive_window(Import *m, const char *usual);

/* tasks.c: building blocks of the `derive` of families with heads for several tasks */
typedef struct Task {
  const char *ending; /* of the class in `architectures`: "ForMaskedLM" */
  const char *tensor; /* a full name that only this task has; NULL: none */
  const char *own;    /* pattern of its heads' tensors; "": none */
} Task;
/* Finds the folder's task by `architectures`, else by the tensors, else takes the last. `tasks` ends with a NULL ending. Sets
 * "task" to the ending, and the value named like the ending to "true". */
bool derive_task(Import *m, const Task *tasks);
/* Sets num_labels, from "labels" (a rule's, by the tensors) or num_labels or id2label, and of problem_type one of single_label, multi_label and
 * regression to "true". */
bool derive_labels(Import *m);
/* Templates of the target and, for `logits` [n_label], the losses of transformers' heads. */
#define LABELS_TARGET \
  "[[single_label: target label[1] : token(n_label);\n]][[!single_label: target label[n_label] : f32;\n]]"
#define LABELS_OBJECTIVE                                                                               \
  "output logits;\n"                                                                                   \
  "[[single_label: loss cross_entropy(logits, label);\nmetric accuracy = accuracy(logits, label);\n]]" \
  "[[multi_label: loss binary_cross_entropy_with_logits(logits, label);\n]]"                           \
  "[[regression: loss mse_loss(logits, label);\n]]"
/* Sets activation to the layer of hidden_act, "" for gelu. */
void derive_activation(Import *m);

/* template.c */
char *template_fill(const Import *m, const char *text);

#endif
