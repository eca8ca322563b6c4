/* Linked into programs (--wrap=pd_checksum): memory that changes between the checksums of sender and receiver,
 * because with shared memory no library call is in between.
 *   PD_FLIP=NUMBER:RANK   before the NUMBER-th checksum (from 1) of 1000 bytes or more that the rank RANK makes, a
 *                         bit of
 *                         them changes; fewer are of what ranks tell each other at the start
 * The fault is printed on stderr: "fault: ...". */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* The linker's names of what was wrapped, and of what stands in its place. */
uint64_t checksum_of(const void *at, size_t n) __asm__("__real_pd_checksum");
uint64_t flipped(void *at, size_t n) __asm__("__wrap_pd_checksum");

uint64_t flipped(void *at, size_t n) {
  static int calls;
  const char *flip = getenv("PD_FLIP"), *rank = getenv("OMPI_COMM_WORLD_RANK");
  int number = 0, of = -1;
  if (flip && rank && sscanf(flip, "%d:%d", &number, &of) == 2 && of == atoi(rank) && n >= 1000 &&
      ++calls == number) {
    ((char *)at)[n / 2] ^= 0x10;
    fprintf(stderr, "fault: a bit of %zu bytes\n", n);
  }
  return checksum_of(at, n);
}
