/* How the runtime does an operation of kind OP_CALL at one site: a function of pd_runtime.h, the object it is
 * given, its arguments, the loops around it. An op fills this in as data, for lower; emit prints it in either
 * dialect. */
#ifndef PDC_CALL_H
#define PDC_CALL_H

#include "ops/op.h"

struct pd_matmul_shape;
struct pd_convolution_shape;
struct pd_attention;
struct pd_lstm;
struct Workspaces;

/* What does calls on a target: the bytes of scratch memory that each takes, from its description
 * (pd_runtime.h). */
typedef struct Library {
  int64_t (*matmul)(const struct pd_matmul_shape *s);
  int64_t (*convolution)(const struct pd_convolution_shape *s);
  int64_t (*attention)(const struct pd_attention *a, int threads, const struct Workspaces *planned);
  int64_t (*attention_backward)(const struct pd_attention *a, int threads, const struct Workspaces *planned);
  int64_t (*lstm)(const struct pd_lstm *l);
  int64_t (*lstm_backward)(const struct pd_lstm *l);
  bool told_types; /* products are made for operands of the types that these have then; else each call says them */
  bool sees_others; /* ranks of a machine may read each other's memory */
} Library;

/* What is decided about a node before its call is described. */
struct Site {
  const Node *node;
  const Place *in, *out; /* of all inputs, the bias behind them, and of all outputs */
  int n_in, n_out;
  const bool *in_bf16, *out_bf16;      /* by place: stored in bf16; NULL where the library is not told types */
  int bias;                            /* index into `in` of the vector to add along the last axis, or -1 */
  bool accumulate;                     /* adds to out[0], except for a batch's first microbatch */
  CallPart part;                       /* of a collective */
  int threads;                         /* of the rank; 0: as many as the machine has */
  const struct Workspaces *workspaces; /* the target's */
  const Library *library;
};

/* Axes shared by several places, merged where every one of them lies in memory as a single axis. */
enum { MAX_PLACES = 4 };
typedef struct Axes {
  int n;
  int64_t count[MAX_DIM], stride[MAX_DIM][MAX_PLACES];
} Axes;
/* The first `dims` axes of places; a NULL place does not move along them. */
Axes merge_axes(const Place *const *place, int places, int dims, const int64_t *dim);
/* Makes an axis the innermost. */
void move_axis_last(Axes *a, int axis);
/* Takes the innermost axis off: its size, 1 when none is left, and each place's stride. */
int64_t take_axis(Axes *a, int64_t stride[MAX_PLACES]);

/* A member of the object. */
typedef enum { FIELD_INT, FIELD_BOOL, FIELD_FLOAT, FIELD_LIST, FIELD_NAME } FieldKind;
typedef struct Field {
  FieldKind kind;
  const char *name;
  double number; /* FLOAT */
  int64_t value; /* INT, BOOL */
  int n;         /* LIST, an array or a struct */
  int64_t list[MAX_DIM];
  const char *const *member; /* of a struct: its members' names; NULL: an array */
  const char *text;          /* NAME: an enumerator of pd_runtime.h, an expression */
} Field;

typedef enum {
  ARGUMENT_OBJECT, /* of a pair made twice, the one for this round */
  ARGUMENT_PLACE,  /* a pointer to the place's first element */
  ARGUMENT_NULL,
  ARGUMENT_INT,
  ARGUMENT_SHARD, /* so many times the rank within its shard group */
  ARGUMENT_FIRST, /* true in a round that overwrites out[0], false in one that adds */
  ARGUMENT_SCRATCH
} ArgumentKind;
typedef struct Argument {
  ArgumentKind kind;
  const Place *place;
  int moves;     /* PLACE: which of the outer loops' strides are its; -1: it stays */
  int64_t value; /* INT, SHARD */
} Argument;

struct Call {
  const char *function; /* "pd_matmul" */
  const char *object;   /* "pd_matmul": it is given a struct of this name; NULL: none */
  bool made;            /* setup makes it: pd_matmul_new((struct pd_matmul_shape){fields}); else it is constant */
  bool twice;        /* one that overwrites its result in some rounds and adds to it in others is made twice, with
                           .accumulate = !first; lowering decides */
  Name note;         /* what the object is for, for people; NULL: the kernel's comment says it */
  Vec(Field) fields; /* in the order of the struct, as C++ wants them; lists stand last there */
  Axes outer;        /* loops around the call */
  bool sums;         /* they add up: their first round overwrites out[0], the others add */
  Vec(Argument) arguments;
};

void field_int(Call *c, const char *name, int64_t value);
void field_bool(Call *c, const char *name, bool value);
void field_float(Call *c, const char *name, double value);
void field_list(Call *c, const char *name, int n, const int64_t *list);
void field_struct(Call *c, const char *name, int n, const char *const *member, const int64_t *list);
void field_name(Call *c, const char *name, const char *text);

void field_type(Call *c, const char *name, bool bf16); /* enum pd_type, of those that are not floats */

void pass_object(Call *c);
void pass_place(Call *c, const Place *place);             /* the same in every round */
void pass_moving(Call *c, const Place *place, int moves); /* along the outer loops */
void pass_null(Call *c);
void pass_int(Call *c, int64_t value);
void pass_shard(Call *c, int64_t value);
void pass_first(Call *c);
void pass_scratch(Call *c);

#endif
