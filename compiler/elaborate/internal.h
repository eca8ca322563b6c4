/* Shared by the files of elaborate/. */
#ifndef PDC_ELABORATE_INTERNAL_H
#define PDC_ELABORATE_INTERNAL_H

#include "base/table.h"
#include "elaborate/elaborate.h"
#include "ops/op.h"
#include "shared/pattern.h"

#ifdef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION /* tests/fuzz: slow inputs find nothing new */
enum { MAX_SCOPES = 500, MAX_STATEMENTS = 5000, MAX_BUILT = 1 << 22 };
#else
enum { MAX_SCOPES = 200000, MAX_STATEMENTS = 1000000, MAX_BUILT = 1 << 28 };
#endif
enum { MAX_INLINED = 64, MAX_REPEAT = 100000, MAX_LIST = 100000, MAX_TEXT = 1 << 16 };

typedef struct Instance Instance;
typedef struct Layer Layer;

typedef enum {
  VAL_POISON,   /* result of a reported error: values computed from it are POISON, without another diagnostic */
  VAL_NUMBER,   /* number */
  VAL_QUANTITY, /* number, word: the base unit */
  VAL_BOOL,     /* number */
  VAL_WORD,     /* word: 2bw, in_out, none */
  VAL_STRING,   /* word */
  VAL_LIST,     /* list, n */
  VAL_INIT,     /* init, number: an initial value of parameters */
  VAL_TENSOR,   /* value: its index in the graph */
  VAL_INSTANCE, /* instance */
  VAL_LAYER,    /* layer, or op, or a compile-time function by its name */
  VAL_SEVERAL   /* list, n: the results of one call; only assigned, never stored */
} ValKind;

typedef struct Val {
  ValKind kind;
  double number;
  Name word;
  struct Val *list;
  int n;
  InitKind init;
  int value;
  Instance *instance;
  const Layer *layer;
  const Op *op;
} Val;

struct Layer {
  Name name;
  const Ast *ast;
  Table formals;      /* indices of formal arguments by name */
  bool standard;      /* in stdlib_layers: may wrap the primitive of its name */
  int may_own_params; /* -1 unknown, -2 while being computed */
};

/* The origin of an instance's name. A layer's own name denotes the layer, so it cannot reach the instance. */
typedef enum { NAMED_BY_LAYER, NAMED_BY_VARIABLE, NAMED_BY_LABEL } NamedBy;

typedef Vec(Instance *) Stem;

typedef struct InstanceParam {
  Name name;
  int param, call;
} InstanceParam; /* param -1: poisoned */

/* An instance of a labelled or parameter-owning call. A second call inlines the layer again with the same
 * parameters. */
struct Instance {
  Name name, path;
  NamedBy named_by;
  const Layer *layer;
  Instance *parent;
  Span span; /* of its first call */
  int calls; /* how often it was called */
  int seen;  /* the parent's call that created or last reused it */
  /* Numbering of unlabelled calls without parameters, in the parent's call `numbered_in`. `number` is the last
   * suffix used after this instance's name, as in relu_2 and relu_3. */
  int numbered_in, number;
  bool poisoned;
  Vec(Instance *) children;
  Table by_name; /* children by name, which is unique */
  Table by_stem; /* Stem: children by every dotted prefix of their names, whole names included */
  Vec(InstanceParam) params;
  Table param_places; /* indices of params by name */
  Val *attribute;     /* by formal: values of the first call */
};

/* A statement that assigns tensors, with the values of all its executions. */
typedef struct Assignment {
  const Ast *ast;
  bool read; /* one of its variables was read at least once */
  Ints values;
} Assignment;

typedef struct Variable {
  Name name;
  Val val;
  bool scoped;  /* ends with its block: a parameter or loop counter */
  bool of_scan; /* of the body of a scan */
  Span span;
  Assignment *assignment; /* NULL: in a standard layer, or no assignment */
  int hidden;             /* index of the variable of this name that it shadows, or -1; used with Frame.places */
} Variable;

