/* Which algorithm does a product: the fastest of those that keep an order of their sums, whatever the library lists first;
 * by a plan's numbers the same bits again, wherever rows stand; its own choice where it refuses them. The stand-in's
 * algorithms differ in the order of their sums, so that bits say which one it was. */
#include "test.h"

#include <cublasLt.h>

#include <cstdlib>
#include <cstring>
#include <string>

typedef std::vector<float> Floats;

/* Products of numbers from random_floats. apart: elements between rows, beyond those that they have. */
struct Product {
  int64_t m, n, k;
  pd_type type;
  int64_t apart;
};

static const Product products[] = {{64, 96, 130, PD_BF16, 0}, {128, 64, 300, PD_BF16, 0},
                                   {96, 160, 77, PD_BF16, 0}, {64, 64, 257, PD_F32, 0},
                                   {200, 72, 129, PD_F32, 0}, {88, 88, 88, PD_BF16, 0}};

static struct pd_matmul_shape shape_of(const Product &p) {
  struct pd_matmul_shape s = {};
  s.batch = 1, s.m = p.m, s.n = p.n, s.k = p.k;
  s.a_row = p.k + p.apart, s.b_row = p.n + p.apart, s.c_row = p.n;
  s.a_column = s.b_column = 1;
  return s;
}

static Floats with_gaps(const Floats &x, int64_t columns, int64_t apart) {
  Floats y;
  for (size_t i = 0; i < x.size(); i++) {
    y.push_back(x[i]);
    for (int64_t j = 0; j < apart && (int64_t)(i + 1) % columns == 0; j++) y.push_back(7);
  }
  return y;
}

/* The result, in floats: all bits of the sums. */
static Floats multiply(const Product &p) {
  random_state = 1;
  Floats factors[2] = {random_floats(p.m * p.k), random_floats(p.k * p.n)};
  Array a(p.type, with_gaps(factors[0], p.k, p.apart)), b(p.type, with_gaps(factors[1], p.n, p.apart));
  Array c(PD_F32, filled(p.m * p.n, 7));
  struct pd_matmul *m = pd_matmul_new(shape_of(p));
  Scratch scratch((int64_t)pd_matmul_scratch(m));
  pd_matmul(m, a.in(), b.in(), nullptr, c.out(), scratch.at());
  Floats result = c.fetch();
  if (pd_counts.own_products) pd_fail("the library has no algorithm");
  return result;
}

/* ---- what is told ---------------------------------------------------------------------------------- */

struct Told {
  pd_algorithm algorithm;
  double seconds, first_seconds;
  std::string product;
};

/* What pd_tell_algorithms prints; of lines that are not as they must be, nothing. */
static std::vector<Told> told() {
  std::vector<Told> all;
  char line[512];
  FILE *screen = stdout, *file = tmpfile();
  stdout = file;
  pd_tell_algorithms(false);
  stdout = screen;
  rewind(file);
  while (fgets(line, sizeof line, file)) {
    Told t = {};
    pd_algorithm &a = t.algorithm;
    int n = 0;
    sscanf(line, "algorithm %u %u %u %u %u %u %u %u %u %lf %lf %n", &a.id, &a.tile, &a.stages, &a.split_k,
           &a.reduction, &a.swizzle, &a.custom, &a.inner_shape, &a.cluster_shape, &t.seconds, &t.first_seconds,
           &n);
    if (!n) pd_fail("told: %s", line);
    t.product = std::string(line + n, strlen(line + n) - 1);
    all.push_back(t);
  }
  fclose(file);
  for (Told &t : all) t.algorithm.product = t.product.c_str();
  return all;
}

static void use(const std::vector<Told> &plan, const char *device, int64_t version) {
  static std::vector<pd_algorithm> table;
  table.clear();
  for (const Told &t : plan) table.push_back(t.algorithm);
  pd_use_algorithms(table.data(), (int)table.size(), device, version);
}

/* ---- the cases --------------------------------------------------------------------------------------- */

enum { N = sizeof products / sizeof *products };
static const char *device; /* the stand-in's */
static int64_t version;

static std::vector<Floats> multiply_all(int64_t apart) {
  std::vector<Floats> results;
  for (Product p : products) {
    p.apart = apart;
    results.push_back(multiply(p));
  }
  return results;
}

static void expect(bool good, const char *what) {
  if (!good) pd_fail("%s", what);
}

/* The stand-in's times are 0.1, 0.15, 0.2 and 0.25 s beside what a processor takes. */
static std::vector<Told> the_fastest_is_taken(const std::vector<Floats> &listed_first,
                                              std::vector<Floats> *fastest) {
  pd_time_algorithms(true);
  *fastest = multiply_all(0);
  std::vector<Told> plan = told();
  expect(plan.size() == N, "each product is told once");
  int others = 0;
  for (int i = 0; i < N; i++) {
    const Told &t = plan[(size_t)i];
    expect(t.seconds > 0.099 && t.seconds < 0.14, "the fastest of four");
    expect(t.first_seconds > 0.099 && t.first_seconds < 1, "the first");
    bool is_first = t.first_seconds < t.seconds + 0.03;
    expect(((*fastest)[(size_t)i] == listed_first[(size_t)i]) == is_first, "the first does not give other bits");
    others += !is_first;
  }
  expect(others >= 3, "others than the first are the fastest");
  multiply_all(0);
  std::vector<Told> again = told();
  expect(again.size() == N, "told again for another call");
  for (size_t i = 0; i < N; i++)
    expect(again[i].product == plan[i].product && again[i].seconds == plan[i].seconds,
           "the same without a stopwatch");
  pd_time_algorithms(false);
  return plan;
}

