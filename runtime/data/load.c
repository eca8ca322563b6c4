/* Loads a microbatch's inputs: samples from files in the run's order, augmented and normalised images, derived
 * inputs. Weights of counted positions are scaled by their number in the whole batch, so that a loss's mean over
 * all positions is the mean over counted ones; each rank that loads such weights counts the batch itself. */
#include "data/load.h"
#include "run/upward.h"

#include <stdlib.h>
#include <string.h>

struct pd_dataset *pd_training_data, *pd_evaluation_data;
int64_t pd_sample_base;

enum { BATCHES = 16 }; /* batches with a cached factor */
struct scale {
  int64_t batch;
  float factor;
}; /* batch: from 1; 0: none */

struct need {
  void *sample; /* sample of a derived input's source, or of each worker's augmented image; else NULL */
  struct scale scale[BATCHES], validation;
};

static struct {
  struct need *needs;          /* by input */
  struct pd_image_room *rooms; /* by worker */
  bool streams;                /* pd_training_data is worth reading ahead */
  double streaming;            /* seconds of loads from it */
} loading;

double pd_data_seconds(void) { return loading.streaming; }

int64_t pd_evaluations(void) {
  int64_t b = pd.stage->microbatch;
  return (pd_dataset_samples(pd_evaluation_data) + b - 1) / b;
}

int64_t pd_own_evaluations(void) { return (pd_evaluations() + pd_replicas() - 1 - pd.replica) / pd_replicas(); }

/* A sequence of samples, with the basis of its random choices. */
struct run {
  const struct pd_dataset *data;
  uint64_t seed;
  bool training; /* sample numbers are the run's, not the file's */
};

/* Validation makes the same random choices in every run. */
static struct run training(void) { return (struct run){pd_training_data, pd.seed, true}; }
static struct run validation(void) { return (struct run){pd_evaluation_data, 0, false}; }

static int workers(void) { return pd_load_workers() + pd_data_threads(); }

/* The input whose samples this input is computed from; itself, if there is none. */
static int source_of(int input) {
  const struct pd_input *in = &pd.stage->inputs[input];
  return !pd_is_derived(in) || pd_is_random(in) ? input : pd_derived_from(pd.stage->inputs, input);
}

static void load_raw(const struct run *run, int input, int64_t number, int worker, void *to);

/* ---- counted positions --------------------------------------------------------------------------- */

static void load_unscaled(const struct run *run, int input, int64_t number, void *to) {
  const struct pd_input *inputs = pd.stage->inputs;
  int32_t *source = loading.needs[input].sample;
  load_raw(run, pd_derived_from(inputs, input), number, 0, source);
  pd_derive(inputs, input, source, run->seed, number, to);
}

/* samples * n / N over samples [first, first + samples), with N counted positions; 0 for N = 0. */
static float factor_of(const struct run *run, int input, int64_t first, int64_t samples, float *to) {
  int64_t n = pd.stage->inputs[input].elements, counted = 0;
  for (int64_t s = first; s < first + samples; s++) {
    load_unscaled(run, input, s, to);
    for (int64_t i = 0; i < n; i++) counted += to[i] != 0;
  }
  return counted ? (float)((double)samples * (double)n / (double)counted) : 0;
}

/* The factor of sample `number`'s batch; uses `to` as scratch. */
static float scale_at(const struct run *run, int input, int64_t number, float *to) {
  int64_t batch = pd.stage->batch, t = run->training ? (number - pd_sample_base) / batch : 0;
  struct scale *s = run->training ? &loading.needs[input].scale[t % BATCHES] : &loading.needs[input].validation;
  if (s->batch == t + 1) return s->factor;
  int64_t first = run->training ? pd_sample_base + t * batch : 0;
  s->factor = factor_of(run, input, first, run->training ? batch : pd_dataset_samples(run->data), to);
  s->batch = t + 1;
  return s->factor;
}

/* ---- samples ------------------------------------------------------------------------------------- */

static bool is_augmented(const struct pd_input *in) {
  return pd_augments(&pd_options.augment) && pd_is_image(in) && !pd_is_random(in);
}

/* The sample of the files. */
static int64_t sample_of(const struct run *run, int64_t number) {
  return run->training ? pd_dataset_pick(run->data, run->seed, !pd_options.in_file_order, number) : number;
}

