/* cuDNN's graphs of operations on the host: loops over whole tensors, an operation after the other, in floats that are
 * rounded where a tensor is of bfloat16. It refuses what cuDNN would, or what would be luck: tensors without a number,
 * type or shape, operations of shapes that do not fit, tensors that are read before they are written, parts that are not
 * finished, operands of memory that is not the device's.
 *
 * Of its engines for attention 2 and 1 are as they should be, 1 takes longer; callers must not choose the others, which are listed
 * before: 9 says that it is not deterministic, 8 is not and does not say so, 4 sees every key, mask or not. Not listed is
 * 5, which does what it should, too.
 *
 * Convolutions (cudnn_convolution.cpp) have engines of their own. Listed first is 20, whose workspace is too large, then
 * 9, 21, which rounds floats as tensor cores do, and says that it is of these, 22, whose sums are rounded, and, forward, 23,
 * which needs no workspace; 24 is what cuDNN falls back on. Callers must choose 23 or 24, or 21 where that may be.
 *
 * CUDNN_HOST_REFUSE=list: no engine is listed for convolutions; run: they refuse to run; first: those without workspace do;
 * library: there is none; graphs: none is taken; plans: none can be made; CUDNN_HOST_WRONG=mask,
 * statistic or stride: engines 1 and 2 compute that wrongly; CUDNN_HOST_VERSION: its version; CUDNN_HOST_WORKSPACE: bytes
 * more than these engines need otherwise. */
#include "cudnn_descriptors.h"

#include <cuda_bf16.h>
#include <cudnn.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

static std::string last_error;

cudnnStatus_t cudnn_host_refuse(cudnnStatus_t status, const std::string &why) {
  last_error = "Warning: stand-in; Reason: " + why + "\n";
  return status;
}

static bool environment_is(const char *name, const char *value) {
  const char *said = getenv(name);
  return said && !strcmp(said, value);
}
static bool refuses(const char *what) { return environment_is("CUDNN_HOST_REFUSE", what); }
static bool is_wrong(const char *what) { return environment_is("CUDNN_HOST_WRONG", what); }

size_t cudnnGetVersion(void) {
  const char *said = getenv("CUDNN_HOST_VERSION");
  return said ? strtoull(said, nullptr, 10) : CUDNN_VERSION;
}

void cudnnGetLastErrorString(char *message, size_t most) {
  snprintf(message, most, "%s", last_error.c_str());
  last_error.clear();
}

/* ---- handles -------------------------------------------------------------------------------------- */

struct cudnnContext {
  cudaStream_t stream;
  bool has_stream;
};

const char *cudnnGetErrorString(cudnnStatus_t status) {
  switch (status) {
  case CUDNN_STATUS_SUCCESS: return "CUDNN_STATUS_SUCCESS";
  case CUDNN_STATUS_NOT_INITIALIZED: return "CUDNN_STATUS_NOT_INITIALIZED";
  case CUDNN_STATUS_BAD_PARAM: return "CUDNN_STATUS_BAD_PARAM";
  case CUDNN_STATUS_NOT_SUPPORTED: return "CUDNN_STATUS_NOT_SUPPORTED";
  case CUDNN_STATUS_NOT_SUPPORTED_SHAPE: return "CUDNN_STATUS_NOT_SUPPORTED_SHAPE";
  }
  return "a status of no library";
}

cudnnStatus_t cudnnCreate(cudnnHandle_t *handle) {
  *handle = new cudnnContext{};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  delete handle;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  *handle = {stream, true};
  return CUDNN_STATUS_SUCCESS;
}

cudaStream_t cudnn_host_stream(cudnnHandle_t handle) {
  if (!handle->has_stream) cuda_host_die("cuDNN is used before it has been given a stream");
  return handle->stream;
}

/* ---- descriptors ---------------------------------------------------------------------------------- */

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *d) {
  *d = new Backend{type, false, {}};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t d) {
  delete backend(d);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t n, const void *from) {
  if (!d || !from || n < 1) return bad("an attribute without a value");
  if (backend(d)->finished) return bad("an attribute of what is finished");
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
    for (int64_t i = 0; i < n; i++)
      if (!backend(static_cast<const cudnnBackendDescriptor_t *>(from)[i])->finished)
        return bad("a part that is not finished");
  const char *bytes = static_cast<const char *>(from);
  backend(d)->has[name] = {type, n, {bytes, bytes + static_cast<size_t>(n) * bytes_of(type)}};
  return CUDNN_STATUS_SUCCESS;
}