/* One inlining of a layer, or the model. */
typedef struct Frame {
  struct Frame *caller;
  const Layer *layer;
  Instance *instance;
  int scope, depth;
  Span call;
  Vec(Variable) variables;
  Table places;  /* index of the last variable by name, or -1; used only if there are many variables */
  Table gone;    /* Variables of ended blocks by name, for advice */
  bool doubtful; /* a skipped statement may have defined names, so unknown names are not errors */
  bool returned;
  Val result;
  int loops;        /* bodies of scans around the statement being run */
  Name counter;     /* of the innermost loop */
  Name result_hint; /* the variable that takes the whole result of a call */
} Frame;

/* A layer that --lora gives an adapter. */
typedef struct Adapted {
  Name path;
  bool stored_in_out; /* its weight */
} Adapted;

/* Possible owners of a -D name. */
typedef enum { OWNER_MODEL, OWNER_TRAIN, OWNER_OPTIMIZER, OWNER_LR_SCHEDULE, N_OWNERS } DefineOwner;

/* Parameters that a pattern matches, except those of another pattern. */
typedef struct Selection {
  const Ast *pattern, *except; /* AST_STRING; except NULL: none */
} Selection;

typedef struct Elaborator {
  Graph *g;
  const ElaborateOptions *options;
  Vec(Layer *) layers;
  Table layer_of;  /* by name */
  Vec(Name) files; /* real paths of files that are loaded or loading */
  const Ast *model, *train;
  bool incomplete;            /* a used file could not be read, so unknown names are not reported */
  AstList defines;            /* AST_SETTING; text: the owner before the point, or NULL */
  Table defined;              /* the same definitions by name: AstList */
  Table formals;              /* indices of the model's attributes by name */
  const Variable *attributes; /* values of the model's attributes, visible in `train` */
  int n_attributes;
  Table assignments;      /* by statement */
  Table param_names;      /* parameter indices by name */
  Table inputs;           /* statements of inputs and targets by name */
  Table metrics, outputs; /* statements by name */
  Vec(Assignment *) assigned;
  Vec(int) shown;        /* values of outputs, which a training drops from the figures */
  Vec(Adapted) adapted;  /* with options->lora */
  Vec(Selection) frozen; /* `freeze` */
  Vec(Selection) only;   /* `train_only` */
  const Ast *optimizer;  /* value of the setting; NULL: absent */
  const Ast *exceptions; /* pattern of the optimizer's exceptions, updated like parameters that are not hidden
                            matrices: AST_STRING; NULL: none */
  int errors;            /* error count before elaboration */
  int64_t built;         /* bytes allocated for lists and texts; elaboration fails above MAX_BUILT */
  int loops;             /* number of scans */
  int within;            /* bodies of scans around the statement being run, also those of callers */
  int looked;            /* index of the source of options->look */
  int statements;        /* number of statements and loop passes run; elaboration stops after MAX_STATEMENTS */
} Elaborator;

/* ---- module.c: files, layers -------------------------------------------------------------- */
void load_module(Elaborator *e, const Ast *file, const char *path, bool main);
const Layer *layer_find(const Elaborator *e, Name name);
bool layer_owns_params(const Elaborator *e, const Layer *layer);
/* Suggests a layer with a similar name, or the file that defines `name`. */
void suggest_callable(const Elaborator *e, const Frame *f, Diagnostic *d, Name name);

/* ---- value.c: compile-time values --------------------------------------------------------- */
extern const Val POISON;
Val val_number(double x);
Val val_bool(bool x);
Val val_tensor(int value);
Val val_list(ValKind kind, const Val *list, int n);
const char *val_kind(const Elaborator *e, Val v); /* "a number", "a tensor of shape [3, 4]" */
bool val_equal(Val a, Val b);
/* An error with notes about the calls that lead here. */
Diagnostic *fail(const Frame *f, Span where, const char *code, const char *pattern, ...)
    __attribute__((format(printf, 4, 5)));
