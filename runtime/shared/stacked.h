/* Names of experts' matrices. A model has one parameter for the matrices of all experts, `..experts.NAME` of shape
 * [experts, out, in]. Files hold the same tensor, or one tensor for each expert, `..experts.N.PART` of shape [out, in], for
 * some parameters in two parts, each with half of the rows. */
#ifndef PD_STACKED_H
#define PD_STACKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { PD_STACKED_FORMS = 5 };

/* The number of tensors for each expert, if files hold a parameter of this name in this form; 0: not in this form. */
int pd_stacked_parts(const char *name, int form);
/* The form that transformers writes for a parameter of this name; -1: none. */
int pd_stacked_usual(const char *name);
/* The name of a part of an expert, malloc'd; NULL: out of memory. */
char *pd_stacked_name(const char *name, int form, int64_t expert, int part);
/* Takes part i of a parameter, in the order of its elements; false ends the form. */
typedef bool pd_take_stacked(void *to, int64_t i, const char *name);
/* Gives all parts of a form to `take`. Returns their number; 0: not all are taken; -1: out of memory. */
int64_t pd_stacked_take(const char *name, int64_t experts, int form, pd_take_stacked *take, void *to);
/* Finds the first form whose parts are all taken. Returns their number; 0: no form; -1: out of memory. */
int64_t pd_stacked_find(const char *name, int64_t experts, pd_take_stacked *take, void *to);
/* The shape of each of n parts of a parameter [experts, rows, columns]. */
void pd_stacked_shape(const int64_t *whole, int64_t n, int64_t part[2]);

#ifdef __cplusplus
}
#endif

#endif
