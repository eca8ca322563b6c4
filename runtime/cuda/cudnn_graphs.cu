#include "cudnn_graphs.h"

#include <algorithm>
#include <dlfcn.h>

#if __has_include(<cudnn.h>)
#include <cudnn.h>
#else /* built without cuDNN if its header is not found */
#define CUDNN_VERSION 0
#endif

/* ---- shapes --------------------------------------------------------------------------------------- */

pd_cudnn_shape pd_cudnn_dense(int64_t samples, int64_t heads, int64_t rows, int64_t columns) {
  return {{samples, heads, rows, columns}, {heads * rows * columns, rows * columns, columns, 1}};
}

pd_cudnn_shape pd_cudnn_by_channels(int64_t images, int64_t channels, int64_t rows, int64_t columns) {
  return {{images, channels, rows, columns}, {rows * columns * channels, 1, columns * channels, channels}};
}

pd_cudnn_shape pd_cudnn_transposed(pd_cudnn_shape s) {
  std::swap(s.dim[2], s.dim[3]);
  std::swap(s.stride[2], s.stride[3]);
  return s;
}

bool pd_cudnn_engine::operator==(const pd_cudnn_engine &other) const {
  bool same = id == other.id && n == other.n;
  for (int i = 0; same && i < n; i++)
    same = knob[i].type == other.knob[i].type && knob[i].value == other.knob[i].value;
  return same;
}

#if CUDNN_VERSION >= 90800 /* the first that takes a device in words */

/* ---- the library ---------------------------------------------------------------------------------- */

/* The functions of cuDNN that this file calls, by name. */
#define FUNCTIONS(X)               \
  X(cudnnGetVersion)               \
  X(cudnnCreate)                   \
  X(cudnnSetStream)                \
  X(cudnnGetErrorString)           \
  X(cudnnGetLastErrorString)       \
  X(cudnnBackendCreateDescriptor)  \
  X(cudnnBackendDestroyDescriptor) \
  X(cudnnBackendSetAttribute)      \
  X(cudnnBackendGetAttribute)      \
  X(cudnnBackendFinalize)          \
  X(cudnnBackendExecute)

static struct {
  bool looked;
  std::string missing; /* why there is none */
#define DECLARE(f) decltype(&f) f##_;
  FUNCTIONS(DECLARE)
#undef DECLARE
  cudnnHandle_t handle; /* made when something is to run on this process's device */
} library;

template <class F> static void find(void *from, const char *name, F *to) {
  *to = reinterpret_cast<F>(dlsym(from, name));
  if (!*to) library.missing = std::string("cuDNN's library has no ") + name;
}

static bool is_there() {
  if (library.looked) return library.missing.empty();
  library.looked = true;
  const std::string name = "libcudnn.so." + std::to_string(CUDNN_MAJOR);
  void *opened = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!opened) {
    const char *why = dlerror();
    library.missing = why ? why : name + " cannot be loaded";
    return false;
  }
#define FIND(f) find(opened, #f, &library.f##_);
  FUNCTIONS(FIND)
#undef FIND
  return library.missing.empty();
}

int64_t pd_cudnn_version(std::string *why) {
  if (is_there()) return static_cast<int64_t>(library.cudnnGetVersion_());
  *why = library.missing;
  return 0;
}

/* "cuDNN cannot WHAT: STATUS: REASON". cuDNN returns one line per function that passes the failure on, the origin
 * first. */
static std::string complaint(const char *what, cudnnStatus_t status) {
  char words[4096] = {0};
  library.cudnnGetLastErrorString_(words, sizeof words);
  const std::string said(words), reason = "Reason: ";
  size_t at = said.find(reason), from = at == std::string::npos ? 0 : at + reason.size();
  const std::string first = said.substr(from, said.find('\n', from) - from);
  return std::string("cuDNN cannot ") + what + ": " + library.cudnnGetErrorString_(status) +
         (first.empty() ? "" : ": " + first);
}

/* ---- descriptors ---------------------------------------------------------------------------------- */

/* A cuDNN descriptor, destroyed with this object. The first failure is kept in *error, and later calls do
 * nothing. */
