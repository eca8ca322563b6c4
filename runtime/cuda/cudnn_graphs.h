/* cuDNN's graphs of operations: products, convolutions, element by element, sums along rows, all of tensors of
 * four dimensions. These functions build a graph, list cuDNN's engines for it, and turn an engine
 * into a plan that runs. cuDNN is loaded on first use: programs are not linked with it. Only runs need a GPU:
 * plans can be created for a device described by JSON, as tests do.
 *
 * `error` of a graph or a plan has cuDNN's message, or is empty. */
#ifndef PD_CUDNN_GRAPHS_H
#define PD_CUDNN_GRAPHS_H

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

/* ---- the library ---------------------------------------------------------------------------------- */

/* The version, 91900 for 9.19.0; 0: not available, with the cause in `why`. */
int64_t pd_cudnn_version(std::string *why);
/* Initialises cuDNN for this process's device, with memory: before messages start, or at the first plan. False
 * after filling `why`. */
bool pd_cudnn_start(std::string *why);

/* ---- graphs --------------------------------------------------------------------------------------- */

enum pd_cudnn_type { PD_CUDNN_F32, PD_CUDNN_BF16, PD_CUDNN_BOOL };

/* [sample][head][row][column]; strides in elements. */
struct pd_cudnn_shape {
  int64_t dim[4], stride[4];
};
pd_cudnn_shape pd_cudnn_dense(int64_t samples, int64_t heads, int64_t rows, int64_t columns);
pd_cudnn_shape pd_cudnn_transposed(pd_cudnn_shape s); /* rows and columns swapped, in the same memory */
/* Images, or a convolution's weights, by channels: [image][channel][row][column] in memory where the channels of a
 * pixel are adjacent. */
pd_cudnn_shape pd_cudnn_by_channels(int64_t images, int64_t channels, int64_t rows, int64_t columns);

enum pd_cudnn_pointwise {
  PD_CUDNN_ADD,
  PD_CUDNN_SUBTRACT,
  PD_CUDNN_MULTIPLY,
  PD_CUDNN_DIVIDE,
  PD_CUDNN_EXP,
  PD_CUDNN_LOG,
  PD_CUDNN_NOT_LESS, /* x >= y, a BOOL */
};
enum pd_cudnn_reduction { PD_CUDNN_SUM, PD_CUDNN_LARGEST };

/* y = x * w, or the gradients of x and w. With fewer channels in w than in x: grouped. */
enum pd_cudnn_convolved { PD_CUDNN_CONVOLVED, PD_CUDNN_IMAGES_GRADIENT, PD_CUDNN_WEIGHTS_GRADIENT };
struct pd_cudnn_convolution {
  pd_cudnn_convolved kind;
  int64_t padding[2], stride[2], dilation[2];
};

/* Tensors have numbers from 1, which pd_cudnn_run also uses. */
struct pd_cudnn_graph {
  struct Tensor;
  struct Operation;
  struct Built;
  std::vector<Tensor> tensors;
  std::vector<Operation> operations;
  std::shared_ptr<Built> built;
  std::string device; /* device of plans, as cuDNN's JSON; empty: this process's device */
  std::string error;

  explicit pd_cudnn_graph(std::string for_device = {});
  ~pd_cudnn_graph();
  pd_cudnn_graph(const pd_cudnn_graph &) = delete;
  pd_cudnn_graph &operator=(const pd_cudnn_graph &) = delete;

  int operand(pd_cudnn_type type, const pd_cudnn_shape &shape); /* in memory, aligned to 16 bytes */
  int between(pd_cudnn_type type, const pd_cudnn_shape &shape); /* an intermediate value without memory */
  int number(float value);                                      /* a constant for all elements */

  /* Each writes `to` and returns it. */
  int product(int a, int b, int to);
  int convolution(const pd_cudnn_convolution &of, int a, int b, int to); /* a, b: x, w; dy, w; or x, dy */
  int pointwise(pd_cudnn_pointwise mode, int x, int to);
  int pointwise(pd_cudnn_pointwise mode, int x, int y, int to);
  int select(int yes, int no, int where, int to);
  int index(int like, int axis, int to);              /* the elements' own index along the axis */
  int reduce(pd_cudnn_reduction mode, int x, int to); /* over the axes where `to` has size 1 */
  int reshape(int x, int to);                         /* the same elements with other strides */
};

/* ---- engines and plans ---------------------------------------------------------------------------- */

/* An engine of cuDNN and its parameters. */
struct pd_cudnn_engine {
  enum { MOST_KNOBS = 16 };
  struct Knob {
    int64_t type, value;
  };
  int64_t id = -1;
  int n = 0;
  Knob knob[MOST_KNOBS] = {};
  bool operator==(const pd_cudnn_engine &other) const;
};

/* Unique engines of cuDNN's heuristics, expected fastest first, optionally followed by fallback engines. Empty:
 * none, or an error. */
std::vector<pd_cudnn_engine> pd_cudnn_engines(pd_cudnn_graph *graph, bool with_fallback = false);

struct pd_cudnn_plan {
  struct Made;
  std::shared_ptr<Made> made;
  int64_t workspace = 0; /* bytes */
  /* As cuDNN says of the engine: sums are made in one order; by tensor cores; factors or sums are rounded to fewer
   * bits than the graph says, which tensor cores do to floats. */
  bool deterministic = false, tensor_cores = false, rounds = false;
  std::string error;
  bool not_supported = false; /* this engine does not support the graph; another one may */
};
pd_cudnn_plan pd_cudnn_plan_for(pd_cudnn_graph *graph, const pd_cudnn_engine &engine);

/* Enqueues the plan on the stream (a cudaStream_t): at[i] is tensor[i]'s memory. False: cuDNN refused, with the
 * cause in plan->error. */
bool pd_cudnn_run(pd_cudnn_plan *plan, void *stream, const std::vector<int> &tensor, const std::vector<void *> &at,
                  void *workspace);

#endif
