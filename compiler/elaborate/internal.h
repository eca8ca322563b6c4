/* What elaborate's files share. */
#ifndef PDC_ELABORATE_INTERNAL_H
#define PDC_ELABORATE_INTERNAL_H

#include "base/table.h"
#include "elaborate/elaborate.h"
#include "ops/op.h"

#ifdef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION /* tests/fuzz: what takes a second finds nothing new */
enum { MAX_SCOPES = 500, MAX_STATEMENTS = 5000, MAX_BUILT = 1 << 22 };
#else
enum { MAX_SCOPES = 200000, MAX_STATEMENTS = 1000000, MAX_BUILT = 1 << 28 };
#endif
enum { MAX_INLINED = 64, MAX_REPEAT = 100000, MAX_LIST = 100000, MAX_TEXT = 1 << 16 };

typedef struct Instance Instance;
typedef struct Layer Layer;

typedef enum {
  VAL_POISON,   /* comes from a reported mistake: what uses it becomes POISON without another diagnostic */
  VAL_NUMBER,   /* number */
  VAL_QUANTITY, /* number, word: the base unit */
  VAL_BOOL,     /* number */
  VAL_WORD,     /* word: 2bw, in_out, none */
  VAL_STRING,   /* word */
  VAL_LIST,     /* list, n */
  VAL_INIT,     /* init, number: an initial value of parameters */
  VAL_TENSOR,   /* value: of the graph */
  VAL_INSTANCE, /* instance */
  VAL_LAYER,    /* layer, or op, or a compile-time function by its name */
  VAL_SEVERAL   /* list, n: what a call with several results gives; only assigned, never stored */
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
  Table formals;      /* their numbers, by name */
  bool standard;      /* in stdlib_layers: may wrap the primitive of its name */
  int may_own_params; /* -1 unknown yet, -2 being found out */
};

/* Where an instance has its name from. By the layer's name alone nothing reaches it: that is the layer. */
typedef enum { NAMED_BY_LAYER, NAMED_BY_VARIABLE, NAMED_BY_LABEL } NamedBy;

typedef Vec(Instance *) Stem;

typedef struct InstanceParam {
  Name name;
  int param, call;
} InstanceParam; /* param -1: poisoned */

/* One for every labelled or owning call. A second call of it inlines the layer again with the same
 * parameters. */
struct Instance {
  Name name, path;
  NamedBy named_by;
  const Layer *layer;
  Instance *parent;
  Span span; /* of its first call */
  int calls; /* of it so far */
  int seen;  /* the parent's call in which it was made or found again */
  /* Of calls without label that own no parameters, in the parent's call `numbered_in`: the last number that followed this
   * instance's name (relu_2, relu_3 ...); those up to it are taken. */
  int numbered_in, number;
  bool poisoned;
  Vec(Instance *) children;
  Table by_name; /* of the children, which have different names */
  Table by_stem; /* Stem: of the children, by what stands before a point of their names, and by the whole names */
  Vec(InstanceParam) params;
  Table param_places; /* of params, by name */
  Val *attribute;     /* by formal: what the first call gave */
};

/* A statement that assigns tensors, with what it gave wherever it ran. */
typedef struct Assignment {
  const Ast *ast;
  bool read; /* one of its variables was, once at least */
  Ints values;
} Assignment;

typedef struct Variable {
  Name name;
  Val val;
  bool scoped; /* it ends with its block: parameters, counters of loops */
  Span span;
  Assignment *assignment; /* NULL: of a standard layer, or none */
  int hidden; /* the place of the variable of this name that it stands in front of; -1: of none. Where places are kept */
} Variable;

/* One inlining of a layer, or the model. */
typedef struct Frame {
  struct Frame *caller;
  const Layer *layer;
  Instance *instance;
  int scope, depth;
  Span call;
  Vec(Variable) variables;
  Table places;  /* by name: of the last variable, -1: there is none. Kept where there are many */
  Table gone;    /* by name: Variable of a block that has ended, for advice */
  bool doubtful; /* something that could define names was skipped: unknown ones are no mistakes */
  bool returned;
  Val result;
  Name counter;     /* of the innermost loop */
  Name result_hint; /* the variable a call is assigned to as a whole */
} Frame;

