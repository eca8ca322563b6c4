/* Private to compiler/schedule: the blocks of a model that spills, as machine.c runs its Program. Each is
 * modelled by what it holds, in memory and at home, so that a promotion that is missing or comes too late
 * shows. */
#ifndef PDC_SPILL_H
#define PDC_SPILL_H

#include "schedule/program.h"

typedef struct Spill Spill;

Spill *spill_start(const Program *p);
/* These do what the step says, a DO_PROMOTE, a DO_DEMOTE or work, and return what is wrong with it; NULL:
 * nothing. */
const char *spill_promote(Spill *s, const Step *step);
const char *spill_demote(Spill *s, const Step *step);
const char *spill_check(Spill *s, const Step *step);

#endif
