#include "shared/crc32.h"

uint32_t pd_crc32(uint32_t before, const char *at, size_t n) {
  uint32_t table[256], crc = ~before;
  for (uint32_t i = 0; i < 256; i++) {
    table[i] = i;
    for (int bit = 0; bit < 8; bit++) table[i] = table[i] >> 1 ^ (table[i] & 1 ? 0xedb88320u : 0);
  }
  for (size_t i = 0; i < n; i++) crc = crc >> 8 ^ table[(crc ^ (unsigned char)at[i]) & 0xff];
  return ~crc;
}
