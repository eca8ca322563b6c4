/* A run from start to end: updates, evaluations, predictions and their log. Above all folders except host/ and
 * cuda/. */
#ifndef PD_TRAIN_H
#define PD_TRAIN_H

#include "run/run.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- train.c --------------------------------------------------------------------------------- */

void pd_train_start(void);
void pd_train_catch_up(void); /* waits for the figures of all updates and logs them */
/* Describes the first non-finite tensor of microbatch k of training or evaluation: among the model's inputs, of
 * any stage, then among this rank's tensors. */
const char *pd_first_non_finite(int64_t k, bool evaluation);
void pd_checkpoint_last(void); /* the final checkpoint, unless this update has one */

/* ---- evaluate.c ------------------------------------------------------------------------------- */

/* ---- predict.c -------------------------------------------------------------------------------- */

bool pd_predict_options(char *why);          /* parses --predict, at start */
const char *pd_predict_path(int prediction); /* NULL: not requested */
/* Collective: creates the files, once the number of samples is known; completes them, once all ranks are done. */
void pd_predict_start(void);
void pd_predict_finish(void);

/* ---- stop.c: --stop-when ------------------------------------------------------------------------ */

bool pd_stop_check(char *why); /* false after filling `why`: not a valid rule */
/* Collective, after a validation: if the rule holds, lowers pd.steps to the updates that are done or begun. */
void pd_stop_if_rule_holds(const double *mean);
bool pd_stopped_by_rule(void);

/* ---- outputs.c -------------------------------------------------------------------------------- */

/* Rank 0 checks and locks all output files and opens the log; false after filling `why`. */
bool pd_outputs_check(char *why);

/* ---- log.c ----------------------------------------------------------------------------------- */

bool pd_log_open(char *why); /* rank 0; existing contents stay until pd_log_start */
void pd_log_start(double peak);
/* mean: of each figure, over update t's batch or the validation's samples */
void pd_log_update(int64_t t, const double *mean, double norm, double lr, double seconds);
void pd_log_evaluation(const double *mean, int64_t samples, double seconds);
void pd_log_prediction(const struct pd_prediction *p, int64_t samples, const char *path);
void pd_log_validation(int64_t t, const double *mean, int64_t samples, double seconds);
double pd_model_loss(const double *mean); /* the losses' sum */
double pd_metric_value(int figure, const double *mean);
/* Of each rank: peak memory in bytes, the counts of pd_device_counts, skipped images, and seconds of waiting for
 * images. */
struct pd_rank_end {
  int64_t peak_bytes, counts[PD_DEVICE_COUNTS], broken_images;
  double image_seconds, data_seconds;
};
void pd_log_finish(const struct pd_rank_end *of_rank, double seconds);

/* ---- tensorboard.c: event files of --tensorboard, by rank 0 ------------------------------------- */

/* Starts a new event file; TensorBoard drops events of earlier files from this step. */
void pd_tensorboard_start(int64_t first_step);
/* Adds a figure, named prefix + name, to the next event; pd_tensorboard_write writes the event. */
void pd_tensorboard_scalar(const char *prefix, const char *name, double x);
void pd_tensorboard_write(int64_t step);
void pd_tensorboard_finish(void);

#ifdef __cplusplus
}
#endif

#endif
