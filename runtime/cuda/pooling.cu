/* pd_pooling: a thread computes one pixel and some channels of the result. The backward pass gathers: an element
 * of dx sums the gradients of its windows in order, without atomics. A window of the maximum passes its gradient
 * to the first equal position, which is recomputed instead of stored. */
#include "pd_elements.h"

enum { THREADS = 256 };

struct Pooling {
  struct pd_pooling p;
  int64_t elements, out_elements; /* of a sample */
};

/* Positions of x in one window along an axis, [first, end), and how many count for an average. */
struct Extent {
  int first, end, count;
};

static __device__ Extent extent_of(const struct pd_pooling &p, int axis, int out) {
  int size = static_cast<int>(axis ? p.width : p.height), n = static_cast<int>(p.out[axis]);
  if (p.adaptive) {
    int from = out * size / n, to = ((out + 1) * size + n - 1) / n;
    return {from, to, to - from};
  }
  int padding = static_cast<int>(p.padding[axis]);
  int first = out * static_cast<int>(p.stride[axis]) - padding, end = first + static_cast<int>(p.kernel[axis]);
  Extent e = {max(first, 0), min(end, size), 0};
  e.count = p.count_padding ? min(end, size + padding) - first : e.end - e.first;
  return e;
}

/* The windows along an axis that hold position i: [first, end). */
static __device__ Extent windows_of(const struct pd_pooling &p, int axis, int i) {
  int size = static_cast<int>(axis ? p.width : p.height), n = static_cast<int>(p.out[axis]);
  if (p.adaptive) return {i * n / size, ((i + 1) * n - 1) / size + 1, 0};
  int stride = static_cast<int>(p.stride[axis]), at = i + static_cast<int>(p.padding[axis]);
  int before = at - static_cast<int>(p.kernel[axis]); /* the last start of a window that ends before it */
  return {before < 0 ? 0 : before / stride + 1, min(at / stride + 1, n), 0};
}

/* This thread's place among a sample's elements: a pixel [row, column] and N channels from `channel` on. */
struct Spot {
  int row, column, channel;
};

template <int N> static __device__ Spot spot_of(int i, int width, int channels) {
  int pixel = i / (channels / N);
  return {pixel / width, pixel % width, i % (channels / N) * N};
}

/* The next element N of `elements` a sample: blockIdx.x and threads go over them, blockIdx.y over samples. */
#define FOR_EACH(sample, i, pooling, elements)                                       \
  for (int64_t sample = blockIdx.y; sample < (pooling).p.batch; sample += gridDim.y) \
    if (int i = static_cast<int>(blockIdx.x * THREADS + threadIdx.x); i < (elements) / N)

template <typename From, typename To, int N>
static __global__ void __launch_bounds__(THREADS, 1)
    pool(Pooling pooling, const From *__restrict__ x, To *__restrict__ y) {
  const struct pd_pooling &p = pooling.p;
  int width = static_cast<int>(p.width), channels = static_cast<int>(p.channels);
  FOR_EACH(sample, e, pooling, pooling.out_elements) {
    Spot at = spot_of<N>(e, static_cast<int>(p.out[1]), channels);
    Extent rows = extent_of(p, 0, at.row), columns = extent_of(p, 1, at.column);
    const From *from = x + sample * pooling.elements + at.channel;
    float result[N], value[N];
    for (int c = 0; c < N; c++) result[c] = p.maximum ? -INFINITY : 0.0f;
    for (int i = rows.first; i < rows.end; i++)
      for (int j = columns.first; j < columns.end; j++) {
        pd_get(value, from + static_cast<int64_t>(i * width + j) * channels);
        for (int c = 0; c < N; c++) {
          float larger = value[c] > result[c] || value[c] != value[c] ? value[c] : result[c]; /* a NaN stays */
          result[c] = p.maximum ? larger : result[c] + value[c];
        }
      }
    if (!p.maximum)
      for (int c = 0; c < N; c++) result[c] /= static_cast<float>(rows.count * columns.count);
    pd_put(y + sample * pooling.out_elements + static_cast<int64_t>(e) * N, result);
  }
}

/* Whether the window holds no equal of x[row, column] before it; for N channels, whose values are `value`. */
template <typename From, int N>
static __device__ void first_of(bool (&first)[N], const From *x, const float (&value)[N], Extent rows,
                                Extent columns, const Spot &at, int width, int channels) {
  for (int i = rows.first; i <= at.row; i++)
    for (int j = columns.first; j < (i == at.row ? at.column : columns.end); j++) {
      float other[N];
      pd_get(other, x + static_cast<int64_t>(i * width + j) * channels);
      for (int c = 0; c < N; c++) first[c] = first[c] && other[c] != value[c];
    }
}

