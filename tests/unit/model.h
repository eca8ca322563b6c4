/* A small handmade model, for tests of cuts, plans and profiles:
 *   x = wte(tokens)
 *   h.i: x = x + fc(tanh(x))      fc's weight is h.i.fc.weight; tanh is the instance h.i.act
 *   skip: x = x + the first block's input, which crosses all blocks between
 *   logits = x @ wte.weight.T     the tied parameter
 *   loss: sum(logits^2 - pick) */
#ifndef TEST_MODEL_H
#define TEST_MODEL_H

#include "autodiff/autodiff.h"
#include "cut/cut.h"
#include "ops/op.h"
#include "optimizers/optimizer.h"
#include "simplify/simplify.h"

enum { MODEL_LENGTH = 8, MODEL_WIDTH = 16, MODEL_CLASSES = 32 };

typedef struct ModelOptions {
  int blocks;
  bool skip; /* adds the first block's input after the last block */
  bool tied;
  int64_t batch;
  double clip;
} ModelOptions;

static inline int model_op(Graph *g, int scope, const Op *op, int a, int b) {
  int node = graph_node(g, op, (int[]){a, b}, b < 0 ? 1 : 2, NULL, scope, NO_SPAN);
  ensure(node >= 0);
  return graph_output(g, node, 0);
}

static inline int model_weight(Graph *g, Name name, int64_t rows, int64_t columns, int scope) {
  Shape s = {.rank = 2, .dim = {rows, columns}};
  int index = graph_param(g, name, s, scope, NO_SPAN);
  return g->params.at[index].value;
}

static inline Graph *model_build(ModelOptions o) {
  Graph *g = graph_new(intern("small"));
  g->train = (Train){
      .batch = o.batch, .pipeline = intern("2bw"), .clip_norm = o.clip, .span = NO_SPAN, .pipeline_span = NO_SPAN};
  optimizer_set(&g->train, &optimizer_adamw);
  int top = graph_scope(g, -1, intern(""), intern("small"), NO_SPAN);
  Shape row = {.batched = true, .rank = 1, .dim = {MODEL_LENGTH}};
  int input = graph_input(g, intern("tokens"), false, TYPE_TOKEN, MODEL_CLASSES, row, NO_SPAN);
  int tokens = g->inputs.at[input].value;
  int embedding = graph_scope(g, top, intern("wte"), intern("embedding"), NO_SPAN);
  int table = model_weight(g, intern("wte.weight"), MODEL_CLASSES, MODEL_WIDTH, embedding);
  int x = model_op(g, embedding, &op_gather, table, tokens), first = x;
  for (int i = 0; i < o.blocks; i++) {
    int block = graph_scope(g, top, internf("h.%d", i), intern("block"), NO_SPAN);
    int act = graph_scope(g, block, internf("h.%d.act", i), intern("tanh"), NO_SPAN);
    int y = model_op(g, act, &op_tanh, x, -1);
    int fc = graph_scope(g, block, internf("h.%d.fc", i), intern("linear"), NO_SPAN);
    int weight = model_weight(g, internf("h.%d.fc.weight", i), MODEL_WIDTH, MODEL_WIDTH, fc);
    y = model_op(g, fc, &op_matmul, y, weight);
    x = model_op(g, block, &op_add, x, y);
  }
  if (o.skip)
    x = model_op(g, graph_scope(g, top, intern("skip"), intern("skip"), NO_SPAN), &op_add, x, first);
  int head = o.tied ? table : model_weight(g, intern("head.weight"), MODEL_CLASSES, MODEL_WIDTH, top);
  x = model_op(g, top, &op_matmul, x, model_op(g, top, &op_transpose, head, -1));
  int loss = graph_scope(g, top, intern("mean_square"), intern("mean_square"), NO_SPAN);
  x = model_op(g, loss, &op_sum, model_op(g, loss, &op_square, x, -1), -1);
  graph_loss(g, x, NO_SPAN);
  autodiff(g);
  simplify(g);
  graph_verify(g);
  return g;
}

#endif
