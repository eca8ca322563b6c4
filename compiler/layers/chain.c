/* Selects a chain of states, each containing the previous one: the pieces of a plan. */
#include "layers/layers.h"

/* The best chain that ends in a state. */
typedef struct Link {
  int states;   /* 0: no chain */
  double bytes; /* sum of its outputs, this state included */
  int before;   /* previous state; -1: first */
} Link;

static bool longer(int states, double bytes, const Link *than) {
  return states != than->states ? states > than->states : bytes < than->bytes;
}

/* Whether one chain can contain the state and all `with` states. */
static bool comparable(const States *s, int state, const int *with, int n) {
  for (int i = 0; i < n; i++)
    if (with[i] < state ? !state_contains(s, state, with[i]) : !state_contains(s, with[i], state))
      return false;
  return true;
}

/* Tries the longest chains first, so that few states are compared by layer. */
static Link best_link(const States *s, const Link *link, int state) {
  Link best = {1, (double)s->output[state], -1};
  for (int i = state - 1; i >= 0; i--)
    if (link[i].states && longer(link[i].states + 1, link[i].bytes + (double)s->output[state], &best) &&
        state_contains(s, state, i))
      best = (Link){link[i].states + 1, link[i].bytes + (double)s->output[state], i};
  return best;
}

Ints states_chain(const States *s, const int *with, int n) {
  Link *link = alloc((size_t)s->n * sizeof *link);
  Ints chain = {0};
  for (int i = 0; i < s->n; i++)
    if (comparable(s, i, with, n))
      link[i] = best_link(s, link, i);
  for (int i = s->n - 1; i >= 0; i = link[i].before)
    push(&chain, i);
  for (int i = 0; i < chain.n / 2; i++) {
    int swap = chain.at[i];
    chain.at[i] = chain.at[chain.n - 1 - i];
    chain.at[chain.n - 1 - i] = swap;
  }
  return chain;
}