struct Descriptor {
  cudnnBackendDescriptor_t at = nullptr;
  std::string *error;

  Descriptor(cudnnBackendDescriptorType_t type, std::string *to) : error(to) {
    if (!is_there() && error->empty()) *error = library.missing;
    if (error->empty()) check("make a descriptor", library.cudnnBackendCreateDescriptor_(type, &at));
  }
  Descriptor(Descriptor &&other) noexcept : at(other.at), error(other.error) { other.at = nullptr; }
  Descriptor(const Descriptor &) = delete;
  Descriptor &operator=(const Descriptor &) = delete;
  Descriptor &operator=(Descriptor &&) = delete;
  ~Descriptor() {
    if (at) library.cudnnBackendDestroyDescriptor_(at);
  }

  bool check(const char *what, cudnnStatus_t status) {
    if (status != CUDNN_STATUS_SUCCESS && error->empty()) *error = complaint(what, status);
    return status == CUDNN_STATUS_SUCCESS;
  }
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t n, const void *value) {
    if (error->empty()) check("take an attribute", library.cudnnBackendSetAttribute_(at, name, type, n, value));
  }
  void number(cudnnBackendAttributeName_t name, int64_t value) { set(name, CUDNN_TYPE_INT64, 1, &value); }
  void truth(cudnnBackendAttributeName_t name, bool value) { set(name, CUDNN_TYPE_BOOLEAN, 1, &value); }
  void type(cudnnBackendAttributeName_t name, cudnnDataType_t value) {
    set(name, CUDNN_TYPE_DATA_TYPE, 1, &value);
  }
  void part(cudnnBackendAttributeName_t name, const Descriptor &value) {
    set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value.at);
  }
  bool finish(const char *what) { return error->empty() && check(what, library.cudnnBackendFinalize_(at)); }
  /* How many of at most n there are. */
  int64_t get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t n, void *to) {
    int64_t got = 0;
    if (error->empty()) check("say an attribute", library.cudnnBackendGetAttribute_(at, name, type, n, &got, to));
    return error->empty() ? std::min(got, n) : 0;
  }
};

typedef std::vector<Descriptor> Descriptors;

static std::vector<cudnnBackendDescriptor_t> addresses(const Descriptors &all) {
  std::vector<cudnnBackendDescriptor_t> at;
  for (const Descriptor &d : all) at.push_back(d.at);
  return at;
}

/* ---- graphs --------------------------------------------------------------------------------------- */

struct pd_cudnn_graph::Tensor {
  pd_cudnn_type type;
  pd_cudnn_shape shape;
  enum { IN_MEMORY, BETWEEN, NUMBER } kind;
  float value; /* NUMBER: cuDNN reads it from this process's memory when the graph runs */
};

struct pd_cudnn_graph::Operation {
  enum Kind { PRODUCT, POINTWISE, REDUCTION, RESHAPE, CONVOLUTION } kind;
  int mode, axis;      /* cuDNN's enumerator; of an index */
  int x, y, where, to; /* tensors; 0: none */
  pd_cudnn_convolution convolution = {};
};

/* cuDNN's descriptors. They do not copy the descriptors that they refer to. */
struct pd_cudnn_graph::Built {
  Descriptors parts, operations, device, graph;
  std::vector<std::pair<int, float>> numbers;
};

pd_cudnn_graph::pd_cudnn_graph(std::string for_device) : device(std::move(for_device)) {}
pd_cudnn_graph::~pd_cudnn_graph() = default;

static int add(pd_cudnn_graph *g, const pd_cudnn_graph::Tensor &t) {
  g->tensors.push_back(t);
  return static_cast<int>(g->tensors.size());
}
int pd_cudnn_graph::operand(pd_cudnn_type type, const pd_cudnn_shape &shape) {
  return add(this, {type, shape, Tensor::IN_MEMORY, 0});
}
int pd_cudnn_graph::between(pd_cudnn_type type, const pd_cudnn_shape &shape) {
  return add(this, {type, shape, Tensor::BETWEEN, 0});
}
int pd_cudnn_graph::number(float value) {
  return add(this, {PD_CUDNN_F32, pd_cudnn_dense(1, 1, 1, 1), Tensor::NUMBER, value});
}