/* What a name of -D can be of. */
typedef enum { OWNER_MODEL, OWNER_TRAIN, OWNER_OPTIMIZER, OWNER_LR_SCHEDULE, N_OWNERS } DefineOwner;

typedef struct Elaborator {
  Graph *g;
  const ElaborateOptions *options;
  Vec(Layer *) layers;
  Table layer_of;  /* by name */
  Vec(Name) files; /* loaded or being loaded: real paths */
  const Ast *model, *train;
  bool incomplete;            /* a used file could not be read, so unknown names are not reported */
  AstList defines;            /* AST_SETTING; text: what stands before the name and a point, or NULL */
  Table defined;              /* the same by name: AstList */
  Table formals;              /* numbers of the model's attributes, by name */
  const Variable *attributes; /* of the model, as given: `train` sees them */
  int n_attributes;
  Table assignments;      /* by statement */
  Table param_names;      /* of all parameters: their numbers */
  Table inputs;           /* and targets: their statements by name */
  Table metrics, outputs; /* their statements by name */
  Vec(Assignment *) assigned;
  AstList frozen;        /* patterns of parameters that `freeze` names: AST_STRING */
  const Ast *optimizer;  /* the setting's value; NULL: not given */
  const Ast *exceptions; /* its pattern of parameters that are updated as those are which are no hidden matrices:
                            AST_STRING; NULL: none */
  int errors;            /* that were told before */
  int64_t built;         /* bytes of lists and texts made so far; past MAX_BUILT none are */
  int looked;            /* the source that options->look is of */
  int statements;        /* run so far, and passes through loops; past MAX_STATEMENTS all stops */
} Elaborator;

/* ---- module.c: files, layers -------------------------------------------------------------- */
void load_module(Elaborator *e, const Ast *file, const char *path, bool main);
const Layer *layer_find(const Elaborator *e, Name name);
bool layer_owns_params(const Elaborator *e, const Layer *layer);
/* Adds "a layer with a similar name exists" or the file that defines it. */
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
/* False after a diagnostic or for POISON. `what`: "the size", for messages. */
bool want_number(Elaborator *e, const Frame *f, Val v, Span where, const char *what, double *x);
bool want_whole(Elaborator *e, const Frame *f, Val v, Span where, const char *what, int64_t *x);
bool want_bool(Elaborator *e, const Frame *f, Val v, Span where, const char *what, bool *x);
bool want_size(Elaborator *e, const Frame *f, Val v, Span where, int64_t *x);
/* The graph value of a tensor, or of the constant that a number becomes; -1 after a diagnostic. */
int want_tensor(Elaborator *e, const Frame *f, Val v, Span where, const char *what);
/* An operator between compile-time values. */
Val val_operator(Elaborator *e, const Frame *f, const Ast *at, Val a, Val b);

/* ---- expression.c ------------------------------------------------------------------------- */
Val evaluate(Elaborator *e, Frame *f, const Ast *a);
/* For editors: notes what an expression is, where somebody looks at it and nothing smaller was found. */
void look_at(const Elaborator *e, const Ast *a, Val v);
Variable *variable_find(Frame *f, Name name);
bool predefined(Name name, Val *v); /* zeros, pi, none and the like */
/* Appends a node and gives its first output; a value too large is diagnosed. */
Val build(Elaborator *e, const Frame *f, const Op *op, const int *in, int n_in, const Attr *attr, Span at,
          Span whole);
bool attribute_value(Elaborator *e, const Frame *f, const OpAttr *attr, Val v, Span where, Attr *out);

/* ---- call.c ------------------------------------------------------------------------------- */
Val evaluate_call(Elaborator *e, Frame *f, const Ast *call, const Ast *label);
Instance *instance_find(const Frame *f, Name name); /* by its label, its variable or its path */
/* A name as a layer (then without op) or primitive, as a layer's body sees it. False: it is none that models
 * know. */
