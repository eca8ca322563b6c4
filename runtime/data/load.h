/* The inputs of microbatches: sample files, their order, and their ranks. data.h has the file formats. Sizes are
 * samples, or elements of a sample. */
#ifndef PD_DATA_LOAD_H
#define PD_DATA_LOAD_H

#include "data/data.h"
#include "run/run.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- data.c ---------------------------------------------------------------------------------- */

struct pd_dataset;
/* Opens and checks the files for these inputs, each PATH or NAME=PATH; NULL after filling `why`. With `scan`,
 * checks all tokens of files of up to 1 GiB in total; larger files are checked as they are read. */
struct pd_dataset *pd_dataset_open(char **paths, int n, const struct pd_input *inputs, int n_inputs, int64_t pad,
                                   int token_bytes, bool scan, char *why);
const char *pd_data_path(const struct pd_input *inputs, int n,
                         const char *argument); /* PATH of PATH or NAME=PATH */
int64_t pd_dataset_samples(const struct pd_dataset *d);
/* Copies one sample of an input from the files, as int32 or float. A token out of range ends the launch. */
void pd_dataset_read(const struct pd_dataset *d, int input, int64_t sample, void *to);

/* ---- load.c ---------------------------------------------------------------------------------- */

/* NULL: none. Evaluation data is --validation or, without training, --data. */
extern struct pd_dataset *pd_training_data, *pd_evaluation_data;
bool pd_data_start(char *why);
/* One sample of an input, read or derived. */
void pd_load_evaluation_sample(int input, int64_t sample, int worker, void *to);
/* The first row of the input's file with a non-finite number in microbatch k of training or evaluation; -1:
 * none. */
int64_t pd_first_bad_row(int input, int64_t k, bool evaluation);

extern int64_t pd_sample_base;    /* first sample of this run minus the first sample of its first batch */
int64_t pd_evaluations(void);     /* microbatches of pd_evaluation_data over all replicas */
int64_t pd_own_evaluations(void); /* microbatches of pd_evaluation_data on this rank */

/* ---- sampler.c ------------------------------------------------------------------------------- */

/* Sample s of an endless sequence over n samples, with a new order in each epoch. */
int64_t pd_sample(uint64_t seed, int64_t n, int64_t s);

#ifdef __cplusplus
}
#endif

#endif