void note_calls(const Frame *f, Diagnostic *d);
static inline bool in_standard(const Frame *f) { return f->layer && f->layer->standard; }
/* False after a diagnostic or for POISON. `what`: the noun in messages, such as "the size". */
bool want_number(Elaborator *e, const Frame *f, Val v, Span where, const char *what, double *x);
bool want_whole(Elaborator *e, const Frame *f, Val v, Span where, const char *what, int64_t *x);
bool want_bool(Elaborator *e, const Frame *f, Val v, Span where, const char *what, bool *x);
bool want_size(Elaborator *e, const Frame *f, Val v, Span where, int64_t *x);
/* The graph value of a tensor, or of a constant for a number; -1 after a diagnostic. */
int want_tensor(Elaborator *e, const Frame *f, Val v, Span where, const char *what);
/* Applies an operator to compile-time values. */
Val val_operator(Elaborator *e, const Frame *f, const Ast *at, Val a, Val b);

/* ---- expression.c ------------------------------------------------------------------------- */
Val evaluate(Elaborator *e, Frame *f, const Ast *a);
/* For editors: records the value of an expression if it is the smallest one at the requested place. */
void look_at(const Elaborator *e, const Ast *a, Val v);
Variable *variable_find(Frame *f, Name name);
bool predefined(Name name, Val *v); /* zeros, pi, none and similar names */
/* Appends a node and returns its first output; reports a value that is too large. */
Val build(Elaborator *e, const Frame *f, const Op *op, const int *in, int n_in, const Attr *attr, Span at,
          Span whole);
bool attribute_value(Elaborator *e, const Frame *f, const OpAttr *attr, Val v, Span where, Attr *out);

/* ---- call.c ------------------------------------------------------------------------------- */
Val evaluate_call(Elaborator *e, Frame *f, const Ast *call, const Ast *label);
Instance *instance_find(const Frame *f, Name name); /* by label, variable or path */
/* Resolves a name in a layer's body to a layer (op NULL) or a primitive. False: an unknown name. */
bool find_callable(const Elaborator *e, const Frame *f, Name name, const Layer **layer, const Op **op);
/* Warns if a label hides the layer or operation `name`. */
void warn_of_label(const Elaborator *e, const Frame *f, Name name, Span where);
/* "linear(x[.., in_features], out_features, bias = true)"; long ones without defaults. */
char *layer_signature(const Layer *l, bool defaults);
Name label_text(Elaborator *e, Frame *f, const Ast *label); /* "h.0"; NULL after a diagnostic */
bool instance_has_prefix(const Frame *f, Name prefix);
InstanceParam *instance_param(const Instance *i, Name name); /* NULL: no parameter of this name */
void instance_add_param(Instance *i, InstanceParam param);

/* ---- builtin.c: functions of compile-time values ------------------------------------------ */
bool builtin_known(Name name);
/* `args`: the evaluated arguments, without POISON. */
Val einsum(Elaborator *e, Frame *f, const Ast *call, const Val *args);
Val call_op(Elaborator *e, Frame *f, const Op *op, const Ast *call, const Val *args);
Val builtin_call(Elaborator *e, Frame *f, Name name, const Ast *call, const Val *args);

/* ---- statement.c -------------------------------------------------------------------------- */
void run_block(Elaborator *e, Frame *f, const Ast *block);
void variable_set(Frame *f, Name name, Val v, Span span);
void variable_declare(Frame *f, Name name, Val v, bool scoped, Span span);
bool evaluate_shape(Elaborator *e, Frame *f, const Ast *a, Shape *s); /* of a declaration */
bool only_in_model(Frame *f, const Ast *a, const char *what);         /* reports other places */

