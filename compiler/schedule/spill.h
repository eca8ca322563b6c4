/* Private to compiler/schedule: the blocks of an offloaded model, while machine.c runs its Program. Each block is
 * modelled by the contents of its resident and its host copy, so that a missing or late promotion is detected. */
#ifndef PDC_SPILL_H
#define PDC_SPILL_H

#include "schedule/program.h"

typedef struct Spill Spill;

Spill *spill_start(const Program *p);
/* Each executes a step (a DO_PROMOTE, a DO_DEMOTE, or work) and returns its error, or NULL. */
const char *spill_promote(Spill *s, const Step *step);
const char *spill_demote(Spill *s, const Step *step);
const char *spill_check(Spill *s, const Step *step);

#endif