static bool read_sample(const struct run *run, int input, int64_t number, int worker, float *to, char *why) {
  const int64_t sample = sample_of(run, number);
  const struct pd_view view = {.resize = pd_options.resize,
                               .augment = run->training ? &pd_options.augment : NULL,
                               .seed = run->seed,
                               .number = number,
                               .skip_broken = pd_options.skip_broken};
  if (pd_dataset_images(run->data, input))
    return pd_dataset_image(run->data, input, sample, &view, &loading.rooms[worker], to, why);
  pd_dataset_read(run->data, input, sample, to);
  return true;
}

static bool try_file(const struct run *run, int input, int64_t number, int worker, void *to, char *why) {
  const struct pd_input *in = &pd.stage->inputs[input];
  bool changed = run->training && is_augmented(in);
  float *image = changed ? (float *)loading.needs[input].sample + worker * in->elements : NULL;
  if (!read_sample(run, input, number, worker, changed ? image : to, why)) return false;
  if (changed) pd_augment_image(&pd_options.augment, in, run->seed, number, image, to);
  if (in->origin == PD_IMAGE) pd_normalise(in, to);
  return true;
}

static void read_file(const struct run *run, int input, int64_t number, int worker, void *to) {
  char why[PD_WHY];
  if (!try_file(run, input, number, worker, to, why)) pd_fail("%s", why);
}

/* Loads tokens, including a negative token that is not counted. */
static void load_raw(const struct run *run, int input, int64_t number, int worker, void *to) {
  const struct pd_input *in = &pd.stage->inputs[input];
  if (!pd_is_derived(in)) {
    read_file(run, input, number, worker, to);
    return;
  }
  if (pd_is_random(in)) {
    pd_make_noise(in, run->seed, number, to);
    return;
  }
  float *weights = to, scale = pd_is_weight(in) ? scale_at(run, input, number, weights) : 1;
  load_unscaled(run, input, number, to);
  for (int64_t i = 0; pd_is_weight(in) && i < in->elements; i++) weights[i] *= scale;
}

/* Uncounted positions get token 0 for layers; their weight is 0. */
static void load_sample(const struct run *run, int input, int64_t number, int worker, void *to) {
  const struct pd_input *in = &pd.stage->inputs[input];
  int32_t *tokens = to;
  load_raw(run, input, number, worker, to);
  for (int64_t i = 0; in->token && i < in->elements; i++)
    if (tokens[i] < 0) tokens[i] = 0;
}

/* ---- calls of stage programs --------------------------------------------------------------------- */

static struct pd_dataset *open_files(char **paths, int n, const struct pd_input *inputs, bool training,
                                     char *why) {
  const struct pd_reading how = {.pad = pd_options.pad,
                                 .token_bytes = pd_options.token_bytes,
                                 .document_end = pd_options.documents.end,
                                 .joined = pd_options.documents.joined,
                                 .scan = pd.rank == 0,
                                 .shares = training};
  return pd_dataset_open(paths, n, inputs, pd.stage->n_inputs, &how, why);
}

static bool open_data(struct pd_dataset **to, char **paths, int n, char *why) {
  return !n || (*to = open_files(paths, n, pd.stage->inputs, to == &pd_training_data, why)) != NULL;
}

/* Asks the system for the samples of this input in microbatch k. */
static void ask(int input, int64_t k) {
  const struct run run = training();
  for (int64_t i = 0; i < pd.stage->microbatch; i++)
    pd_dataset_expect(run.data, input, sample_of(&run, pd_first_sample(k) + i));
}

/* Wishes for at least two microbatches and LEAST samples behind microbatch k. */
static void wish(int input, int64_t k) {
  enum { LEAST = 64 };
  const int from = source_of(input);
  const int64_t b = pd.stage->microbatch, ahead = 2 * b < LEAST ? (LEAST + b - 1) / b : 2;
  const int64_t last = pd.steps * pd_own_microbatches();
  if (!pd_is_random(&pd.stage->inputs[from])) pd_read_ahead(from, k + 1, k + ahead < last ? k + ahead : last);
}

