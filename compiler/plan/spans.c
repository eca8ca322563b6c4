/* Sums over pieces, so that the searches need not add up each stage that they look at. */
#include "plan/spans.h"

#include "base/base.h"

Spans spans_make(const Costs *c) {
  int n = c->n, side = n + 1;
  Spans s = {.c = c,
             .compute = alloc((size_t)side * sizeof *s.compute),
             .forward = alloc((size_t)side * sizeof *s.forward),
             .saved = alloc((size_t)side * sizeof *s.saved),
             .gradients = alloc((size_t)side * sizeof *s.gradients),
             .inputs = alloc((size_t)side * sizeof *s.inputs),
             .deferred = alloc((size_t)side * sizeof *s.deferred),
             .missed = alloc((size_t)side * sizeof *s.missed),
             .work = alloc((size_t)side * (size_t)side * sizeof *s.work)};
  for (int i = 0; i < n; i++) {
    s.compute[i + 1] = s.compute[i] + c->forward[i] + c->backward[i];
    s.forward[i + 1] = s.forward[i] + c->forward[i];
    s.saved[i + 1] = s.saved[i] + c->saved[i];
    s.gradients[i + 1] = s.gradients[i] + c->gradients[i];
    s.inputs[i + 1] = s.inputs[i] + c->inputs[i];
    s.deferred[i + 1] = s.deferred[i] + c->deferred[i];
    int64_t most = 0;
    for (int j = i; j < n; j++) {
      most = c->work[j] > most ? c->work[j] : most;
      s.work[i * side + j + 1] = most;
    }
  }
  return s;
}

double shared_seconds(const Costs *c, int replicas, double compute, double update, int64_t gradients) {
  double t = compute / replicas + update;
  double reduce = 2.0 * (replicas - 1) / replicas * (double)gradients * c->reduce;
  return !c->overlapped ? t + reduce : reduce > t ? reduce : t;
}

double span_passage(const Spans *s, int first, int end, bool recompute) {
  const Costs *c = s->c;
  double t = span_compute(s, first, end) + c->receive[first] + c->receive_gradient[end];
  return recompute ? t + s->forward[end] - s->forward[first] : t;
}

double span_seconds(const Spans *s, int replicas, int first, int end, bool recompute) {
  return shared_seconds(s->c, replicas, span_passage(s, first, end, recompute),
                        s->c->update[first * (s->c->n + 1) + end], s->gradients[end] - s->gradients[first]);
}

/* Replicas send gradients from buffers of their own, all but the part they reduce themselves. */
static int64_t gradient_bytes(const Copies *at, int64_t one_set) {
  return one_set * at->accumulators + at->exchanges * (one_set * (at->replicas - 1) / at->replicas);
}

static int64_t parameter_bytes(const Costs *c, const Copies *at, int first, int end) {
  int stage = first * (c->n + 1) + end;
  return c->weights[stage] * at->weights + (c->frozen ? c->frozen[stage] : 0) +
         (c->moments ? c->moments[stage] : 0) + (at->masters ? c->masters[stage] : 0);
}

static int64_t message_bytes(const Costs *c, const Copies *at, int first, int end) {
  return c->activations[first] * at->received + c->activations[end] * at->sent +
         (c->activation_gradients[first] + c->activation_gradients[end]) * at->gradients;
}

int64_t span_bytes(const Spans *s, const Copies *at, int first, int end, bool recompute) {
  int64_t b = at->extra + parameter_bytes(s->c, at, first, end) + message_bytes(s->c, at, first, end);
  b += gradient_bytes(at, s->gradients[end] - s->gradients[first]);
  b += (s->saved[end] - s->saved[first]) * (recompute ? 1 : at->saved);
  b += (s->inputs[end] - s->inputs[first]) * at->inputs;
  b += (s->deferred[end] - s->deferred[first]) * at->deferred;
  b += s->missed[end] - s->missed[first];
  return b + s->work[first * (s->c->n + 1) + end];
}

int64_t span_least_bytes(const Spans *s, const Copies *at, int first, int end) {
  const Costs *c = s->c;
  int64_t b = span_bytes(s, at, first, end, at->recompute_on), missed = s->missed[end] - s->missed[first];
  b -= missed > 0 ? missed : 0;
  return b - c->activations[end] * at->sent - c->activation_gradients[end] * at->gradients;
}

void spans_correct(Spans *s, int first, int end, int64_t missed) {
  int64_t share = missed / (end - first);
  for (int i = first + 1; i <= s->c->n; i++)
    s->missed[i] += i < end ? share * (i - first) : missed;
}

double stage_seconds(const Costs *c, int replicas, int first, int end, bool recompute) {
  double t = c->receive[first] + c->receive_gradient[end];
  int64_t gradients = 0;
  for (int i = first; i < end; i++) {
    t += c->forward[i] * (recompute ? 2 : 1) + c->backward[i];
    gradients += c->gradients[i];
  }
  return shared_seconds(c, replicas, t, c->update[first * (c->n + 1) + end], gradients);
}

int64_t stage_bytes(const Costs *c, const Copies *at, int first, int end, bool recompute) {
  int64_t b = at->extra + parameter_bytes(c, at, first, end) + message_bytes(c, at, first, end), work = 0;
  int64_t gradients = 0;
  for (int i = first; i < end; i++) {
    gradients += c->gradients[i];
    b += c->saved[i] * (recompute ? 1 : at->saved) + c->inputs[i] * at->inputs + c->deferred[i] * at->deferred;
    work = c->work[i] > work ? c->work[i] : work;
  }
  return b + gradient_bytes(at, gradients) + work;
}