bool find_callable(const Elaborator *e, const Frame *f, Name name, const Layer **layer, const Op **op);
/* A warning where a label has the name of the layer or operation that `name` stands for. */
void warn_of_label(const Elaborator *e, const Frame *f, Name name, Span where);
/* "linear(x[.., in_features], out_features, bias = true)"; long ones without defaults. */
char *layer_signature(const Layer *l, bool defaults);
Name label_text(Elaborator *e, Frame *f, const Ast *label); /* "h.0"; NULL after a diagnostic */
bool instance_has_prefix(const Frame *f, Name prefix);
InstanceParam *instance_param(const Instance *i, Name name); /* NULL: it has none of this name */
void instance_add_param(Instance *i, InstanceParam param);

/* ---- builtin.c: functions of compile-time values ------------------------------------------ */
bool builtin_known(Name name);
/* `args`: the call's arguments, evaluated; none is POISON. */
Val builtin_call(Elaborator *e, Frame *f, Name name, const Ast *call, const Val *args);

/* ---- statement.c -------------------------------------------------------------------------- */
void run_block(Elaborator *e, Frame *f, const Ast *block);
void variable_set(Frame *f, Name name, Val v, Span span);
void variable_declare(Frame *f, Name name, Val v, bool scoped, Span span);
bool evaluate_shape(Elaborator *e, Frame *f, const Ast *a, Shape *s); /* of a declaration */
bool only_in_model(Frame *f, const Ast *a, const char *what);         /* else a diagnostic */

/* ---- input.c ------------------------------------------------------------------------------ */
void run_input(Elaborator *e, Frame *f, const Ast *a); /* or a target */
/* The signature of what an input can be computed with, as "shifted(tokens, first)"; NULL: no such name. */
const char *input_origin(Name name);

/* ---- advice.c: for those who come from another library ------------------------------------ */
bool advise(Diagnostic *d, Name name); /* adds what to write instead of the name; false: it is not known */
void advise_method(Elaborator *e, const Frame *f, Diagnostic *d, Name value, Name method); /* of "value.method" */
Name snake_case(Name name); /* "LayerNorm" -> "layer_norm" */

/* ---- warnings.c --------------------------------------------------------------------------- */
/* The record of what the statement assigns, which `v` is added to; NULL in standard layers. */
Assignment *assignment_note(Elaborator *e, const Frame *f, const Ast *a, Val v);
void assignment_read(Frame *f, Name name);
void assignments_skip(Frame *f, const Ast *a); /* what a block that does not run would read counts as read */
void warn_of_model(const Elaborator *e);       /* which has no errors */

/* ---- train.c ------------------------------------------------------------------------------ */
void train_settings(Elaborator *e);
bool is_train_setting(Name name);
/* Helps with a name that is no setting: one of the known ones that is like it, or what to write in its place. */
void advise_setting(Diagnostic *d, Name name, const char *const *known, int n);
/* Adds the names of the optimizer's or the schedule's arguments; of other owners none. */
void train_argument_names(const Elaborator *e, DefineOwner owner, Words *names);

/* The optimizer's arguments as a `group` has them: its own settings, and the optimizer's for the rest. */
void read_group(Elaborator *e, const Ast *a, ParameterGroup *to);

/* ---- defines.c: -D ------------------------------------------------------------------------ */
void read_defines(Elaborator *e);
const Ast *define_take(const Elaborator *e, DefineOwner owner,
                       Name name);         /* the last expression for it, or NULL */
void check_defines(const Elaborator *e);   /* each means one thing; once the settings are read */
void warn_of_defines(const Elaborator *e); /* of what only training asks, where the model is only run */

/* ---- patterns.c: which parameters `train` names, once the model has them all ---------------- */
void read_frozen(Elaborator *e); /* of `freeze`, or of -D freeze=PATTERN in its place */
void freeze_parameters(Elaborator *e);
void group_parameters(Elaborator *e); /* once those that are frozen are known */
void find_hidden(Elaborator *e);      /* under an optimizer of hidden matrices, which has `others` */

#endif
