/* Private to compiler/plan: what is known of forms of pipelines that searches come by again and again. */
#ifndef PDC_FORMS_H
#define PDC_FORMS_H

#include "base/table.h"
#include "plan/search/candidate.h"

typedef struct FormTables {
  int head;           /* words of a key beside those of stages */
  Vec(Table) by_size; /* by stages; they grow in the arena in use */
} FormTables;
Table *form_table(FormTables *t, int n_stages);
/* Those words, and of each stage all that a form fixes, and a mark. */
int64_t *form_key(const FormTables *t, const int64_t *head, const Pipeline *form, const bool *marks);

#endif