/* Prepares to read a training's large files a few samples at a time. */
static bool open_training(char *why) {
  const struct pd_options *o = &pd_options;
  if (!open_data(&pd_training_data, o->data, o->n_data, why)) return false;
  if (o->in_file_order && pd_training_data && pd_dataset_is_mixed(pd_training_data))
    return pd_refuse(why, "--order file has no meaning for sources with shares. help: leave out the shares, or "
                          "--order file");
  loading.streams = pd_training_data && pd_dataset_streams(pd_training_data);
  if (loading.streams && !o->in_file_order) pd_dataset_scatter(pd_training_data);
  if (loading.streams) pd_read_ahead_start(pd.stage->n_inputs, ask);
  return true;
}

/* For --predict, targets that no output depends on need no files. False, with `why` unchanged, if there are no
 * such targets or the files do not fit either. */
static bool open_without_targets(char *why) {
  const struct pd_stage *s = pd.stage;
  char cause[PD_WHY];
  bool any = false;
  if (!pd_options.n_predict) return false;
  struct pd_input *inputs = pd_allocate(sizeof *inputs * (size_t)s->n_inputs);
  for (int i = 0; i < s->n_inputs; i++) {
    inputs[i] = s->inputs[i];
    if (inputs[i].predicts) continue;
    any |= inputs[i].target && !pd_is_derived(&inputs[i]);
    inputs[i].origin = PD_ABSENT;
  }
  pd_without_targets =
      any && (pd_evaluation_data = open_files(pd_options.data, pd_options.n_data, inputs, false, cause)) != NULL;
  if (pd_without_targets) *why = 0;
  return pd_without_targets;
}

/* Samples that pad the last microbatch are not counted in means, but would change statistics over a microbatch. */
static bool fills_microbatches(const char *path, char *why) {
  const struct pd_stage *s = pd.stage;
  const long long samples = pd_evaluation_data ? (long long)pd_dataset_samples(pd_evaluation_data) : 0;
  if (!s->statistics || samples % s->microbatch == 0) return true;
  return pd_refuse(
      why,
      "'%s' has %lld samples, which is not a multiple of the microbatch of %lld, but %s%s takes statistics over "
      "whole microbatches [PD0591]. help: use %lld samples, or build with a --microbatch that divides %lld",
      path, samples, (long long)s->microbatch, *s->statistics ? "layer " : "the model", s->statistics,
      samples - samples % s->microbatch, samples);
}

/* Checks options and classes of image files. */
static bool options_fit_data(char *why) {
  const struct pd_stage *s = pd.stage;
  const struct pd_options *o = &pd_options;
  const struct pd_images *trained = pd_training_data ? pd_dataset_folder(pd_training_data) : NULL;
  const struct pd_images *evaluated = pd_evaluation_data ? pd_dataset_folder(pd_evaluation_data) : NULL;
  const bool folders = trained || evaluated;
  for (int i = 0; i < s->n_inputs && o->resize; i++)
    if (!pd_is_random(&s->inputs[i]) && pd_is_image(&s->inputs[i]) && o->resize < s->inputs[i].dim[1])
      return pd_refuse(why, "--resize %lld is smaller than the height of '%s', %lld", (long long)o->resize,
                       s->inputs[i].name, (long long)s->inputs[i].dim[1]);
  if (!folders && (o->resize || o->skip_broken || o->data_threads >= 0))
    pd_warn("%s has no effect: --data has no image files", o->resize        ? "--resize"
                                                           : o->skip_broken ? "--skip-broken"
                                                                            : "--data-threads");
  if (trained && o->resize && o->augment.resized_crop > 0 && !evaluated)
    pd_warn("--resize has no effect on training with --augment resized_crop");
  return (!trained || !evaluated || pd_same_classes(trained, evaluated, why)) &&
         (!pd_training_data || !pd_evaluation_data ||
          pd_dataset_same_columns(pd_training_data, pd_evaluation_data, why)) &&
         (pd_only_evaluates() || !pd_augments(&o->augment) ||
          pd_augment_fits(&o->augment, s->inputs, s->n_inputs, trained || !pd_training_data, why));
}

