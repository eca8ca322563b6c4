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

struct pd_reading {     /* how files are read */
  int64_t pad;          /* fills lines and windows of documents */
  int token_bytes;      /* of --token-type, for .bin files without a header; 1 also allows texts; 0: not given */
  int64_t document_end; /* the token that ends documents, plus 1; 0: the one that a file names */
  bool joined;          /* windows cross the ends of documents */
  bool scan;   /* check all tokens of files of up to 1 GiB in total; others are checked as they are read */
  bool shares; /* files may be sources with shares */
};
struct pd_view;
struct pd_image_room;

/* The files of one source. Functions are as those of pd_dataset. */
struct pd_files;
struct pd_files *pd_files_open(char **paths, int n, const struct pd_input *inputs, int n_inputs,
                               const struct pd_reading *how, char *why);
/* PATH of PATH or NAME=PATH. */
const char *pd_input_path(const struct pd_input *inputs, int n, const char *argument);
int64_t pd_files_samples(const struct pd_files *d);
size_t pd_files_bytes(const struct pd_files *d);
void pd_files_expect(const struct pd_files *d, int input, int64_t sample);
void pd_files_scatter(const struct pd_files *d);
void pd_files_read(const struct pd_files *d, int input, int64_t sample, void *to);
const struct pd_images *pd_files_images(const struct pd_files *d, int input);
const struct pd_images *pd_files_folder(const struct pd_files *d);
bool pd_files_renumber(struct pd_files *d, const char **names, int n, const char *path, char *why);
/* False if tables of both have names, and an input takes different columns. */
bool pd_files_same_columns(const struct pd_files *a, const struct pd_files *b, char *why);
bool pd_files_path(const struct pd_files *d, int64_t sample, char *to, size_t room);
bool pd_files_image(const struct pd_files *d, int input, int64_t sample, const struct pd_view *v,
                    struct pd_image_room *room, float *to, char *why);

/* ---- dataset.c ------------------------------------------------------------------------------- */

struct pd_dataset; /* one source, or several with shares */
/* Opens and checks the files for these inputs, each [SOURCE=SHARE:]PATH or [SOURCE=SHARE:]NAME=PATH; NULL after
 * filling `why`. */
struct pd_dataset *pd_dataset_open(char **paths, int n, const struct pd_input *inputs, int n_inputs,
                                   const struct pd_reading *how, char *why);
const char *pd_data_path(const struct pd_input *inputs, int n, const char *argument); /* PATH of an argument */
int64_t pd_dataset_samples(const struct pd_dataset *d);
/* Sample `number` of an endless sequence: every sample of a source comes once in each of its epochs, shuffled by the
 * seed or in the order of the files. */
int64_t pd_dataset_pick(const struct pd_dataset *d, uint64_t seed, bool shuffled, int64_t number);
bool pd_dataset_is_mixed(const struct pd_dataset *d); /* sources have shares */
/* The number of sources with shares, and one of them as NAME=SHARE, for free(); 0: there are none. */
int pd_dataset_sources(const struct pd_dataset *d);
char *pd_source_text(const struct pd_dataset *d, int source);
/* The sources with shares as a JSON array, for free(); NULL: there are none. */
char *pd_sources_text(const struct pd_dataset *d);
/* True if the files are large, so that samples are worth reading ahead. */
bool pd_dataset_streams(const struct pd_dataset *d);
/* Starts to read a sample of such files from the disk. */
void pd_dataset_expect(const struct pd_dataset *d, int input, int64_t sample);
/* Tells the system that samples of such files are read in random order. */
void pd_dataset_scatter(const struct pd_dataset *d);
/* Copies one sample of an input from the files, as int32 or float. A token out of range ends the launch. */
void pd_dataset_read(const struct pd_dataset *d, int input, int64_t sample, void *to);

/* The images of an input whose samples are image files; NULL: there are none. */
const struct pd_images *pd_dataset_images(const struct pd_dataset *d, int input);
const struct pd_images *pd_dataset_folder(const struct pd_dataset *d); /* of any input */
/* Numbers the classes of folders as in the `names` that the weights of `path` were trained with, if an input reads
 * labels. */