static int add(pd_cudnn_graph *g, const pd_cudnn_graph::Operation &o) {
  g->operations.push_back(o);
  return o.to;
}

static cudnnPointwiseMode_t pointwise_mode(pd_cudnn_pointwise mode) {
  switch (mode) {
  case PD_CUDNN_ADD: return CUDNN_POINTWISE_ADD;
  case PD_CUDNN_SUBTRACT: return CUDNN_POINTWISE_SUB;
  case PD_CUDNN_MULTIPLY: return CUDNN_POINTWISE_MUL;
  case PD_CUDNN_DIVIDE: return CUDNN_POINTWISE_DIV;
  case PD_CUDNN_EXP: return CUDNN_POINTWISE_EXP;
  case PD_CUDNN_LOG: return CUDNN_POINTWISE_LOG;
  case PD_CUDNN_NOT_LESS: break;
  }
  return CUDNN_POINTWISE_CMP_GE;
}

int pd_cudnn_graph::product(int a, int b, int to) { return add(this, {Operation::PRODUCT, 0, -1, a, b, 0, to}); }
int pd_cudnn_graph::convolution(const pd_cudnn_convolution &of, int a, int b, int to) {
  return add(this, {Operation::CONVOLUTION, 0, -1, a, b, 0, to, of});
}
int pd_cudnn_graph::pointwise(pd_cudnn_pointwise mode, int x, int to) { return pointwise(mode, x, 0, to); }
int pd_cudnn_graph::pointwise(pd_cudnn_pointwise mode, int x, int y, int to) {
  return add(this, {Operation::POINTWISE, pointwise_mode(mode), -1, x, y, 0, to});
}
int pd_cudnn_graph::select(int yes, int no, int where, int to) {
  return add(this, {Operation::POINTWISE, CUDNN_POINTWISE_BINARY_SELECT, -1, yes, no, where, to});
}
int pd_cudnn_graph::index(int like, int axis, int to) {
  return add(this, {Operation::POINTWISE, CUDNN_POINTWISE_GEN_INDEX, axis, like, 0, 0, to});
}
int pd_cudnn_graph::reduce(pd_cudnn_reduction mode, int x, int to) {
  int which = mode == PD_CUDNN_SUM ? CUDNN_REDUCE_TENSOR_ADD : CUDNN_REDUCE_TENSOR_MAX;
  return add(this, {Operation::REDUCTION, which, -1, x, 0, 0, to});
}
int pd_cudnn_graph::reshape(int x, int to) { return add(this, {Operation::RESHAPE, 0, -1, x, 0, 0, to}); }

static cudnnDataType_t data_type(pd_cudnn_type type) {
  return type == PD_CUDNN_BF16   ? CUDNN_DATA_BFLOAT16
         : type == PD_CUDNN_BOOL ? CUDNN_DATA_BOOLEAN
                                 : CUDNN_DATA_FLOAT;
}

static Descriptor describe(const pd_cudnn_graph::Tensor &t, int64_t number, std::string *error) {
  Descriptor d(CUDNN_BACKEND_TENSOR_DESCRIPTOR, error);
  d.type(CUDNN_ATTR_TENSOR_DATA_TYPE, data_type(t.type));
  d.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, t.shape.dim);
  d.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, t.shape.stride);
  d.number(CUDNN_ATTR_TENSOR_UNIQUE_ID, number);
  d.number(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 16);
  d.truth(CUDNN_ATTR_TENSOR_IS_VIRTUAL, t.kind == pd_cudnn_graph::Tensor::BETWEEN);
  d.truth(CUDNN_ATTR_TENSOR_IS_BY_VALUE, t.kind == pd_cudnn_graph::Tensor::NUMBER);
  d.finish("take a tensor");
  return d;
}

static Descriptor describe_convolution(const pd_cudnn_convolution &c, std::string *error) {
  Descriptor d(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, error);
  cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  d.type(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT);
  d.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
  d.number(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 2);
  d.set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, c.padding);
  d.set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, c.padding);
  d.set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, c.stride);
  d.set(CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, c.dilation);
  d.finish("take a convolution");
  return d;
}

