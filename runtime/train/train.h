/* A run from its start to its end: updates, evaluations, predictions, their log. Above all other folders but host/ and cuda/. */
#ifndef PD_TRAIN_H
#define PD_TRAIN_H

#include "run/run.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- train.c --------------------------------------------------------------------------------- */

void pd_train_start(void);
void pd_train_catch_up(void); /* waits for the figures of every update done and logs them */
/* The first non-finite tensor of microbatch k of a training or an evaluation, for people: of the model's inputs,
 * whichever stage reads them, then of what this rank has. */
const char *pd_first_non_finite(int64_t k, bool evaluation);
void pd_checkpoint_last(void); /* of a run that ends now, unless there is one of this update */

/* ---- evaluate.c ------------------------------------------------------------------------------- */

/* ---- predict.c -------------------------------------------------------------------------------- */

bool pd_predict_options(char *why);          /* which outputs --predict asks for; at start */
const char *pd_predict_path(int prediction); /* NULL: it is not asked for */
/* Collective: the files are made, once the samples are known; written, once all ranks are done. */
void pd_predict_start(void);
void pd_predict_finish(void);

/* ---- stop.c: --stop-when ------------------------------------------------------------------------ */

bool pd_stop_check(char *why); /* false after filling `why`: it is no rule */
/* Collective, after a validation: pd.steps becomes what is done, or begun, if the rule holds. */
void pd_stop_if_rule_holds(const double *mean);
bool pd_stopped_by_rule(void);

/* ---- outputs.c -------------------------------------------------------------------------------- */

/* Rank 0 tries and locks all that the run will write, and opens the log; false after filling `why`. */
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
/* Of each rank: the most memory it held, in bytes, and pd_device_counts'. */
struct pd_rank_end {
  int64_t peak_bytes, counts[PD_DEVICE_COUNTS];
};
void pd_log_finish(const struct pd_rank_end *of_rank, double seconds);

/* ---- tensorboard.c: event files of --tensorboard, by rank 0 ------------------------------------- */

/* A file of its own; what files from before hold from this step on, TensorBoard drops. */
void pd_tensorboard_start(int64_t first_step);
/* One figure of the next event, named prefix and name; and the event. */
void pd_tensorboard_scalar(const char *prefix, const char *name, double x);
void pd_tensorboard_write(int64_t step);
void pd_tensorboard_finish(void);

#ifdef __cplusplus
}
#endif

#endif