/* Leaves a block: variables from index `had` on end with it if they are scoped. */
void leave_block(Frame *f, int had);
/* Gives a value that the statement just made the user's name, even if a layer made it. */
void name_value(Elaborator *e, const Frame *f, Val v, Name name, int values_before);
/* Declares all names that a skipped block assigns as POISON. */
void spoil(Frame *f, const Ast *a);

/* ---- scan.c ------------------------------------------------------------------------------- */
void run_scan(Elaborator *e, Frame *f, const Ast *a);
/* ---- bodies.c ----------------------------------------------------------------------------- */
/* Replaces the marks of every loop by a scan with a body (ops/scan.h); false after diagnostics. */
bool make_bodies(Graph *g);

/* ---- input.c ------------------------------------------------------------------------------ */
void run_input(Elaborator *e, Frame *f, const Ast *a); /* an input or a target */
/* The signature of a computed input's function, such as "shifted(tokens, first)"; NULL: no such name. */
const char *input_origin(Name name);

/* ---- advice.c: equivalents for names from other libraries --------------------------------- */
bool advise(Diagnostic *d, Name name); /* suggests the equivalent in this language; false: unknown name */
void advise_method(Elaborator *e, const Frame *f, Diagnostic *d, Name value, Name method); /* of "value.method" */
Name snake_case(Name name); /* "LayerNorm" -> "layer_norm" */

/* ---- warnings.c --------------------------------------------------------------------------- */
/* The statement's record of assigned values, with `v` added; NULL in standard layers. */
Assignment *assignment_note(Elaborator *e, const Frame *f, const Ast *a, Val v);
void assignment_read(Frame *f, Name name);
void assignments_skip(Frame *f, const Ast *a); /* counts all variables in a skipped block as read */
void warn_of_model(const Elaborator *e);       /* requires a model without errors */

/* ---- train.c ------------------------------------------------------------------------------ */
void train_settings(Elaborator *e);
bool is_train_setting(Name name);
/* Suggests a similar setting, or an equivalent for a name that is not a setting. */
void advise_setting(Diagnostic *d, Name name, const char *const *known, int n);
/* Adds argument names of the optimizer or schedule; other owners have none. */
void train_argument_names(const Elaborator *e, DefineOwner owner, Words *names);

/* The optimizer's arguments for a `group`: its own settings, completed by the optimizer's. */
void read_group(Elaborator *e, const Ast *a, ParameterGroup *to);

/* ---- defines.c: -D ------------------------------------------------------------------------ */
void read_defines(Elaborator *e);
const Ast *define_take(const Elaborator *e, DefineOwner owner, Name name); /* the last definition, or NULL */
void check_defines(const Elaborator *e);   /* after settings are read: refuses ambiguous and unknown names */
void warn_of_defines(const Elaborator *e); /* warns of training settings in a model that only runs inference */

/* ---- lora.c: --lora ----------------------------------------------------------------------- */
/* `y`, the product of the graph values `in`, or its sum with the product of an adapter. */
Val lora_adapt(Elaborator *e, Frame *f, const int in[2], Val y, Span span);
/* Freezes all parameters but those of adapters, and sets Graph.adapter_config; reports targets without a layer. */
void lora_finish(Elaborator *e);

/* ---- patterns.c: parameter patterns of `train`, after all parameters exist --------------------- */
/* The parameter of all experts whose tensors in files, one for each expert, have a name that the alternative matches;
 * the name is compared without `end`, if it has this end. NULL: none. */
const Param *stack_of_matched(const Graph *g, struct pd_range part, const char *end);
/* Checks the second pattern of `freeze "h.*" except "bias";`. */
void check_exception(const Ast *a);
void read_frozen(Elaborator *e); /* `freeze` and `train_only`, or -D, which replaces either */
void freeze_parameters(Elaborator *e);
void group_parameters(Elaborator *e); /* after freeze_parameters() */
void find_hidden(Elaborator *e);      /* for optimizers of hidden matrices, whose `others` lists exceptions */

#endif