template <typename From, typename To, int N>
static __global__ void __launch_bounds__(THREADS, 1)
    max_backward(Pooling pooling, const From *__restrict__ x, const From *__restrict__ y,
                 const To *__restrict__ dy, To *__restrict__ dx) {
  const struct pd_pooling &p = pooling.p;
  int width = static_cast<int>(p.width), channels = static_cast<int>(p.channels), out = static_cast<int>(p.out[1]);
  FOR_EACH(sample, e, pooling, pooling.elements) {
    Spot at = spot_of<N>(e, width, channels);
    Extent down = windows_of(p, 0, at.row), across = windows_of(p, 1, at.column);
    const From *from = x + sample * pooling.elements + at.channel;
    int64_t results = sample * pooling.out_elements + at.channel;
    float sum[N] = {}, value[N], top[N], share[N];
    pd_get(value, from + static_cast<int64_t>(at.row * width + at.column) * channels);
    for (int i = down.first; i < down.end; i++)
      for (int j = across.first; j < across.end; j++) {
        int64_t window = results + static_cast<int64_t>(i * out + j) * channels;
        bool hit[N], any = false;
        pd_get(top, y + window);
        for (int c = 0; c < N; c++) any |= hit[c] = value[c] == top[c];
        if (!any) continue;
        first_of(hit, from, value, extent_of(p, 0, i), extent_of(p, 1, j), at, width, channels);
        pd_get(share, dy + window);
        for (int c = 0; c < N; c++) sum[c] += hit[c] ? share[c] : 0.0f;
      }
    pd_put(dx + sample * pooling.elements + static_cast<int64_t>(e) * N, sum);
  }
}

template <typename From, typename To, int N>
static __global__ void __launch_bounds__(THREADS, 1)
    average_backward(Pooling pooling, const From *__restrict__ dy, To *__restrict__ dx) {
  const struct pd_pooling &p = pooling.p;
  int channels = static_cast<int>(p.channels), out = static_cast<int>(p.out[1]);
  FOR_EACH(sample, e, pooling, pooling.elements) {
    Spot at = spot_of<N>(e, static_cast<int>(p.width), channels);
    Extent down = windows_of(p, 0, at.row), across = windows_of(p, 1, at.column);
    int64_t results = sample * pooling.out_elements + at.channel;
    float sum[N] = {}, share[N];
    for (int i = down.first; i < down.end; i++)
      for (int j = across.first; j < across.end; j++) {
        float count = static_cast<float>(extent_of(p, 0, i).count * extent_of(p, 1, j).count);
        pd_get(share, dy + results + static_cast<int64_t>(i * out + j) * channels);
        for (int c = 0; c < N; c++) sum[c] += share[c] / count;
      }
    pd_put(dx + sample * pooling.elements + static_cast<int64_t>(e) * N, sum);
  }
}

/* ---- calls -------------------------------------------------------------------------------------- */

static Pooling measured(const struct pd_pooling *p) {
  Pooling pooling = {*p, p->height * p->width * p->channels, p->out[0] * p->out[1] * p->channels};
  int64_t size = p->height > p->width ? p->height : p->width;
  if (pooling.elements > INT32_MAX || pooling.out_elements > INT32_MAX || size > INT16_MAX)
    pd_fail("images of [%lld, %lld, %lld] are too large for pooling", (long long)p->height, (long long)p->width,
            (long long)p->channels);
  return pooling;
}

static dim3 grid_for(const Pooling &p, int64_t elements, int n) {
  return dim3(static_cast<unsigned>((elements / n + THREADS - 1) / THREADS), pd_grid_part(p.p.batch));
}

static bool by_four(const struct pd_pooling *p, std::initializer_list<pd_in> operands) {
  bool all = p->channels % 4 == 0;
  for (pd_in x : operands) all = all && pd_aligned(x.at, 4 * pd_size(x.type));
  return all;
}

/* f<From, To, N>(): operands that are read are From, those beside the result To. */
template <typename F> static void with_types(pd_type from, pd_type to, bool four, F f) {
  pd_by_type(from, [&](auto x) {
    pd_by_type(to, [&](auto y) {
      if (four)
        f.template operator()<decltype(x), decltype(y), 4>();
      else
        f.template operator()<decltype(x), decltype(y), 1>();
    });
  });
}

void pd_pooling(const struct pd_pooling *p, pd_in x, pd_out y) {
  Pooling pooling = measured(p);
  with_types(x.type, y.type, by_four(p, {x, pd_written(y)}), [&]<typename From, typename To, int N>() {
    PD_LAUNCH((pool<From, To, N>), grid_for(pooling, pooling.out_elements, N), THREADS, 0, pd_stream, pooling,
              static_cast<const From *>(x.at), static_cast<To *>(y.at));
  });
}

static void must_agree(pd_type a, pd_type b) {
  if (a != b) pd_fail("internal: the backward pass of pooling has operands of different types");
}

void pd_pooling_backward(const struct pd_pooling *p, pd_in x, pd_in y, pd_in dy, pd_out dx) {
  Pooling pooling = measured(p);
  bool four = by_four(p, {x, y, dy, pd_written(dx)});
  if (!p->maximum) {
    with_types(dy.type, dx.type, four, [&]<typename From, typename To, int N>() {
      PD_LAUNCH((average_backward<From, To, N>), grid_for(pooling, pooling.elements, N), THREADS, 0, pd_stream,
                pooling, static_cast<const From *>(dy.at), static_cast<To *>(dx.at));
    });
    return;
  }
  must_agree(x.type, y.type);
  must_agree(dy.type, dx.type);
  with_types(x.type, dx.type, four, [&]<typename From, typename To, int N>() {
    PD_LAUNCH((max_backward<From, To, N>), grid_for(pooling, pooling.elements, N), THREADS, 0, pd_stream, pooling,
              static_cast<const From *>(x.at), static_cast<const From *>(y.at), static_cast<const To *>(dy.at),
              static_cast<To *>(dx.at));
  });
}
