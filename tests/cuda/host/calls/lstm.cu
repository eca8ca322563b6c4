/* pd_lstm_forward and pd_lstm_backward on a device against the recurrence in double, which walks each sample's
 * steps by themselves: initial states or none, samples that end early or have no steps, either direction. The
 * gradients are those of a weighted sum of all results, by the chain rule written out per sample. */
#include "test.h"

struct Layer {
  struct pd_lstm l;
  bool starts;                  /* h0 and c0 are given */
  std::vector<int32_t> lengths; /* empty: all are whole */
  int64_t steps(int64_t b) const { return lengths.empty() ? l.length : lengths[(size_t)b]; }
  /* The i-th step of a sample in the direction of time. */
  int64_t step(int64_t b, int64_t i) const { return l.reverse ? steps(b) - 1 - i : i; }
  size_t at(int64_t b, int64_t t, int64_t j) const { return (size_t)((b * l.length + t) * l.hidden + j); }
  size_t gate(int64_t b, int64_t t, int g, int64_t j) const {
    return (size_t)(((b * l.length + t) * 4 + g) * l.hidden + j);
  }
  size_t unit(int64_t b, int64_t j) const { return (size_t)(b * l.hidden + j); }
};

typedef std::vector<double> Doubles;

static Doubles doubles(const Array &a) { return Doubles(a.host.begin(), a.host.end()); }
static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

/* All of what the forward pass makes. */
struct States {
  Doubles h, c, gates, h_n, c_n, previous;
};

static States forward(const Layer &y, const Doubles &x, const Doubles &w, const Doubles &h0, const Doubles &c0) {
  int64_t n = y.l.hidden;
  size_t all = (size_t)(y.l.batch * y.l.length * n), one = (size_t)(y.l.batch * n);
  States s = {Doubles(all), Doubles(all), Doubles(4 * all), Doubles(one), Doubles(one), Doubles(all)};
  for (int64_t b = 0; b < y.l.batch; b++) {
    Doubles h((size_t)n), c((size_t)n);
    for (int64_t j = 0; y.starts && j < n; j++) h[(size_t)j] = h0[y.unit(b, j)], c[(size_t)j] = c0[y.unit(b, j)];
    for (int64_t i = 0; i < y.l.length; i++) {
      int64_t t = y.l.reverse ? y.l.length - 1 - i : i;
      Doubles next = h;
      for (int64_t j = 0; t < y.steps(b) && j < n; j++) {
        double a[4];
        for (int g = 0; g < 4; g++) {
          a[g] = x[y.gate(b, t, g, j)];
          for (int64_t k = 0; k < n; k++) a[g] += h[(size_t)k] * w[(size_t)((g * n + j) * n + k)];
          a[g] = g == 2 ? tanh(a[g]) : sigmoid(a[g]);
          s.gates[y.gate(b, t, g, j)] = a[g];
        }
        c[(size_t)j] = a[1] * c[(size_t)j] + a[0] * a[2];
        next[(size_t)j] = a[3] * tanh(c[(size_t)j]);
        s.previous[y.at(b, t, j)] = h[(size_t)j];
        s.h[y.at(b, t, j)] = next[(size_t)j];
      }
      h = next;
      for (int64_t j = 0; j < n; j++) s.c[y.at(b, t, j)] = c[(size_t)j];
    }
    for (int64_t j = 0; j < n; j++) s.h_n[y.unit(b, j)] = h[(size_t)j], s.c_n[y.unit(b, j)] = c[(size_t)j];
  }
  return s;
}

struct Gradients {
  Doubles d_gates, dh0, dc0;
};

static Gradients backward(const Layer &y, const Doubles &w, const States &s, const Doubles &c0, const Doubles &dh,
                          const Doubles &dh_n, const Doubles &dc_n) {
  int64_t n = y.l.hidden;
  Gradients r = {Doubles(s.gates.size()), dh_n, dc_n};
  for (int64_t b = 0; b < y.l.batch; b++)
    for (int64_t i = y.steps(b) - 1; i >= 0; i--) {
      int64_t t = y.step(b, i), before = i > 0 ? y.step(b, i - 1) : -1;
      Doubles through((size_t)n);
      for (int64_t j = 0; j < n; j++) {
        const double *a[4];
        for (int g = 0; g < 4; g++) a[g] = &s.gates[y.gate(b, t, g, j)];
        double c = s.c[y.at(b, t, j)], dh_j = r.dh0[y.unit(b, j)] + dh[y.at(b, t, j)];
        double c_before = before >= 0 ? s.c[y.at(b, before, j)] : y.starts ? c0[y.unit(b, j)] : 0;
        double dc = r.dc0[y.unit(b, j)] + dh_j * *a[3] * (1 - tanh(c) * tanh(c));
        double d[4] = {dc * *a[2] * *a[0] * (1 - *a[0]), dc * c_before * *a[1] * (1 - *a[1]),
                       dc * *a[0] * (1 - *a[2] * *a[2]), dh_j * tanh(c) * *a[3] * (1 - *a[3])};
        r.dc0[y.unit(b, j)] = dc * *a[1];
        for (int g = 0; g < 4; g++) {
          r.d_gates[y.gate(b, t, g, j)] = d[g];
          for (int64_t k = 0; k < n; k++) through[(size_t)k] += d[g] * w[(size_t)((g * n + j) * n + k)];
        }
      }
      for (int64_t k = 0; k < n; k++) r.dh0[y.unit(b, k)] = through[(size_t)k];
    }
  return r;
}