/* The kind of an operation, in floats, which cuDNN separates from its operands. */
static Descriptor describe_work(const pd_cudnn_graph::Operation &o, const pd_cudnn_graph::Tensor &to,
                                std::string *error) {
  typedef pd_cudnn_graph::Operation Operation;
  if (o.kind == Operation::PRODUCT) {
    Descriptor d(CUDNN_BACKEND_MATMUL_DESCRIPTOR, error);
    d.type(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
    d.finish("take a product");
    return d;
  }
  if (o.kind == Operation::CONVOLUTION) return describe_convolution(o.convolution, error);
  if (o.kind == Operation::REDUCTION) {
    Descriptor d(CUDNN_BACKEND_REDUCTION_DESCRIPTOR, error);
    cudnnReduceTensorOp_t mode = static_cast<cudnnReduceTensorOp_t>(o.mode);
    d.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &mode);
    d.type(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
    d.finish("take a reduction");
    return d;
  }
  Descriptor d(CUDNN_BACKEND_POINTWISE_DESCRIPTOR, error);
  cudnnPointwiseMode_t mode = static_cast<cudnnPointwiseMode_t>(o.mode);
  d.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
  d.type(CUDNN_ATTR_POINTWISE_MATH_PREC, to.type == PD_CUDNN_BOOL ? CUDNN_DATA_BOOLEAN : CUDNN_DATA_FLOAT);
  if (o.axis >= 0) d.number(CUDNN_ATTR_POINTWISE_AXIS, o.axis);
  d.finish("take an operation by element");
  return d;
}

/* cuDNN's attribute names of convolutions, which differ by kind. */
struct ConvolutionNames {
  cudnnBackendDescriptorType_t type;
  cudnnBackendAttributeName_t of, alpha, beta, a, b, to;
};
static ConvolutionNames names_of(pd_cudnn_convolved kind) {
  switch (kind) {
  case PD_CUDNN_IMAGES_GRADIENT:
    return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX};
  case PD_CUDNN_WEIGHTS_GRADIENT:
    return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW};
  case PD_CUDNN_CONVOLVED: break;
  }
  return {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y};
}

static cudnnBackendDescriptorType_t operation_type(const pd_cudnn_graph::Operation &o) {
  switch (o.kind) {
  case pd_cudnn_graph::Operation::CONVOLUTION: return names_of(o.convolution.kind).type;
  case pd_cudnn_graph::Operation::PRODUCT: return CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR;
  case pd_cudnn_graph::Operation::REDUCTION: return CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR;
  case pd_cudnn_graph::Operation::RESHAPE: return CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR;
  case pd_cudnn_graph::Operation::POINTWISE: break;
  }
  return CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR;
}

static Descriptor describe(const pd_cudnn_graph::Operation &o, const Descriptors &tensors, const Descriptor *work,
                           std::string *error) {
  typedef pd_cudnn_graph::Operation Operation;
  auto tensor = [&](int number) -> const Descriptor & { return tensors[static_cast<size_t>(number - 1)]; };
  Descriptor d(operation_type(o), error);
  if (o.kind == Operation::PRODUCT) {
    d.part(CUDNN_ATTR_OPERATION_MATMUL_ADESC, tensor(o.x));
    d.part(CUDNN_ATTR_OPERATION_MATMUL_BDESC, tensor(o.y));
    d.part(CUDNN_ATTR_OPERATION_MATMUL_CDESC, tensor(o.to));
    d.part(CUDNN_ATTR_OPERATION_MATMUL_DESC, *work);
  } else if (o.kind == Operation::CONVOLUTION) {
    const ConvolutionNames names = names_of(o.convolution.kind);
    const float one = 1, zero = 0;
    d.part(names.of, *work);
    d.set(names.alpha, CUDNN_TYPE_FLOAT, 1, &one);
    d.set(names.beta, CUDNN_TYPE_FLOAT, 1, &zero);
    d.part(names.a, tensor(o.x));
    d.part(names.b, tensor(o.y));
    d.part(names.to, tensor(o.to));
  } else if (o.kind == Operation::REDUCTION) {
    d.part(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, tensor(o.x));
    d.part(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, tensor(o.to));
    d.part(CUDNN_ATTR_OPERATION_REDUCTION_DESC, *work);
  } else if (o.kind == Operation::RESHAPE) {
    d.part(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, tensor(o.x));
    d.part(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, tensor(o.to));
  } else {
    d.part(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, *work);
    d.part(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, tensor(o.x));
    if (o.y) d.part(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, tensor(o.y));
    if (o.where) d.part(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, tensor(o.where));
    d.part(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, tensor(o.to));
  }
  d.finish("take an operation");
  return d;
}

