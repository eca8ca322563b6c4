/* Private to compiler/stage: signatures of structure. Parts of the model that differ only in position and names
 * have equal signatures. Equal parts need equal memory, so one layout serves all. */
#ifndef PDC_SIGNATURE_H
#define PDC_SIGNATURE_H

#include "cut/cut.h"
#include "target/target.h"

/* A 128-bit hash; accidental collisions are negligible. */
typedef struct Signature {
  uint64_t word[2];
} Signature;

/* Pieces [first, end): one chunk of a rank. */
typedef struct PieceRange {
  int first, end;
} PieceRange;

typedef struct Signer Signer;

/* Computes facts that do not depend on a part. */
Signer *signer_new(const Graph *g, const Pieces *p);
/* The signature of everything that fuse, lower and allocate read for a rank with these n chunks, in order. The
 * precision decides which values are rounded. */
Signature sign_parts(Signer *s, const PieceRange *part, int n, Precision precision);
/* Whether two forward nodes have the same region path. */
bool signer_same_region(const Signer *s, int a, int b);

#endif
