/* Rank 0: the Hugging Face folder that --save DIR/ writes, by the folder of --init or of --save-config. Of a model
 * with adapters, files and folders hold the adapters alone. */
#ifndef PD_SAVE_FOLDER_H
#define PD_SAVE_FOLDER_H

#include "checkpoint/checkpoint.h"

/* At start: finds the folder with config.json, and checks that config.json describes the model's parameters
 * (`entries`, by order of declaration), that the folders are writable, and that the disk has room. False after
 * filling `why`. */
bool pd_folder_start(const struct pd_entry *entries, char *why);
enum pd_dtype pd_folder_dtype(void);
/* Replaces a parameter's malloc'd name by its name in files; frees names of parameters that are not saved. */
void pd_folder_rename(int order, char **name);
/* The number of tensors of equal shapes that the folder has of a parameter of experts, in the order of its elements, and
 * their names; 0: one tensor. */
int pd_folder_parts(int order, char *const **names);
/* Writes config.json, and copies generation_config.json and the tokenizer's files; or adapter_config.json. */
bool pd_folder_copy(struct pd_output_folder *to);
/* True if the path is absent, or a folder with only files that a save writes; else false after filling `why`. */
bool pd_folder_may_replace(const char *path, char *why);

struct pd_sources;
struct cJSON;

/* ---- config.c -------------------------------------------------------------------------------- */

/* False after filling `why`: config.json differs from the model. */
bool pd_config_fits(const struct cJSON *root, const char *path, char *why);

/* ---- save_adapter.c -------------------------------------------------------------------------- */

/* PEFT's name of an adapter's tensor, malloc'd: of the base weight's name in the files of --init. */
char *pd_adapter_name(const struct pd_sources *s, const char *name);
char *pd_adapter_text(const char *base); /* adapter_config.json, malloc'd; base NULL: unknown */

#endif