/* ---- the device ----------------------------------------------------------------------------------- */

static bool open_handle(std::string *error) {
  if (library.handle) return true;
  cudnnStatus_t status = library.cudnnCreate_(&library.handle);
  if (status != CUDNN_STATUS_SUCCESS) *error = complaint("start", status);
  return status == CUDNN_STATUS_SUCCESS;
}

bool pd_cudnn_start(std::string *why) {
  if (is_there()) return open_handle(why);
  *why = library.missing;
  return false;
}

/* Sets a descriptor's device: this process's device, by this attribute (0: none), or the described device. */
static void aim(const pd_cudnn_graph &g, Descriptor *d, int by_handle, cudnnBackendAttributeName_t by_device) {
  if (!g.built->device.empty())
    d->part(by_device, g.built->device[0]);
  else if (by_handle && open_handle(d->error))
    d->set(static_cast<cudnnBackendAttributeName_t>(by_handle), CUDNN_TYPE_HANDLE, 1, &library.handle);
}
/* These attributes are deprecated in favour of described devices, which cannot create runnable plans before
 * version 9.8. */
enum { OPERATIONGRAPH_HANDLE = 800, EXECUTION_PLAN_HANDLE = 400 };

static void build(pd_cudnn_graph *g) {
  if (g->built) return;
  g->built = std::make_shared<pd_cudnn_graph::Built>();
  pd_cudnn_graph::Built &b = *g->built;
  std::string *error = &g->error;
  Descriptors work;
  for (size_t i = 0; i < g->tensors.size(); i++) {
    b.parts.push_back(describe(g->tensors[i], static_cast<int64_t>(i) + 1, error));
    if (g->tensors[i].kind == pd_cudnn_graph::Tensor::NUMBER)
      b.numbers.push_back({static_cast<int>(i) + 1, g->tensors[i].value});
  }
  for (const pd_cudnn_graph::Operation &o : g->operations) {
    bool works = o.kind != pd_cudnn_graph::Operation::RESHAPE;
    if (works) work.push_back(describe_work(o, g->tensors[static_cast<size_t>(o.to - 1)], error));
    b.operations.push_back(describe(o, b.parts, works ? &work.back() : nullptr, error));
  }
  for (Descriptor &w : work) b.parts.push_back(std::move(w));
  if (!g->device.empty()) {
    b.device.emplace_back(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, error);
    b.device[0].set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                    static_cast<int64_t>(g->device.size()), g->device.data());
    b.device[0].finish("take a device");
  }
  std::vector<cudnnBackendDescriptor_t> all = addresses(b.operations);
  b.graph.emplace_back(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, error);
  Descriptor &graph = b.graph[0];
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, static_cast<int64_t>(all.size()),
            all.data());
  if (b.device.empty() && error->empty() && open_handle(error))
    graph.set(static_cast<cudnnBackendAttributeName_t>(OPERATIONGRAPH_HANDLE), CUDNN_TYPE_HANDLE, 1,
              &library.handle);
  graph.finish("take a graph");
}

/* ---- engines -------------------------------------------------------------------------------------- */

