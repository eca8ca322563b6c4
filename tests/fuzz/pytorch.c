/* Input: a file of torch.save. If its first byte is '(' or \x80, it is the pickle alone. Reads the tensors' elements. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "entries.h"
#include "shared/pickle.h"
#include "shared/pytorch.h"

static void read_pickle(const uint8_t *data, size_t size) {
  struct pd_pickle p;
  char why[PD_WHY] = "";
  bool good = pd_pickle_read(&p, data, size, why);
  if (!good && !*why) abort();
  if (good && !p.root) abort();
  pd_pickle_close(&p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  struct pd_safetensors s;
  char why[PD_WHY] = "";
  if (size && (*data == '(' || *data == 0x80)) read_pickle(data, size);
  if (!pd_pytorch_parse(data, size, &s, why)) {
    if (!*why) abort();
    return 0;
  }
  read_entries(&s, data, size);
  return 0;
}
