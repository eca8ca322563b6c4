/* Signatures of structures: parts of the model that differ only in where they stand in it, and in the names of
 * things, have equal ones. A rank that holds such a part takes the same bytes, so that one of them is laid out for
 * all. Private to compiler/stage. */
#ifndef PDC_SIGNATURE_H
#define PDC_SIGNATURE_H

#include "cut/cut.h"
#include "target/target.h"

/* 128 bits of a hash: signatures that are equal by chance are not expected in any number of models. */
typedef struct Signature {
  uint64_t word[2];
} Signature;

/* Pieces [first, end): one chunk of a rank. */
typedef struct PieceRange {
  int first, end;
} PieceRange;

typedef struct Signer Signer;

/* What signatures are made of and no part decides is found once, here. */
Signer *signer_new(const Graph *g, const Pieces *p);
/* Of all that fuse, lower and allocate read of the graph for a rank with these n chunks, in their order. The
 * precision decides which values are rounded. */
Signature sign_parts(Signer *s, const PieceRange *part, int n, Precision precision);
/* Whether two forward nodes are of regions with the same path. */
bool signer_same_region(const Signer *s, int a, int b);

#endif