/* ---- tensors and operations ----------------------------------------------------------------------- */

static cudnnStatus_t finish_tensor(const Backend *d) {
  std::vector<int64_t> dim = values<int64_t>(d, CUDNN_ATTR_TENSOR_DIMENSIONS),
                       stride = values<int64_t>(d, CUDNN_ATTR_TENSOR_STRIDES);
  if (dim.size() != 4 || stride.size() != 4) return not_supported("a tensor of other than four dimensions");
  for (size_t i = 0; i < 4; i++)
    if (dim[i] < 1 || stride[i] < 1) return bad("a dimension or stride that is not positive");
  bool known = d->has.count(CUDNN_ATTR_TENSOR_UNIQUE_ID) && d->has.count(CUDNN_ATTR_TENSOR_DATA_TYPE) &&
               d->has.count(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
  return known ? CUDNN_STATUS_SUCCESS : bad("a tensor without a number, a type or an alignment");
}

/* Where `to` has fewer elements along an axis, those of x that become one lie next to each other. */
static size_t place_in(const Tensor &x, const int64_t i[4], const int64_t of[4]) {
  int64_t at = 0;
  for (int axis = 0; axis < 4; axis++) at = at * x.dim[axis] + i[axis] * x.dim[axis] / of[axis];
  return static_cast<size_t>(at);
}

static bool same_shape(const Tensor &x, const Tensor &y) { return std::equal(x.dim, x.dim + 4, y.dim); }
static bool is_transposed(const Tensor &x, const Tensor &y) {
  Tensor t = x;
  std::swap(t.dim[2], t.dim[3]);
  std::swap(t.stride[2], t.stride[3]);
  return same_shape(t, y) && std::equal(t.stride, t.stride + 4, y.stride);
}

static Operation operation_of(const Backend *d) {
  Operation o = {d->type, 0, -1, {}, {}};
  if (is_convolution(d->type)) {
    cudnn_host_read_convolution(d, &o);
    return o;
  }
  auto add = [&](cudnnBackendAttributeName_t name) {
    if (part(d, name)) o.in.push_back(tensor_of(part(d, name)));
  };
  if (d->type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR) {
    add(CUDNN_ATTR_OPERATION_MATMUL_ADESC);
    add(CUDNN_ATTR_OPERATION_MATMUL_BDESC);
    o.to = tensor_of(part(d, CUDNN_ATTR_OPERATION_MATMUL_CDESC));
  } else if (d->type == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR) {
    add(CUDNN_ATTR_OPERATION_REDUCTION_XDESC);
    o.to = tensor_of(part(d, CUDNN_ATTR_OPERATION_REDUCTION_YDESC));
    o.mode = value<cudnnReduceTensorOp_t>(part(d, CUDNN_ATTR_OPERATION_REDUCTION_DESC),
                                          CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_REDUCE_TENSOR_ADD);
  } else if (d->type == CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR) {
    add(CUDNN_ATTR_OPERATION_RESHAPE_XDESC);
    o.to = tensor_of(part(d, CUDNN_ATTR_OPERATION_RESHAPE_YDESC));
  } else {
    const Backend *work = part(d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    o.mode = value<cudnnPointwiseMode_t>(work, CUDNN_ATTR_POINTWISE_MODE, CUDNN_POINTWISE_ADD);
    o.axis = static_cast<int>(value<int64_t>(work, CUDNN_ATTR_POINTWISE_AXIS, -1));
    add(CUDNN_ATTR_OPERATION_POINTWISE_XDESC);
    add(CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
    add(CUDNN_ATTR_OPERATION_POINTWISE_TDESC);
    o.to = tensor_of(part(d, CUDNN_ATTR_OPERATION_POINTWISE_YDESC));
  }
  return o;
}

static size_t operands_of(int mode) {
  bool one = mode == CUDNN_POINTWISE_EXP || mode == CUDNN_POINTWISE_LOG || mode == CUDNN_POINTWISE_GEN_INDEX;
  return one ? 1 : mode == CUDNN_POINTWISE_BINARY_SELECT ? 3 : 2;
}

static cudnnStatus_t finish_operation(const Backend *d) {
  Operation o = operation_of(d);
  const Tensor &x = o.in[0], &to = o.to;
  if (is_convolution(o.type)) return cudnn_host_judge_convolution(d, o);
  if (o.type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR) {
    const Tensor &y = o.in.at(1);
    bool fits = x.dim[0] == to.dim[0] && y.dim[0] == to.dim[0] && x.dim[1] == to.dim[1] &&
                to.dim[1] % y.dim[1] == 0 && x.dim[2] == to.dim[2] && x.dim[3] == y.dim[2] &&
                y.dim[3] == to.dim[3];
    if (!fits) return bad("a product of shapes that do not fit");
    return x.type == CUDNN_DATA_BFLOAT16 && y.type == x.type ? CUDNN_STATUS_SUCCESS
                                                             : not_supported("factors that are not of bfloat16");
  }
  if (o.type == CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR)
    return is_transposed(x, to) ? CUDNN_STATUS_SUCCESS : not_supported("a reshape that does not transpose");
  for (const Tensor &t : o.in)
    for (int i = 0; i < 4; i++) {
      bool sums = o.type == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR;
      if (sums ? t.dim[i] % to.dim[i] != 0 : t.dim[i] != to.dim[i] && t.dim[i] != 1)
        return bad("an operation by element, or a sum, of shapes that do not fit");
    }
  if (o.type == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR && o.in.size() != operands_of(o.mode))
    return bad("an operation by element with too few or too many operands");
  bool compares = o.mode == CUDNN_POINTWISE_CMP_GE && o.type == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR;
  return compares != (to.type == CUDNN_DATA_BOOLEAN) ? bad("a truth that is a number, or the other way around")
                                                     : CUDNN_STATUS_SUCCESS;
}

/* ---- graphs --------------------------------------------------------------------------------------- */

static std::vector<Operation> operations_of(const Backend *graph) {
  std::vector<Operation> all;
  for (cudnnBackendDescriptor_t d : values<cudnnBackendDescriptor_t>(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS))
    all.push_back(operation_of(backend(d)));
  return all;
}

static cudnnStatus_t finish_graph(const Backend *d) {
  std::map<int64_t, bool> written;
  std::vector<Operation> all = operations_of(d);
  if (refuses("graphs") || all.empty()) return not_supported("no such graph");
  for (const Operation &o : all) written[o.to.number] = false;
  for (const Operation &o : all) {
    for (const Tensor &t : o.in)
      if (written.count(t.number) ? !written[t.number] : t.is_virtual)
        return bad("a tensor is read before it is written");
    if (written[o.to.number] || o.to.by_value) return bad("a tensor is written twice, or a number");
    written[o.to.number] = true;
  }
  return CUDNN_STATUS_SUCCESS;
}

static bool is_backward(const std::vector<Operation> &all) {
  return std::count_if(all.begin(), all.end(),
                       [](const Operation &o) { return o.type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR; }) > 2;
}

/* ---- engines -------------------------------------------------------------------------------------- */

enum { UNSURE = 9, ADDS_AS_IT_COMES = 8, SEES_ALL = 4, UNLISTED = 5, QUICK = 2, SLOW = 1 };
enum { LARGE = 20, TENSOR_CORES = 21, ROUNDS_SUMS = 22, WITHOUT_WORKSPACE = 23, FALLBACK = 24 };

struct Choice {
  int64_t engine;
  std::map<int64_t, int64_t> knobs;
};

static std::vector<Choice> choices_of(const Backend *graph, cudnnBackendHeurMode_t mode) {
  const Operation first = operations_of(graph)[0];
  if (!is_convolution(first.type))
    return {{UNSURE, {{24, 1}}},
            {ADDS_AS_IT_COMES, {{24, 2}}},
            {SEES_ALL, {{24, 3}}},
            {SLOW, {{24, 6}}},
            {QUICK, {{24, 7}}}};
  const Choice unsure = {UNSURE, {{24, 1}}};
  if (mode == CUDNN_HEUR_MODE_FALLBACK) return {unsure, {FALLBACK, {{2, 5}, {6, 0}, {13, 2}, {14, 4}, {22, 2}}}};
  std::vector<Choice> all = {{LARGE, {{24, 2}}}, unsure};
  if (first.to.type == CUDNN_DATA_FLOAT) all.push_back({TENSOR_CORES, {{2, 1}, {14, 3}}});
  all.push_back({ROUNDS_SUMS, {{24, 3}}});
  if (first.type == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR)
    all.push_back({WITHOUT_WORKSPACE, {{24, 4}}});
  return all;
}

static const Backend *graph_of(const Backend *engine) { return part(engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH); }
static const Backend *engine_of(const Backend *plan) {
  return part(part(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG), CUDNN_ATTR_ENGINECFG_ENGINE);
}
static int64_t number_of(const Backend *engine) {
  return value<int64_t>(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, -1);
}

static cudnnStatus_t finish_configuration(const Backend *d) {
  const Backend *engine = part(d, CUDNN_ATTR_ENGINECFG_ENGINE);
  int64_t id = engine ? number_of(engine) : -1;
  std::map<int64_t, int64_t> knobs;
  for (cudnnBackendDescriptor_t k : values<cudnnBackendDescriptor_t>(d, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES))
    knobs[value<cudnnBackendKnobType_t>(backend(k), CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, {})] =
        value<int64_t>(backend(k), CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, -1);
  if (id == UNLISTED && knobs == std::map<int64_t, int64_t>{{14, 2}, {24, 31}}) return CUDNN_STATUS_SUCCESS;
  for (cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK})
    for (const Choice &c : engine ? choices_of(graph_of(engine), mode) : std::vector<Choice>())
      if (c.engine == id && knobs == c.knobs) return CUDNN_STATUS_SUCCESS;
  return not_supported("no such engine, or none with these knobs");
}

/* Not a round number, so that one that is too small by little is too small. */
static int64_t workspace_of(const Backend *plan) {
  const char *more = getenv("CUDNN_HOST_WORKSPACE");
  std::vector<Operation> all = operations_of(graph_of(engine_of(plan)));
  const Images &w = all[0].convolution.w;
  if (number_of(engine_of(plan)) == LARGE) return int64_t{1} << 40;
  if (is_convolution(all[0].type))
    return number_of(engine_of(plan)) == WITHOUT_WORKSPACE ? 0 : int64_t{4} * w.n * w.c * w.h * w.w + 12;
  return (is_backward(all) ? 2 * elements(all[0].in[0]) : 0) + 12 + (more ? atoll(more) : 0);
}

static cudnnBackendNumericalNote_t note_of(int64_t engine) {
  return engine == UNSURE        ? CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC
         : engine == ROUNDS_SUMS ? CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION
                                 : CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
}

static cudnnStatus_t finish(Backend *d) {
  switch (d->type) {
  case CUDNN_BACKEND_TENSOR_DESCRIPTOR: return finish_tensor(d);
  case CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR: return cudnn_host_judge_convolution(d);
  case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
  case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
  case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
  case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
  case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
  case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
  case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR: return finish_operation(d);
  case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR: return finish_graph(d);
  case CUDNN_BACKEND_ENGINECFG_DESCRIPTOR: return finish_configuration(d);
  case CUDNN_BACKEND_ENGINE_DESCRIPTOR:
    if (!graph_of(d)) return bad("an engine without a graph");
    if (number_of(d) != LARGE && number_of(d) != WITHOUT_WORKSPACE && number_of(d) != FALLBACK)
      put(d, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, note_of(number_of(d)));
    return CUDNN_STATUS_SUCCESS;
  case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
    return refuses("list") && is_convolution(operations_of(part(d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH))[0].type)
               ? not_supported("no engine is listed")
               : CUDNN_STATUS_SUCCESS;
  case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
    if (refuses("plans") || !d->has.count(CUDNN_ATTR_EXECUTION_PLAN_HANDLE))
      return not_supported("no plan is made");
    put(d, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, workspace_of(d));
    return CUDNN_STATUS_SUCCESS;
  default: return CUDNN_STATUS_SUCCESS;
  }
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t d) {
  if (!d || backend(d)->finished) return bad("what is finished is finished again");
  cudnnStatus_t status = finish(backend(d));
  backend(d)->finished = status == CUDNN_STATUS_SUCCESS;
  return status;
}

static Backend *knob_of(int64_t type, int64_t setting) {
  auto *knob = new Backend{CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, true, {}};
  put(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, static_cast<cudnnBackendKnobType_t>(type));
  put(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, setting);
  return knob;
}

/* What the heuristic lists, as finished configurations. */
static void list(const Backend *heuristic, int64_t most, int64_t *n, cudnnBackendDescriptor_t *to) {
  auto graph = value<cudnnBackendDescriptor_t>(heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, nullptr);
  std::vector<Choice> choices =
      choices_of(backend(graph), value(heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_HEUR_MODE_A));
  for (*n = 0; *n < most && *n < static_cast<int64_t>(choices.size()); (*n)++) {
    const Choice &c = choices[static_cast<size_t>(*n)];
    auto *engine = new Backend{CUDNN_BACKEND_ENGINE_DESCRIPTOR, false, {}};
    put(engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, graph);
    put(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, c.engine);
    cudnnBackendFinalize(engine);
    std::vector<cudnnBackendDescriptor_t> knobs;
    for (auto &[type, setting] : c.knobs) knobs.push_back(knob_of(type, setting));
    auto *found = static_cast<cudnnBackendDescriptor_t>(to[*n]);
    cudnnBackendDescriptor_t by = engine;
    cudnnBackendSetAttribute(found, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &by);
    cudnnBackendSetAttribute(found, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                             static_cast<int64_t>(knobs.size()), knobs.data());
    backend(found)->finished = true;
  }
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t most, int64_t *n, void *to) {
  if (!d || !backend(d)->finished) return bad("an attribute of what is not finished");
  if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS) {
    list(backend(d), most, n, static_cast<cudnnBackendDescriptor_t *>(to));
    return CUDNN_STATUS_SUCCESS;
  }
  auto at = backend(d)->has.find(name);
  *n = at == backend(d)->has.end() ? 0 : at->second.n;
  if (!*n) return CUDNN_STATUS_SUCCESS;
  if (at->second.type != type) return bad("an attribute of another type");
  for (int64_t i = 0; i < *n && i < most; i++) {
    const char *from = at->second.bytes.data() + static_cast<size_t>(i) * bytes_of(type);
    if (type != CUDNN_TYPE_BACKEND_DESCRIPTOR) {
      memcpy(static_cast<char *>(to) + static_cast<size_t>(i) * bytes_of(type), from, bytes_of(type));
      continue;
    }
    Backend *found;
    memcpy(&found, from, sizeof found);
    *backend(static_cast<cudnnBackendDescriptor_t *>(to)[i]) = *found;
  }
  return CUDNN_STATUS_SUCCESS;
}

/* ---- execution ------------------------------------------------------------------------------------ */

typedef std::map<int64_t, Floats> Memory; /* by tensor, dense */

/* What a key's mask, the statistic or a stride would be if a caller had said it wrongly. */
static bool drops_mask(int64_t engine) { return engine == SEES_ALL || is_wrong("mask"); }

static float combined(int mode, float x, float y, float where) {
  switch (mode) {
  case CUDNN_POINTWISE_ADD: return x + y;
  case CUDNN_POINTWISE_SUB: return x - y;
  case CUDNN_POINTWISE_MUL: return x * y;
  case CUDNN_POINTWISE_DIV: return x / y;
  case CUDNN_POINTWISE_EXP: return expf(x);
  case CUDNN_POINTWISE_LOG: return is_wrong("statistic") ? log2f(x) : logf(x);
  case CUDNN_POINTWISE_CMP_GE: return x >= y;
  case CUDNN_POINTWISE_BINARY_SELECT: return where != 0 ? x : y;
  }
  cuda_host_die("the stand-in for cuDNN has no mode %d", mode);
}

/* more: what another order changes, enlarged so that it shows in bfloat16, too. */
static void multiply(const Operation &o, const Memory &m, bool backwards, float more, Floats &to) {
  const Tensor &a = o.in[0], &b = o.in[1];
  const Floats &x = m.at(a.number), &y = m.at(b.number);
  each(o.to, [&](size_t n, int64_t, const int64_t *i) {
    int64_t k = a.dim[3], head = i[1] * b.dim[1] / o.to.dim[1];
    const float *row = x.data() + ((i[0] * a.dim[1] + i[1]) * a.dim[2] + i[2]) * k;
    const float *column = y.data() + (i[0] * b.dim[1] + head) * k * b.dim[3] + i[3];
    float sum = 0;
    for (int64_t j = 0; j < k; j++) {
      int64_t at = backwards ? k - 1 - j : j;
      sum += row[at] * column[at * b.dim[3]];
    }
    to[n] = rounded(o.to, sum * more);
  });
}

static void reduce(const Operation &o, const Floats &x, Floats &to) {
  bool largest = o.mode == CUDNN_REDUCE_TENSOR_MAX;
  std::fill(to.begin(), to.end(), largest ? -INFINITY : 0.0f);
  each(o.in[0], [&](size_t n, int64_t, const int64_t *i) {
    size_t at = place_in(o.to, i, o.in[0].dim);
    to[at] = largest ? std::max(to[at], x[n]) : to[at] + x[n];
  });
  for (float &e : to) e = rounded(o.to, e);
}

static void run_one(const Operation &o, int64_t engine, bool backwards, Memory &m) {
  Floats to(static_cast<size_t>(elements(o.to)));
  auto operand = [&](size_t k, const int64_t *i) {
    if (k >= o.in.size()) return 0.0f;
    int64_t at = 0;
    for (int axis = 0; axis < 4; axis++) at = at * o.in[k].dim[axis] + (o.in[k].dim[axis] == 1 ? 0 : i[axis]);
    return m.at(o.in[k].number)[static_cast<size_t>(at)];
  };
  if (is_convolution(o.type))
    cudnn_host_convolve(o, m.at(o.in[0].number), m.at(o.in[1].number), engine == TENSOR_CORES, to);
  else if (o.type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR)
    multiply(o, m, backwards, engine == ADDS_AS_IT_COMES && backwards ? 1 + 0x1p-8f : 1, to);
  else if (o.type == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR)
    reduce(o, m.at(o.in[0].number), to);
  else
    each(o.to, [&](size_t n, int64_t, const int64_t *i) {
      int64_t across[4] = {i[0], i[1], i[3], i[2]};
      if (o.type == CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR)
        to[n] = rounded(o.to, operand(0, across));
      else if (o.mode == CUDNN_POINTWISE_GEN_INDEX)
        to[n] = static_cast<float>(i[o.axis]);
      else if (o.mode == CUDNN_POINTWISE_CMP_GE && drops_mask(engine))
        to[n] = 1;
      else
        to[n] = rounded(o.to, combined(o.mode, operand(0, i), operand(1, i), operand(2, i)));
    });
  m[o.to.number] = std::move(to);
}

static Floats read(const Tensor &t, const void *at) {
  Floats x(static_cast<size_t>(elements(t)));
  each(t, [&](size_t n, int64_t place, const int64_t *) {
    x[n] = t.type == CUDNN_DATA_BFLOAT16 ? __bfloat162float(static_cast<const __nv_bfloat16 *>(at)[place])
                                         : static_cast<const float *>(at)[place];
  });
  return x;
}

static void write(const Tensor &t, const Floats &x, void *at) {
  bool shifted = is_wrong("stride") && t.dim[1] > 1 && t.stride[3] == 1 && t.dim[3] > 1;
  each(t, [&](size_t n, int64_t place, const int64_t *i) {
    if (shifted) place += (i[1] % 2 ? -1 : i[1] + 1 < t.dim[1] ? 1 : 0) * t.stride[1]; /* the head beside it */
    if (t.type == CUDNN_DATA_BFLOAT16)
      static_cast<__nv_bfloat16 *>(at)[place] = __float2bfloat16_rn(x[n]);
    else
      static_cast<float *>(at)[place] = x[n];
  });
}

/* A run: which tensors are where. */
struct Run {
  std::vector<Operation> all;
  std::map<int64_t, void *> at;
  std::map<int64_t, float> numbers;
  int64_t engine, workspace_bytes;
  void *workspace;
  bool backwards; /* sums, this time */
};

static void run(const Run &r) {
  Memory m;
  for (auto &[number, x] : r.numbers) m[number] = {x};
  if (r.workspace_bytes) cuda_host_poison(r.workspace, static_cast<size_t>(r.workspace_bytes));
  for (const Operation &o : r.all) {
    for (const Tensor &t : o.in)
      if (!m.count(t.number)) m[t.number] = read(t, r.at.at(t.number));
    run_one(o, r.engine, r.backwards, m);
  }
  for (const Operation &o : r.all)
    if (!o.to.is_virtual) write(o.to, m.at(o.to.number), r.at.at(o.to.number));
  if (r.engine == SLOW || r.engine == UNLISTED) cuda_host_spend(r.engine == SLOW ? 100 : 200);
}

static void place(const Tensor &t, Run *r) {
  if (t.is_virtual) return;
  auto at = r->at.find(t.number);
  if (at == r->at.end() || !at->second) cuda_host_die("cuDNN's tensor %lld is nowhere", (long long)t.number);
  if (t.by_value) {
    r->numbers[t.number] = *static_cast<const float *>(at->second);
    return;
  }
  size_t bytes = static_cast<size_t>(reach(t)) * (t.type == CUDNN_DATA_BFLOAT16 ? 2 : 4);
  if (reinterpret_cast<uintptr_t>(at->second) % 16)
    cuda_host_die("cuDNN's tensors begin at multiples of 16 bytes");
  cuda_host_must_be_device(at->second, bytes, "cuDNN's tensor");
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t pack) {
  static unsigned runs;
  const Backend *p = backend(plan), *v = backend(pack);
  if (!handle || !p->finished || !v->finished) return bad("a run of what is not finished");
  std::vector<int64_t> numbers = values<int64_t>(v, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  std::vector<void *> places = values<void *>(v, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  if (numbers.size() != places.size()) return bad("other tensors than places");
  const Backend *engine = engine_of(p);
  Run r = {operations_of(graph_of(engine)),
           {},
           {},
           number_of(engine),
           workspace_of(p),
           value<void *>(v, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, nullptr),
           false};
  if (is_convolution(r.all[0].type) && (refuses("run") || (refuses("first") && !r.workspace_bytes)))
    return cudnn_host_refuse(CUDNN_STATUS_NOT_SUPPORTED_SHAPE, "no convolution is run");
  if (r.engine == UNSURE) cuda_host_die("a graph is run by an engine that is not deterministic");
  if (r.engine == ROUNDS_SUMS) cuda_host_die("a convolution is made by an engine that rounds its sums");
  for (size_t i = 0; i < numbers.size(); i++) r.at[numbers[i]] = places[i];
  for (const Operation &o : r.all) {
    for (const Tensor &t : o.in) place(t, &r);
    place(o.to, &r);
  }
  if (r.workspace_bytes)
    cuda_host_must_be_device(r.workspace, static_cast<size_t>(r.workspace_bytes), "cuDNN's workspace");
  bool odd = __builtin_popcount(runs++) % 2 == 1; /* no period: a call may be several runs */
  r.backwards = r.engine == ADDS_AS_IT_COMES ? odd : r.engine == QUICK;
  cuda_host_enqueue(cudnn_host_stream(handle), {"cudnnBackendExecute", [r] { run(r); }});
  return CUDNN_STATUS_SUCCESS;
}

/* ---- the library as a file ------------------------------------------------------------------------ */

void *cuda_host_dlopen(const char *, int) {
  static char library;
  return refuses("library") ? nullptr : &library;
}
char *cuda_host_dlerror() {
  static char none[] = "libcudnn.so.9: the stand-in is told that there is none";
  return none;
}
void *cuda_host_dlsym(void *, const char *name) {
#define FUNCTION(f) \
  { #f, reinterpret_cast < void *>(&f) }
  static const std::map<std::string, void *> functions = {FUNCTION(cudnnGetVersion),
                                                          FUNCTION(cudnnCreate),
                                                          FUNCTION(cudnnSetStream),
                                                          FUNCTION(cudnnGetErrorString),
                                                          FUNCTION(cudnnGetLastErrorString),
                                                          FUNCTION(cudnnBackendCreateDescriptor),
                                                          FUNCTION(cudnnBackendDestroyDescriptor),
                                                          FUNCTION(cudnnBackendSetAttribute),
                                                          FUNCTION(cudnnBackendGetAttribute),
                                                          FUNCTION(cudnnBackendFinalize),
                                                          FUNCTION(cudnnBackendExecute)};
#undef FUNCTION
  auto at = functions.find(name);
  return at == functions.end() ? nullptr : at->second;
}