/* type: of what products read and write; states and gates are float. */
static void run(const Layer &y, pd_type type) {
  const struct pd_lstm &l = y.l;
  int64_t all = l.batch * l.length * l.hidden, one = l.batch * l.hidden;
  std::vector<float> scaled = random_floats(4 * l.hidden * l.hidden);
  for (float &v : scaled) v *= 0.5f;
  Array x(type, random_floats(4 * all)), w(type, scaled), h0(type, random_floats(one));
  Array c0(PD_F32, random_floats(one)), h(type, filled(all, 99)), h_n(type, filled(one, 99));
  Array c_n(PD_F32, filled(one, 99)), c(PD_F32, filled(all, 99)), gates(PD_F32, filled(4 * all, 99));
  Integers lengths(y.lengths.empty() ? std::vector<int32_t>(1) : y.lengths);
  const int32_t *ends = y.lengths.empty() ? nullptr : lengths.at;
  Scratch scratch((int64_t)pd_lstm_scratch(&l));
  pd_in no = nullptr, start_h = y.starts ? h0.in() : no, start_c = y.starts ? c0.in() : no;
  States s = forward(y, doubles(x), doubles(w), doubles(h0), doubles(c0));
  pd_lstm_forward(&l, x.in(), w.in(), start_h, start_c, ends, h.out(), h_n.out(), c_n.out(), c.out(), gates.out(),
                  scratch.at());
  double close = type == PD_F32 ? 2e-5 : 2e-2;
  auto near = [&](const char *what, const Array &got, const Doubles &want) {
    compare(what, got.fetch(), want, Doubles(want.size(), close));
  };
  near("h of an LSTM", h, s.h);
  near("c of an LSTM", c, s.c);
  near("gates of an LSTM", gates, s.gates);
  near("the last h of an LSTM", h_n, s.h_n);
  near("the last c of an LSTM", c_n, s.c_n);

  bool given = random_below(2), wanted = random_below(2);
  Array dh(type, random_floats(all)), dh_n(type, random_floats(one)), dc_n(PD_F32, random_floats(one));
  Array d_gates(type, filled(4 * all, 99)), previous(type, filled(all, 99)), dh0(type, filled(one, 99));
  Array dc0(PD_F32, filled(one, 99));
  Scratch more((int64_t)pd_lstm_backward_scratch(&l));
  Doubles none((size_t)one);
  Gradients g = backward(y, doubles(w), s, doubles(c0), doubles(dh), given ? doubles(dh_n) : none,
                         given ? doubles(dc_n) : none);
  pd_lstm_backward(&l, w.in(), start_h, start_c, ends, h.in(), c.in(), gates.in(), dh.in(), given ? dh_n.in() : no,
                   given ? dc_n.in() : no, d_gates.out(), previous.out(), wanted ? dh0.out() : pd_out(nullptr),
                   wanted ? dc0.out() : pd_out(nullptr), more.at());
  close *= 4;
  near("the gradient of an LSTM's gates", d_gates, g.d_gates);
  near("h before the steps of an LSTM", previous, s.previous);
  if (!wanted) return;
  near("the gradient of an LSTM's first h", dh0, g.dh0);
  near("the gradient of an LSTM's first c", dc0, g.dc0);
}

/* Gates of one step without a state before: what a gate gives is as exact in its tail as in its middle. */
static void tails() {
  constexpr int UNITS = 37;
  struct pd_lstm l = {1, 1, UNITS, false};
  std::vector<float> inputs(4 * UNITS);
  for (size_t i = 0; i < inputs.size(); i++) inputs[i] = -85 + 170.0f / 37 * (float)(i % UNITS);
  Array x(PD_F32, inputs), w(PD_F32, filled(4 * UNITS * UNITS, 0)), gates(PD_F32, filled(4 * UNITS, 99));
  Array h(PD_F32, filled(UNITS, 99)), h_n(PD_F32, filled(UNITS, 99)), c_n(PD_F32, filled(UNITS, 99));
  Array c(PD_F32, filled(UNITS, 99));
  Scratch scratch((int64_t)pd_lstm_scratch(&l));
  pd_lstm_forward(&l, x.in(), w.in(), nullptr, nullptr, nullptr, h.out(), h_n.out(), c_n.out(), c.out(),
                  gates.out(), scratch.at());
  Doubles one(inputs.size(), 1);
  std::vector<float> ratios = gates.fetch();
  for (size_t i = 0; i < ratios.size(); i++)
    ratios[i] = (float)(ratios[i] / (i / UNITS == 2 ? tanh(inputs[i]) : sigmoid(inputs[i])));
  compare("gates of an LSTM over what they should be", ratios, one, Doubles(one.size(), 5e-7));
}

int main() {
  pd_cuda_check(cudaStreamCreateWithFlags(&pd_stream, cudaStreamNonBlocking), "make a stream");
  tails();
  for (int i = 0; i < 60; i++) {
    Layer y = {};
    y.l.batch = 1 + random_below(5), y.l.length = 1 + random_below(6), y.l.hidden = 1 + random_below(40);
    y.l.reverse = random_below(2);
    y.starts = random_below(2);
    y.lengths.resize(random_below(2) ? (size_t)y.l.batch : 0);
    for (int32_t &n : y.lengths) n = (int32_t)random_below(y.l.length + 1);
    run(y, random_type());
  }
  Layer wide = {.l = {2, 3, 300, false}, .starts = true, .lengths = {3, 1}};
  run(wide, PD_F32);
  Layer many = {.l = {65537, 2, 3, false},
                .starts = true,
                .lengths = {}}; /* more samples than a grid has along y */
  run(many, PD_F32);
  return 0;
}