/* False: it has knobs that a plan has no room for. */
static bool read_engine(Descriptor *configuration, pd_cudnn_engine *to) {
  std::string *error = configuration->error;
  Descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR, error);
  configuration->get(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &engine.at);
  engine.get(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &to->id);
  enum { MOST = 16 };
  Descriptors knobs;
  for (int i = 0; i < MOST; i++) knobs.emplace_back(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, error);
  std::vector<cudnnBackendDescriptor_t> at = addresses(knobs);
  int64_t n =
      configuration->get(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, MOST, at.data());
  if (n > pd_cudnn_engine::MOST_KNOBS) return false;
  to->n = static_cast<int>(n);
  for (int i = 0; i < to->n; i++) {
    cudnnBackendKnobType_t type = {};
    knobs[static_cast<size_t>(i)].get(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &type);
    knobs[static_cast<size_t>(i)].get(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &to->knob[i].value);
    to->knob[i].type = type;
  }
  return error->empty();
}

static void list_engines(pd_cudnn_graph *g, cudnnBackendHeurMode_t mode, std::vector<pd_cudnn_engine> *to) {
  enum { MOST = 64 };
  std::string error;
  Descriptor heuristic(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &error);
  heuristic.part(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, g->built->graph[0]);
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
  aim(*g, &heuristic, 0, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP);
  Descriptors found;
  if (heuristic.finish("list engines"))
    for (int i = 0; i < MOST; i++) found.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &error);
  std::vector<cudnnBackendDescriptor_t> at = addresses(found);
  int64_t n = heuristic.get(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                            static_cast<int64_t>(at.size()), at.data());
  for (int64_t i = 0; i < n; i++) {
    pd_cudnn_engine engine;
    if (read_engine(&found[static_cast<size_t>(i)], &engine) &&
        std::find(to->begin(), to->end(), engine) == to->end())
      to->push_back(engine);
  }
  if (to->empty() && !error.empty()) g->error = error;
}

std::vector<pd_cudnn_engine> pd_cudnn_engines(pd_cudnn_graph *graph, bool with_fallback) {
  std::vector<pd_cudnn_engine> engines;
  build(graph);
  if (graph->error.empty()) list_engines(graph, CUDNN_HEUR_MODE_A, &engines);
  if (with_fallback && graph->error.empty()) list_engines(graph, CUDNN_HEUR_MODE_FALLBACK, &engines);
  return engines;
}

/* ---- plans ---------------------------------------------------------------------------------------- */

struct pd_cudnn_plan::Made {
  std::shared_ptr<pd_cudnn_graph::Built> graph;
  std::string error;
  Descriptors parts;
};

static void read_notes(Descriptor *engine, pd_cudnn_plan *to) {
  cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT] = {};
  int64_t n = engine->get(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                          CUDNN_NUMERICAL_NOTE_TYPE_COUNT, notes);
  auto has = [&](cudnnBackendNumericalNote_t note) { return std::find(notes, notes + n, note) != notes + n; };
  to->deterministic = engine->error->empty() && !has(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC);
  to->tensor_cores = has(CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
  to->rounds =
      has(CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS) || has(CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION);
}

/* Parts of a plan: engine, knobs, configuration, the plan itself, which stands last. */
static void make(pd_cudnn_graph *g, const pd_cudnn_engine &e, pd_cudnn_plan *to) {
  pd_cudnn_plan::Made &m = *to->made;
  std::string *error = &m.error;
  Descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR, error);
  engine.part(CUDNN_ATTR_ENGINE_OPERATION_GRAPH, g->built->graph[0]);
  engine.number(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, e.id);
  aim(*g, &engine, 0, CUDNN_ATTR_ENGINE_DEVICEPROP);
  if (!engine.finish("use an engine")) return;
  read_notes(&engine, to);
  for (int i = 0; i < e.n; i++) {
    Descriptor knob(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, error);
    cudnnBackendKnobType_t type = static_cast<cudnnBackendKnobType_t>(e.knob[i].type);
    knob.set(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &type);
    knob.number(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, e.knob[i].value);
    knob.finish("turn an engine's knob");
    m.parts.push_back(std::move(knob));
  }
  std::vector<cudnnBackendDescriptor_t> knobs = addresses(m.parts);
  Descriptor configuration(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, error);
  configuration.part(CUDNN_ATTR_ENGINECFG_ENGINE, engine);
  if (!knobs.empty())
    configuration.set(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                      static_cast<int64_t>(knobs.size()), knobs.data());
  configuration.finish("use an engine with these knobs");
  Descriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, error);
  plan.part(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration);
  aim(*g, &plan, EXECUTION_PLAN_HANDLE, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP);
  plan.finish("make a plan");
  plan.get(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &to->workspace);
  for (Descriptor *d : {&engine, &configuration, &plan}) m.parts.push_back(std::move(*d));
}

