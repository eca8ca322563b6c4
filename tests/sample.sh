# Sourced by tests of many runs. taken: whether the sample has the next of them; with EVERY=N it has each N-th, from the one that
# SEED and the day of the commit (PDC_DAY, tests/run) say; without, all.
skipped=$(((${SEED:-0} + ${PDC_DAY:-0}) % ${EVERY:-1}))
taken() {
  skipped=$((skipped + 1))
  [ $((skipped % ${EVERY:-1})) = 0 ]
}
