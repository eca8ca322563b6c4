/* pd_cached_attention on a device, position by position, against sums in double, with caps, and with windows beyond the
 * end of the cache. */
#include "test.h"

struct Case {
  int64_t batch, heads, kv_heads, context, size, window;
  float softcap;
};

static double number(const std::vector<float> &x, int64_t i) { return x[(size_t)i]; }

/* What head h of a sample gets from the keys and values up to position `at`. */
static void expect(const Case &c, const std::vector<float> &q, int64_t at_q, const std::vector<float> &keys,
                   const std::vector<float> &values, int64_t cache, int64_t at, double *want) {
  std::vector<double> p;
  double sum = 0;
  const int64_t begin = c.window && at >= c.window ? at - c.window + 1 : 0;
  for (int64_t j = begin; j <= at; j++) {
    double score = 0;
    for (int64_t i = 0; i < c.size; i++)
      score += 0.3 * number(q, at_q + i) * number(keys, cache + j % c.context * c.size + i);
    if (c.softcap > 0) score = (double)c.softcap * tanh(score / (double)c.softcap);
    p.push_back(exp(score));
    sum += p.back();
  }
  for (int64_t i = 0; i < c.size; i++) {
    want[i] = 0;
    for (int64_t j = begin; j <= at; j++)
      want[i] += p[(size_t)(j - begin)] / sum * number(values, cache + j % c.context * c.size + i);
  }
}

static void run(const Case &c, pd_type from, pd_type to) {
  int64_t row = (c.heads + 2 * c.kv_heads) * c.size, cached = c.batch * c.kv_heads * c.context * c.size;
  struct pd_cached_attention a = {c.batch,
                                  c.batch,
                                  c.heads,
                                  c.kv_heads,
                                  c.context,
                                  c.size,
                                  0,
                                  0,
                                  c.window,
                                  0.3f,
                                  c.softcap,
                                  {row, c.size},
                                  {row, c.size},
                                  {row, c.size},
                                  {c.heads * c.size, c.size},
                                  0};
  std::vector<int32_t> numbers;
  for (int64_t b = 0; b < c.batch; b++) numbers.push_back((int32_t)b);
  Integers sequence(numbers);
  Array key_cache(PD_F32, filled(cached, NAN)), value_cache(PD_F32, filled(cached, NAN));
  std::vector<float> keys((size_t)cached), values((size_t)cached);
  for (int64_t at = 0; at < (c.window ? 2 * c.context + 3 : c.context); at++) {
    Array q(from, random_floats(c.batch * row)), k(from, random_floats(c.batch * row)),
        v(from, random_floats(c.batch * row)), o(to, filled(c.batch * c.heads * c.size, NAN));
    Integers position(std::vector<int32_t>((size_t)c.batch, (int32_t)at));
    pd_cached_attention(&a, q.in(), k.in(), v.in(), position.at, sequence.at, o.out(), key_cache.out(),
                        value_cache.out());
    std::vector<double> want(o.host.size()), allowed(o.host.size(), 1e-5 + 2 * rounding(to));
    for (int64_t b = 0; b < c.batch; b++) {
      for (int64_t h = 0; h < c.kv_heads; h++)
        for (int64_t i = 0; i < c.size; i++) {
          int64_t here = ((b * c.kv_heads + h) * c.context + at % c.context) * c.size + i;
          keys[(size_t)here] = (float)number(k.host, b * row + h * c.size + i);
          values[(size_t)here] = (float)number(v.host, b * row + h * c.size + i);
        }
      for (int64_t h = 0; h < c.heads; h++)
        expect(c, q.host, b * row + h * c.size, keys, values,
               (b * c.kv_heads + h / (c.heads / c.kv_heads)) * c.context * c.size, at,
               &want[(size_t)((b * c.heads + h) * c.size)]);
    }
    compare("attention from a cache", o.fetch(), want, allowed);
  }
}

int main() {
  static const Case cases[] = {{1, 1, 1, 3, 1, 0, 0},  {2, 4, 2, 20, 16, 0, 1.5f}, {1, 6, 2, 37, 40, 0, 0},
                               {3, 2, 2, 9, 64, 0, 0}, {2, 4, 2, 11, 16, 7, 0},    {1, 2, 1, 5, 20, 5, 1.5f}};
  pd_cuda_check(cudaStreamCreateWithFlags(&pd_stream, cudaStreamNonBlocking), "make a stream");
  for (const Case &c : cases) {
    run(c, PD_F32, PD_F32);
    run(c, random_type(), random_type());
  }
  return 0;
}
