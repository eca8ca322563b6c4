/* Between the files of this folder: a family's data, and what is known of the folder that is imported. */
#ifndef PDC_IMPORT_INTERNAL_H
#define PDC_IMPORT_INTERNAL_H

#include "base/json.h"
#include "import/import.h"

/* ---- families (family_*.c) ----------------------------------------------------------------------- */

typedef enum {
  FIELD_COUNT,  /* a whole number from 1 */
  FIELD_NUMBER, /* finite */
  FIELD_OPTION, /* finite, or null: none */
  FIELD_WINDOW, /* a whole number from 1, or null: none */
  FIELD_FLAG,   /* true or false */
  FIELD_WORD,   /* a string, one of `only` */
  FIELD_OTHER   /* `derive` reads it */
} FieldKind;

/* A field of config.json that the family's template uses, by this name, or that must have a certain value. */
typedef struct Field {
  const char *name;
  FieldKind kind;
  /* Value of a field that is missing or, unless null has a meaning, null: text, "=FIELD" or "=FIELD/FIELD" of fields above; NULL: the field must be
   * there. */
  const char *usual;
  const char *only; /* the values that the layers compute, "silu|swish"; NULL: any */
} Field;

enum { COUNT_LAYERS = -1, IS_THERE = -2, IS_NOT_THERE = -3 };

/* What a tensor says of a field. `tensor` is a name behind the family's root, or a whole name where it starts with '/'. */
typedef struct ShapeRule {
  const char *field, *tensor;
  int axis; /* whose size it is; COUNT_LAYERS: the number of N in tensor + "N."; IS_THERE: a flag; IS_NOT_THERE */
  const char *per; /* the field by which the size is divided; NULL: none */
} ShapeRule;

typedef struct Import Import;

typedef struct Family {
  const char *model_type, *title;
  const char *root;          /* prefix of names, "model."; folders of the model without its head lack it */
  const char *use;           /* file of layers */
  const Field *fields;       /* ends with a name of NULL; so do: */
  const ShapeRule *shapes;   /* in this order */
  const char *harmless;      /* fields that change no result, besides those of every family: "a|b"; NULL: none */
  bool (*derive)(Import *m); /* values that are more than a field; false after a diagnostic */
  const char *attributes;    /* template of the model's first attributes */
  const char *body;          /* template from the tokens to `logits` */
} Family;

extern const Family family_llama, family_mistral, family_qwen2, family_qwen3, family_olmo2, family_gpt2,
    family_gpt_neox, family_gemma, family_gemma2, family_phi3, family_mixtral;

/* ---- tensors (tensors.c) ------------------------------------------------------------------------- */

typedef struct Tensor {
  const char *name;
  int rank;
  int64_t dim[8];
  const unsigned char *data, *end; /* mapped, for as long as the process lasts */
} Tensor;
typedef Vec(Tensor) Tensors;

void tensors_sort(Tensors *all);
/* Headers of the folder's safetensors, sorted by name; none where the folder has no weights. False after a diagnostic. */
bool tensors_read(const char *folder, Tensors *to);
const Tensor *tensors_find(const Tensors *all, const char *name); /* NULL: there is none */

/* ---- a folder ------------------------------------------------------------------------------------ */

typedef struct Known { /* a name of templates and its text, as .pdm has it; "" and "0" are false */
  const char *name, *text;
} Known;

struct Import {
  const Family *family;
  const cJSON *config;
  int file; /* of config.json, for diagnostics */
  Tensors tensors;
  const char *root;
  Vec(Known) known;
};

/* import.c: the model of a config.json and tensors; NULL after diagnostics. */
char *import_config(const char *path, Tensors tensors);

/* fields.c */
bool fields_read(Import *m);
bool object_is_plain(const Import *m, const cJSON *object); /* no member is there twice; else a diagnostic */
const char *known(const Import *m, const char *name);       /* "" where it is not known */
bool is_known(const Import *m, const char *name);           /* and not false */
double known_number(const Import *m, const char *name);
void set_known(Import *m, const char *name, const char *text);
const char *number_text(double x);
Diagnostic *refuse_field(const Import *m, const char *field, const char *value, const char *computed);
Diagnostic *refuse_unknown(const Import *m, const char *field);

/* shapes.c */
bool shapes_apply(Import *m); /* what tensors say takes the place of what config.json says */
bool shapes_compare(const Import *m, const char *text); /* the model's parameters are the tensors */

/* positions.c: what families' `derive` is made of */
/* Fields of rope_theta, rope_scaling and rope_parameters: base, scaling ("" or a list), partial_rotary_factor. With
 * `scalings` false only plain frequencies are computed. */
bool derive_rope(Import *m, double usual_theta, bool scalings);
/* rotary_size: the share partial_rotary_factor of a head. */
bool derive_rotary_size(Import *m, double head_size);
/* window: of sliding_window and layer_types; usual: the layers i that have one where layer_types is missing, "" none, "true"
 * all. Sets window and window_lines. */
void derive_window(Import *m, const char *usual);

/* template.c */
char *template_fill(const Import *m, const char *text);

#endif
