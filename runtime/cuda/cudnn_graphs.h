/* cuDNN's graphs of operations: products, convolutions, element by element, sums along rows, all of tensors of four
 * dimensions. A graph is built here, cuDNN says which of its engines could do it as one kernel or a few, and an engine becomes a plan,
 * which runs. The library is looked for when it is first needed, at run time: programs are not linked with this part of
 * it. Nothing here needs a GPU but running: plans can be made for a device that is described in words (tests do).
 *
 * What is wrong with a graph or a plan is kept, in cuDNN's words, in `error`: empty, nothing is. */
#ifndef PD_CUDNN_GRAPHS_H
#define PD_CUDNN_GRAPHS_H

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

/* ---- the library ---------------------------------------------------------------------------------- */

/* Its version, 91900 for 9.19.0; 0: there is none, and `why` says what is missing. */
int64_t pd_cudnn_version(std::string *why);
/* Makes it ready for this process's device, where it gets memory: before messages are under way, or, at the latest, with the
 * first plan. False: it cannot be, and why. */
bool pd_cudnn_start(std::string *why);

/* ---- graphs --------------------------------------------------------------------------------------- */

enum pd_cudnn_type { PD_CUDNN_F32, PD_CUDNN_BF16, PD_CUDNN_BOOL };

/* [sample][head][row][column]; strides in elements. */
struct pd_cudnn_shape {
  int64_t dim[4], stride[4];
};
pd_cudnn_shape pd_cudnn_dense(int64_t samples, int64_t heads, int64_t rows, int64_t columns);
pd_cudnn_shape pd_cudnn_transposed(pd_cudnn_shape s); /* rows are columns, of the same memory */
/* Images, or a convolution's weights, by channels: [image][channel][row][column] of memory where a pixel's channels lie
 * next to each other. */
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

/* y = x * w, or of y's gradient those of x and w. Fewer channels in w than in x: in groups. */
enum pd_cudnn_convolved { PD_CUDNN_CONVOLVED, PD_CUDNN_IMAGES_GRADIENT, PD_CUDNN_WEIGHTS_GRADIENT };
struct pd_cudnn_convolution {
  pd_cudnn_convolved kind;
  int64_t padding[2], stride[2], dilation[2];
};

/* A tensor is known by its number, from 1 on, by which pd_cudnn_run is given its memory, too. */
struct pd_cudnn_graph {
  struct Tensor;
  struct Operation;
  struct Built;
  std::vector<Tensor> tensors;
  std::vector<Operation> operations;
  std::shared_ptr<Built> built;
  std::string device; /* whom plans are for, as cuDNN describes devices in JSON; empty: this process's */
  std::string error;

  explicit pd_cudnn_graph(std::string for_device = {});
  ~pd_cudnn_graph();
  pd_cudnn_graph(const pd_cudnn_graph &) = delete;
  pd_cudnn_graph &operator=(const pd_cudnn_graph &) = delete;

  int operand(pd_cudnn_type type, const pd_cudnn_shape &shape); /* in memory, at a multiple of 16 bytes */
  int between(pd_cudnn_type type,
              const pd_cudnn_shape &shape); /* from one operation to another, in no memory of ours */
  int number(float value);                  /* the same for all elements */

  /* All write `to`, and return it. */
  int product(int a, int b, int to);
  int convolution(const pd_cudnn_convolution &of, int a, int b, int to); /* a, b: x, w; dy, w; or x, dy */
  int pointwise(pd_cudnn_pointwise mode, int x, int to);
  int pointwise(pd_cudnn_pointwise mode, int x, int y, int to);
  int select(int yes, int no, int where, int to);
  int index(int like, int axis, int to);              /* the elements' own index along the axis */
  int reduce(pd_cudnn_reduction mode, int x, int to); /* along the axes where `to` has one element */
  int reshape(int x, int to);                         /* the same elements with other strides */
};

/* ---- engines and plans ---------------------------------------------------------------------------- */

/* How a graph is done, in the numbers that cuDNN makes it from. */
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

/* What cuDNN's heuristics list, the one that should be fastest first, each once; with what it has to fall back on behind
 * that, if that is wanted. Empty: none, or the graph is wrong. */
std::vector<pd_cudnn_engine> pd_cudnn_engines(pd_cudnn_graph *graph, bool with_fallback = false);

struct pd_cudnn_plan {
  struct Made;
  std::shared_ptr<Made> made;
  int64_t workspace = 0; /* bytes */
  /* As cuDNN says of the engine: sums are made in one order; by tensor cores; factors or sums are rounded to fewer bits
   * than the graph says, which tensor cores do to floats. */
  bool deterministic = false, tensor_cores = false, rounds = false;
  std::string error;
  bool not_supported = false; /* it is cuDNN's word that it does not do this, and another engine may */
};
pd_cudnn_plan pd_cudnn_plan_for(pd_cudnn_graph *graph, const pd_cudnn_engine &engine);

/* Enqueues it on the stream (a cudaStream_t): at[i] is tensor[i]'s memory. False: cuDNN refused, plan->error says why. */
bool pd_cudnn_run(pd_cudnn_plan *plan, void *stream, const std::vector<int> &tensor, const std::vector<void *> &at,
                  void *workspace);

#endif