bool pd_dataset_renumber(struct pd_dataset *d, const char **names, int n, const char *path, char *why);
bool pd_dataset_same_columns(const struct pd_dataset *a, const struct pd_dataset *b, char *why);
/* Writes the path of a sample's image file; false: the samples are not image files. */
bool pd_dataset_path(const struct pd_dataset *d, int64_t sample, char *to, size_t room);
/* Decodes one sample of such an input. */
bool pd_dataset_image(const struct pd_dataset *d, int input, int64_t sample, const struct pd_view *v,
                      struct pd_image_room *room, float *to, char *why);

/* ---- read_image.c ---------------------------------------------------------------------------- */

struct pd_view {                    /* how an image becomes a sample */
  int64_t resize;                   /* pd_resized_height */
  const struct pd_augment *augment; /* NULL: no random frame */
  uint64_t seed;
  int64_t number; /* of the sample, for random choices */
  bool skip_broken;
};
struct pd_image_room { /* of one thread; zeroed at first */
  struct pd_pixels pixels;
  struct pd_resize_room resize;
};
bool pd_read_image(const struct pd_images *m, int64_t image, const struct pd_input *in, const struct pd_view *v,
                   struct pd_image_room *room, float *to, char *why);
/* Warns of images that were skipped since the last call, and returns the number of all that this rank skipped. */
int64_t pd_tell_broken(void);

/* ---- classes.c ------------------------------------------------------------------------------- */

/* Of the weights or else of the evaluation's folder; NULL: it has no name. */
const char *pd_class_name(int64_t number);
/* The names of a folder's classes as a JSON array, for free(); NULL: there are none. */
char *pd_classes_text(const struct pd_dataset *d);
/* Takes the names that a file of weights keeps ("": none). An evaluation numbers its classes by them; false if one is
 * unknown. A training warns if its folder has others. */
bool pd_classes_read(const char *text, const char *path, char *why);

/* ---- ahead.c --------------------------------------------------------------------------------- */

int pd_data_threads(void); /* 0: the training thread decodes */
/* The samples of microbatch k of an input of images, valid until the next call for the input, and queues the next
 * microbatches up to `last`. NULL: the caller decodes. */
const float *pd_ahead(int input, bool evaluation, int64_t k, int64_t last);
double pd_ahead_seconds(void); /* time in which the training thread waited for images */
void pd_ahead_finish(void);

/* ---- read_ahead.c ---------------------------------------------------------------------------- */

/* Starts the thread. It calls ask(input, k) to request the samples of microbatch k. */
void pd_read_ahead_start(int inputs, void (*ask)(int input, int64_t k));
/* Wishes for microbatches first to last of an input; those that were asked for are not asked for again. */
void pd_read_ahead(int input, int64_t first, int64_t last);
void pd_read_ahead_finish(void);

/* ---- load.c ---------------------------------------------------------------------------------- */

/* NULL: none. Evaluation data is --validation or, without training, --data. */
extern struct pd_dataset *pd_training_data, *pd_evaluation_data;
bool pd_data_start(char *why);
/* Decodes sample i of microbatch k of an input of images; for the threads of ahead.c. */
bool pd_make_sample(int input, bool evaluation, int64_t k, int64_t i, int worker, float *to, char *why);
/* Sample i of microbatch v of pd_evaluation_data; the microbatch's first sample pads the last microbatch. */
int64_t pd_evaluation_sample(int64_t v, int64_t i);
/* Samples of microbatch v of an input that ahead.c decoded; NULL: load them one by one. */
const float *pd_evaluation_ahead(int input, int64_t v);
/* One sample of an input, read or derived. */
void pd_load_evaluation_sample(int input, int64_t sample, int worker, void *to);
/* The first row of the input's file with a non-finite number in microbatch k of training or evaluation; -1:
 * none. */
int64_t pd_first_bad_row(int input, int64_t k, bool evaluation);

extern int64_t pd_sample_base;    /* first sample of this run minus the first sample of its first batch */
int64_t pd_evaluations(void);     /* microbatches of pd_evaluation_data over all replicas */
int64_t pd_own_evaluations(void); /* microbatches of pd_evaluation_data on this rank */
double pd_data_seconds(void);     /* time in which this rank loaded samples of large files */

/* ---- sampler.c ------------------------------------------------------------------------------- */

/* Sample s of an endless sequence over n samples, with a new order in each epoch. */
int64_t pd_sample(uint64_t seed, int64_t n, int64_t s);
/* The seed of a sequence of its own, by number. */
uint64_t pd_seed_of(uint64_t seed, uint64_t sequence);

#ifdef __cplusplus
}
#endif

#endif
