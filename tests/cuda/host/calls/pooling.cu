/* pd_pooling on a device against plain loops in double, which go over windows where the kernels' backward pass
 * goes over pixels; with equal maxima, padding on either side, windows that overlap or leave gaps. */
#include "test.h"

struct Extent {
  int64_t first, end, count;
};

static Extent extent_of(const struct pd_pooling &p, int axis, int64_t out) {
  int64_t size = axis ? p.width : p.height, n = p.out[axis];
  if (p.adaptive) {
    int64_t from = out * size / n, to = ((out + 1) * size + n - 1) / n;
    return {from, to, to - from};
  }
  int64_t first = out * p.stride[axis] - p.padding[axis], end = first + p.kernel[axis];
  int64_t inside_first = first < 0 ? 0 : first, inside_end = end > size ? size : end;
  int64_t padded_end = end > size + p.padding[axis] ? size + p.padding[axis] : end;
  return {inside_first, inside_end, p.count_padding ? padded_end - first : inside_end - inside_first};
}

/* f(index of the window's result, its rows, its columns, sample, channel) */
template <typename F> static void for_windows(const struct pd_pooling &p, F f) {
  for (int64_t b = 0; b < p.batch; b++)
    for (int64_t i = 0; i < p.out[0]; i++)
      for (int64_t j = 0; j < p.out[1]; j++)
        for (int64_t c = 0; c < p.channels; c++)
          f((size_t)(((b * p.out[0] + i) * p.out[1] + j) * p.channels + c), extent_of(p, 0, i), extent_of(p, 1, j),
            b, c);
}

static size_t pixel(const struct pd_pooling &p, int64_t b, int64_t i, int64_t j, int64_t c) {
  return (size_t)(((b * p.height + i) * p.width + j) * p.channels + c);
}

static std::vector<double> forward(const struct pd_pooling &p, const Array &x) {
  std::vector<double> y((size_t)(p.batch * p.out[0] * p.out[1] * p.channels));
  for_windows(p, [&](size_t at, Extent rows, Extent columns, int64_t b, int64_t c) {
    double sum = 0, top = -INFINITY;
    for (int64_t i = rows.first; i < rows.end; i++)
      for (int64_t j = columns.first; j < columns.end; j++) {
        double value = x.host[pixel(p, b, i, j, c)];
        sum += value;
        top = value > top ? value : top;
      }
    y[at] = p.maximum ? top : sum / (double)(rows.count * columns.count);
  });
  return y;
}

static std::vector<double> backward(const struct pd_pooling &p, const Array &x, const Array &y, const Array &dy,
                                    std::vector<double> *size) {
  std::vector<double> dx(x.host.size());
  for_windows(p, [&](size_t at, Extent rows, Extent columns, int64_t b, int64_t c) {
    bool taken = false;
    for (int64_t i = rows.first; i < rows.end; i++)
      for (int64_t j = columns.first; j < columns.end; j++) {
        size_t to = pixel(p, b, i, j, c);
        double share = dy.host[at] / (double)(rows.count * columns.count);
        bool hit = !taken && x.host[to] == y.host[at];
        taken = taken || hit;
        double add = !p.maximum ? share : hit ? dy.host[at] : 0;
        dx[to] += add;
        (*size)[to] += fabs(add);
      }
  });
  return dx;
}

static void run(const struct pd_pooling &p, pd_type type, pd_type gradient) {
  int64_t n = p.batch * p.height * p.width * p.channels, results = p.batch * p.out[0] * p.out[1] * p.channels;
  std::vector<float> values = random_floats(n);
  for (float &v : values) v = floorf(v * 8) / 8; /* equal ones */
  int64_t skip = random_below(3) ? 0 : 1;
  Array x(type, values, skip), y(type, filled(results, 99)), dx(gradient, filled(n, 99));
  std::vector<double> want = forward(p, x), allowed((size_t)results), size((size_t)n);
  for (size_t i = 0; i < allowed.size(); i++) allowed[i] = p.maximum ? 0 : 2 * rounding(type) + 0x1p-20;
  pd_pooling(&p, x.in(), y.out());
  std::vector<float> got = y.fetch();
  compare("a pooling", got, want, allowed);

  Array top(type, got), dy(gradient, random_floats(results), skip);
  want = backward(p, x, top, dy, &size);
  for (double &s : size) s *= rounding(gradient) + 0x1p-20;
  if (p.maximum)
    pd_pooling_backward(&p, x.in(), top.in(), dy.in(), dx.out());
  else
    pd_pooling_backward(&p, nullptr, nullptr, dy.in(), dx.out());
  compare("a pooling's gradient", dx.fetch(), want, size);
}

/* Results along an axis, a last window that begins inside the image included where `ceil` says so. */
static int64_t results(int64_t size, int64_t kernel, int64_t stride, int64_t padding, bool ceil) {
  int64_t n = (size + 2 * padding - kernel + (ceil ? stride - 1 : 0)) / stride + 1;
  return (n - 1) * stride >= size + padding ? n - 1 : n;
}

static struct pd_pooling random_pooling() {
  struct pd_pooling p = {};
  p.batch = 1 + random_below(3), p.channels = random_below(2) ? 4 * (1 + random_below(3)) : 1 + random_below(7);
  p.height = 1 + random_below(12), p.width = 1 + random_below(12);
  p.maximum = random_below(2), p.count_padding = random_below(2);
  p.adaptive = !p.maximum && random_below(3) == 0;
  for (int axis = 0; axis < 2; axis++) {
    int64_t size = axis ? p.width : p.height;
    p.kernel[axis] = 1 + random_below(size < 4 ? size : 4);
    p.stride[axis] = 1 + random_below(4);
    p.padding[axis] = random_below(p.kernel[axis] / 2 + 1);
    p.out[axis] = p.adaptive ? 1 + random_below(9)
                             : results(size, p.kernel[axis], p.stride[axis], p.padding[axis], random_below(2));
  }
  return p;
}

int main() {
  pd_cuda_check(cudaStreamCreateWithFlags(&pd_stream, cudaStreamNonBlocking), "make a stream");
  for (int i = 0; i < 200; i++) run(random_pooling(), random_type(), random_type());
  return 0;
}