pd_cudnn_plan pd_cudnn_plan_for(pd_cudnn_graph *graph, const pd_cudnn_engine &engine) {
  pd_cudnn_plan plan;
  build(graph);
  plan.made = std::make_shared<pd_cudnn_plan::Made>();
  plan.made->graph = graph->built;
  if (graph->error.empty()) make(graph, engine, &plan);
  plan.error = graph->error.empty() ? plan.made->error : graph->error;
  return plan;
}

bool pd_cudnn_run(pd_cudnn_plan *plan, void *stream, const std::vector<int> &tensor, const std::vector<void *> &at,
                  void *workspace) {
  std::vector<int64_t> numbers(tensor.begin(), tensor.end());
  std::vector<void *> places = at;
  for (auto &number : plan->made->graph->numbers) {
    numbers.push_back(number.first);
    places.push_back(&number.second);
  }
  std::string *error = &plan->error;
  if (!error->empty() || !open_handle(error)) return false;
  Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, error);
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, static_cast<int64_t>(numbers.size()),
           numbers.data());
  pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, static_cast<int64_t>(places.size()),
           places.data());
  pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
  if (!pack.finish("take a graph's operands") ||
      !pack.check("take a stream", library.cudnnSetStream_(library.handle, static_cast<cudaStream_t>(stream))))
    return false;
  cudnnStatus_t status = library.cudnnBackendExecute_(library.handle, plan->made->parts.back().at, pack.at);
  plan->not_supported = CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_NOT_SUPPORTED;
  return pack.check("run a graph", status);
}

#else

/* ---- without cuDNN's header ----------------------------------------------------------------------- */

struct pd_cudnn_graph::Tensor {};
struct pd_cudnn_graph::Operation {};
struct pd_cudnn_graph::Built {};
struct pd_cudnn_plan::Made {};

static const char WITHOUT[] = "this program was built without cuDNN";

int64_t pd_cudnn_version(std::string *why) {
  *why = WITHOUT;
  return 0;
}
bool pd_cudnn_start(std::string *why) { return pd_cudnn_version(why) > 0; }
pd_cudnn_graph::pd_cudnn_graph(std::string) : error(WITHOUT) {}
pd_cudnn_graph::~pd_cudnn_graph() = default;
int pd_cudnn_graph::operand(pd_cudnn_type, const pd_cudnn_shape &) { return 0; }
int pd_cudnn_graph::between(pd_cudnn_type, const pd_cudnn_shape &) { return 0; }
int pd_cudnn_graph::number(float) { return 0; }
int pd_cudnn_graph::product(int, int, int) { return 0; }
int pd_cudnn_graph::convolution(const pd_cudnn_convolution &, int, int, int) { return 0; }
int pd_cudnn_graph::pointwise(pd_cudnn_pointwise, int, int) { return 0; }
int pd_cudnn_graph::pointwise(pd_cudnn_pointwise, int, int, int) { return 0; }
int pd_cudnn_graph::select(int, int, int, int) { return 0; }
int pd_cudnn_graph::index(int, int, int) { return 0; }
int pd_cudnn_graph::reduce(pd_cudnn_reduction, int, int) { return 0; }
int pd_cudnn_graph::reshape(int, int) { return 0; }
std::vector<pd_cudnn_engine> pd_cudnn_engines(pd_cudnn_graph *, bool) { return {}; }
pd_cudnn_plan pd_cudnn_plan_for(pd_cudnn_graph *, const pd_cudnn_engine &) {
  pd_cudnn_plan none;
  none.error = WITHOUT;
  return none;
}
bool pd_cudnn_run(pd_cudnn_plan *, void *, const std::vector<int> &, const std::vector<void *> &, void *) {
  return false;
}

#endif
