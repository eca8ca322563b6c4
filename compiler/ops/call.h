/* The implementation of an OP_CALL operation at one site: a function of pd_kernels.h, its object, its arguments,
 * its loops. An op fills this in as data, for lower; emit prints it in either dialect. */
#ifndef PDC_CALL_H
#define PDC_CALL_H

#include "ops/op.h"

struct pd_matmul_shape;
struct pd_convolution_shape;
struct pd_attention;
struct pd_lstm;
struct pd_experts;
struct Workspaces;

/* The functions of calls on a target: scratch bytes of each call, from its description (pd_kernels.h). */
typedef struct Library {
  int64_t (*matmul)(const struct pd_matmul_shape *s);
  int64_t (*convolution)(const struct pd_convolution_shape *s);
  int64_t (*attention)(const struct pd_attention *a, int threads, const struct Workspaces *planned);
  int64_t (*attention_backward)(const struct pd_attention *a, int threads, const struct Workspaces *planned);
  int64_t (*lstm)(const struct pd_lstm *l);
  int64_t (*lstm_backward)(const struct pd_lstm *l);
  int64_t (*experts)(const struct pd_experts *e, int threads);
  int64_t (*experts_weights)(const struct pd_experts *e, int threads);
  bool told_types;  /* products are created for fixed operand types; else each call passes the types */
  bool sees_others; /* ranks of a machine may read each other's memory */
} Library;

/* Decisions about a node that precede the description of its call. */
struct Site {
  const Node *node;
  const Place *in, *out; /* all inputs, then the bias, and all outputs */
  int n_in, n_out;
  const bool *in_bf16, *out_bf16;      /* by place: stored in bf16; NULL: the library does not get types */
  int bias;                            /* index into `in` of the vector to add along the last axis, or -1 */
  bool accumulate;                     /* adds to out[0], except for a batch's first microbatch */
  CallPart part;                       /* of a collective */
  int threads;                         /* of the rank; 0: all threads of the machine */
  const struct Workspaces *workspaces; /* of the target */
  const Library *library;
};

/* Axes shared by several places, merged if each place has them as one axis. */
enum { MAX_PLACES = 4 };
typedef struct Axes {
  int n;
  int64_t count[MAX_DIM], stride[MAX_DIM][MAX_PLACES];
} Axes;
/* The first `dims` axes of places; a NULL place does not move along them. */
Axes merge_axes(const Place *const *place, int places, int dims, const int64_t *dim);
void move_axis_last(Axes *a, int axis);
/* Removes the innermost axis: its size, 1 if none is left, and each place's stride. */
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
  const char *text;          /* NAME: an enumerator of pd_kernels.h, an expression */
} Field;

typedef enum {
  ARGUMENT_OBJECT, /* of a pair created twice, the one for this iteration */
  ARGUMENT_PLACE,  /* a pointer to the place's first element */
  ARGUMENT_NULL,
  ARGUMENT_INT,
  ARGUMENT_SHARD, /* the value times the rank within its shard group */
  ARGUMENT_FIRST, /* true in an iteration that overwrites out[0], false in one that adds */
  ARGUMENT_SCRATCH
} ArgumentKind;
typedef struct Argument {
  ArgumentKind kind;
  const Place *place;
  int moves;     /* PLACE: index of its strides in the outer loops; -1: fixed */
  int64_t value; /* INT, SHARD */
} Argument;

struct Call {
  const char *function; /* "pd_matmul" */
  const char *object;   /* "pd_matmul": the struct that the function gets; NULL: none */
  /* setup creates it: pd_matmul_new((struct pd_matmul_shape){fields}); else it is constant */
  bool made;
  /* created twice, with .accumulate = !first, if some iterations overwrite the result and some add; lowering
   * decides */
  bool twice;
  Name note;         /* the object's comment; NULL: the kernel's comment */
  Vec(Field) fields; /* in the order of the struct, which C++ requires; lists are last there */
  Axes outer;        /* loops around the call */
  bool sums;         /* they accumulate: the first iteration overwrites out[0], later ones add */
  Vec(Argument) arguments;
};

void field_int(Call *c, const char *name, int64_t value);
void field_bool(Call *c, const char *name, bool value);
void field_float(Call *c, const char *name, double value);
void field_list(Call *c, const char *name, int n, const int64_t *list);
void field_struct(Call *c, const char *name, int n, const char *const *member, const int64_t *list);
void field_name(Call *c, const char *name, const char *text);

void field_type(Call *c, const char *name, bool bf16); /* enum pd_type, of types other than float */

void pass_object(Call *c);
void pass_place(Call *c, const Place *place);             /* the same in every iteration */
void pass_moving(Call *c, const Place *place, int moves); /* along the outer loops */
void pass_null(Call *c);
void pass_int(Call *c, int64_t value);
void pass_shard(Call *c, int64_t value);
void pass_first(Call *c);
void pass_scratch(Call *c);

#endif