bool pd_data_start(char *why) {
  const struct pd_stage *s = pd.stage;
  const struct pd_options *o = &pd_options;
  loading.needs = pd_allocate(sizeof *loading.needs * (size_t)s->n_inputs);
  loading.rooms = pd_allocate(sizeof *loading.rooms * (size_t)workers());
  for (int i = 0; i < s->n_inputs; i++) {
    int from = source_of(i);
    const size_t samples = from != i ? 1 : is_augmented(&s->inputs[i]) ? (size_t)workers() : 0;
    if (samples) loading.needs[i].sample = pd_allocate(sizeof(float) * samples * (size_t)s->inputs[from].elements);
  }
  if (pd_only_evaluates())
    return (open_data(&pd_evaluation_data, o->data, o->n_data, why) || open_without_targets(why)) &&
           (!o->n_data || fills_microbatches(o->data[0], why)) && options_fit_data(why);
  return (!pd.steps || open_training(why)) &&
         open_data(&pd_evaluation_data, o->validation, o->n_validation, why) &&
         (!o->n_validation || fills_microbatches(o->validation[0], why)) && options_fit_data(why);
}

int64_t pd_first_sample(int64_t k) { return pd_sample_base + (pd_number(k) - 1) * pd.stage->microbatch; }

bool pd_make_sample(int input, bool evaluation, int64_t k, int64_t i, int worker, float *to, char *why) {
  const struct run run = evaluation ? validation() : training();
  return try_file(&run, input, evaluation ? pd_evaluation_sample(k, i) : pd_first_sample(k) + i, worker, to, why);
}

struct training_samples {
  int input;
  int64_t first;
  const float *ready; /* of ahead.c; NULL: none */
};

static void load_training_sample(const void *of, int64_t i, int worker, void *to) {
  const struct training_samples *s = of;
  const struct run run = training();
  const size_t elements = (size_t)pd.stage->inputs[s->input].elements;
  if (s->ready)
    memcpy(to, s->ready + (size_t)i * elements, elements * sizeof(float));
  else if (pd_training_data)
    load_sample(&run, s->input, s->first + i, worker, to);
  else /* --emulate without data */
    memset(to, 0, elements * sizeof(float));
}

void pd_load(int input, int64_t k, void *to) {
  const bool images = pd_training_data && pd_dataset_images(pd_training_data, input);
  const bool ahead = loading.streams && !images;
  const double started = ahead || images ? pd_seconds() : 0;
  const struct training_samples s = {input, pd_first_sample(k),
                                     images ? pd_ahead(input, false, k, pd.steps * pd_own_microbatches()) : NULL};
  if (images) pd_trace_data(started);
  pd_load_samples(input, to, pd_is_image(&pd.stage->inputs[input]), load_training_sample, &s);
  if (images) pd_tell_broken();
  if (!ahead) return;
  pd_trace_data(started);
  wish(input, k);
  loading.streaming += pd_seconds() - started;
}

int64_t pd_first_bad_row(int input, int64_t k, bool evaluation) {
  const struct pd_input *in = &pd.stage->inputs[input];
  const struct run run = evaluation ? validation() : training();
  const struct pd_dataset *data = run.data;
  int64_t b = pd.stage->microbatch, samples = data ? pd_dataset_samples(data) : 0, bad = -1;
  if (!data || in->token || pd_is_derived(in) || pd_dataset_images(data, input)) return -1;
  float *x = pd_allocate(sizeof *x * (size_t)in->elements);
  for (int64_t i = 0; i < b && bad < 0; i++) {
    int64_t row = sample_of(&run, evaluation ? (pd_number(k) - 1) * b + i : pd_first_sample(k) + i);
    if (row >= samples) break;
    pd_dataset_read(data, input, row, x);
    if (pd_first_not_finite(x, in->elements) >= 0) bad = row;
  }
  free(x);
  return bad;
}

int64_t pd_evaluation_sample(int64_t v, int64_t i) {
  const int64_t first = (pd_number(v) - 1) * pd.stage->microbatch;
  return first + i < pd_dataset_samples(pd_evaluation_data) ? first + i : first;
}

const float *pd_evaluation_ahead(int input, int64_t v) {
  return pd_dataset_images(pd_evaluation_data, input) ? pd_ahead(input, true, v, pd_own_evaluations()) : NULL;
}

void pd_load_evaluation_sample(int input, int64_t sample, int worker, void *to) {
  const struct run run = validation();
  load_sample(&run, input, sample, worker, to);
}
