/* What a microbatch's inputs are: files of samples, in what order they are read, on which rank. data.h has their formats, which know
 * no ranks. Sizes are samples, or elements of a sample. */
#ifndef PD_DATA_LOAD_H
#define PD_DATA_LOAD_H

#include "data/data.h"
#include "run/run.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- data.c ---------------------------------------------------------------------------------- */

struct pd_dataset;
/* Opens and checks the files for these inputs, PATH or NAME=PATH each; NULL after filling `why`. With `scan`
 * every token of files up to 1 GiB together is compared with its class count; larger ones are checked as they
 * are read. */
struct pd_dataset *pd_dataset_open(char **paths, int n, const struct pd_input *inputs, int n_inputs, int64_t pad,
                                   int token_bytes, bool scan, char *why);
const char *pd_data_path(const struct pd_input *inputs, int n, const char *argument); /* PATH of either */
int64_t pd_dataset_samples(const struct pd_dataset *d);
/* Copies what the files hold for one sample of an input: elements int32 or float. A token out of range ends the
 * launch. */
void pd_dataset_read(const struct pd_dataset *d, int input, int64_t sample, void *to);

/* ---- load.c ---------------------------------------------------------------------------------- */

/* NULL: none. Evaluated are --validation's samples, and where nothing is trained --data's. */
extern struct pd_dataset *pd_training_data, *pd_evaluation_data;
bool pd_data_start(char *why);
/* One sample of an input, read or derived. */
void pd_load_evaluation_sample(int input, int64_t sample, int worker, void *to);
/* The first row of the input's file that has a number which is not finite, of microbatch k's of a training or an
 * evaluation; -1: none. */
int64_t pd_first_bad_row(int input, int64_t k, bool evaluation);

extern int64_t pd_sample_base;    /* first sample of this run less that of its first batch */
int64_t pd_evaluations(void);     /* microbatches of pd_evaluation_data, of all replicas */
int64_t pd_own_evaluations(void); /* microbatches of pd_evaluation_data, this rank's */

/* ---- sampler.c ------------------------------------------------------------------------------- */

/* Sample number s of an endless run through n samples, each epoch in an order of its own. */
int64_t pd_sample(uint64_t seed, int64_t n, int64_t s);

#ifdef __cplusplus
}
#endif

#endif