static void a_plan_says_which(const std::vector<Told> &plan, const std::vector<Floats> &fastest) {
  use(plan, device, version);
  expect(multiply_all(0) == fastest, "the plan's algorithms give other bits");
  expect(multiply_all(8) == fastest, "rows that are farther apart give other bits");
  expect(pd_counts.other_algorithms == 0, "some were not the plan's");
}

/* As few as one of a plan may be wrong, or all: then the library's own choice is taken, which is counted. */
static void what_is_refused_is_counted(std::vector<Told> plan, const std::vector<Floats> &listed_first,
                                       const std::vector<Floats> &fastest) {
  uint32_t pd_algorithm::*const numbers[] = {&pd_algorithm::id,          &pd_algorithm::tile,
                                             &pd_algorithm::stages,      &pd_algorithm::split_k,
                                             &pd_algorithm::custom,      &pd_algorithm::swizzle,
                                             &pd_algorithm::inner_shape, &pd_algorithm::cluster_shape};
  int64_t counted = 0;
  for (auto number : numbers) {
    std::vector<Told> wrong = plan;
    for (Told &t : wrong) t.algorithm.product = t.product.c_str();
    wrong[1].algorithm.*number += 5;
    use(wrong, device, version);
    expect(multiply(products[1]) == listed_first[1], "a wrong algorithm was used");
    expect(multiply(products[2]) == fastest[2], "a right one was not");
    expect(pd_counts.other_algorithms == ++counted, "counted wrongly");
  }
  setenv("CUBLASLT_HOST_REFUSE", "algorithms", 1);
  use(plan, device, version);
  expect(multiply_all(0) == listed_first && pd_counts.other_algorithms == (counted += N), "all are refused");
  unsetenv("CUBLASLT_HOST_REFUSE");
  use(plan, device, version + 1);
  expect(multiply_all(0) == listed_first && pd_counts.other_algorithms == (counted += N), "another version's");
  use(plan, "another device", version);
  expect(multiply_all(0) == listed_first && pd_counts.other_algorithms == (counted += N), "another device's");
  plan.resize(2);
  use(plan, device, version);
  expect(multiply_all(0)[5] == listed_first[5] && pd_counts.other_algorithms == counted, "of what no plan speaks");
  pd_use_algorithms(nullptr, 0, device, version);
}

/* Whatever is offered at half the time. */
static void some_are_not_to_be_used(const std::vector<Floats> &listed_first) {
  pd_time_algorithms(true);
  int64_t size = 65;
  for (const char *offer : {"in_place", "plain too"}) {
    setenv("CUBLASLT_HOST_OFFER", offer, 1);
    multiply({size, 80, 90, PD_BF16, 0});
    multiply({size++, 80, 90, PD_F32, 0});
    std::vector<Told> plan = told();
    expect(plan.size() == 2 && plan[0].seconds > 0.099, "sums without an order, or products without tensor cores");
    bool of_floats = plan[1].seconds < 0.099;
    expect(of_floats == !strcmp(offer, "plain too"), "floats have no tensor cores");
  }
  expect(pd_counts.plain_products == 0, "there are others");
  setenv("CUBLASLT_HOST_OFFER", "plain", 1);
  multiply({size, 80, 90, PD_BF16, 0});
  expect(told().empty() && pd_counts.plain_products == 1, "a product without tensor cores is counted");
  pd_time_algorithms(false);
  multiply({size, 80, 90, PD_BF16, 0});
  multiply({size, 80, 90, PD_F32, 0});
  multiply({size, 8, 90, PD_BF16, 0});
  expect(pd_counts.plain_products == 2, "where it matters");
  unsetenv("CUBLASLT_HOST_OFFER");
  expect(multiply_all(0) == listed_first, "nothing of this is left");
}

int main() {
  cudaDeviceProp properties;
  pd_cuda_check(cudaGetDeviceProperties(&properties, 0), "ask for the device");
  pd_cuda_check(cudaStreamCreateWithFlags(&pd_stream, cudaStreamNonBlocking), "make a stream");
  device = properties.name;
  version = (int64_t)cublasLtGetVersion();
  std::vector<Floats> fastest, listed_first = multiply_all(0);
  std::vector<Told> plan = the_fastest_is_taken(listed_first, &fastest);
  for (Told &t : plan) t.algorithm.product = t.product.c_str();
  a_plan_says_which(plan, fastest);
  what_is_refused_is_counted(plan, listed_first, fastest);
  some_are_not_to_be_used(listed_first);
  return 0;
}
