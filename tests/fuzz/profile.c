/* Input: a profile. It is read with its own signature, so that reading continues past the signature. */
#include "fuzz.h"

#include "profile/profile.h"

static int run(const uint8_t *data, size_t size) {
  static ProfileSignature expected;
  if (!expected.model)
    expected = (ProfileSignature){.model = intern("model"),
                                  .machine = intern("machine"),
                                  .threads = 1,
                                  .compiler = intern("clang"),
                                  .library = intern("oneDNN")};
  const Profile *profile = profile_read(fuzz_file(data, size), fuzz_pieces(), &expected, size % 2);
  diagnostics_flush();
  if (profile) profile_at(profile, 1);
  return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) { return fuzz_afresh(run, data, size); }
