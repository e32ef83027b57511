#!/usr/bin/env bash
# Runs all tests, prints minutes a part, and fails if a test that must not skip was skipped or did not run.
#
# A test that cannot run here prints a line `SKIPPED: <test>: <reason>` and passes; the lines are counted.
set -uo pipefail
cd "$(dirname "$0")/.."

log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed=()
times=()

part() {
    local name=$1 begin=$SECONDS
    shift
    echo "== $name"
    "$@" 2>&1 | tee -a "$log"
    if [ "${PIPESTATUS[0]}" -ne 0 ]; then failed+=("$name"); fi
    times+=("$(printf '%6.1f min  %s' "$(awk "BEGIN { print ($SECONDS - $begin) / 60 }")" "$name")")
}

export PATH="$PWD/.deps/test/bin:$PATH" NIGH_TEST_PYTHON="$PWD/.deps/python/bin/python3"

part "python runtime, inputs, test tools" bash -c "make --no-print-directory deps && scripts/install-test-tools.sh"
part "swift" bash -c 'scripts/install-swift.sh || echo "SKIPPED: swift: its packages cannot be installed here"'
part "redis, clients, nats, porcupine" bash -c 'NIGH_PEERS="redis clients nats porcupine" scripts/install-peers.sh || echo "SKIPPED: peers: not all of them can be installed here"'
part "cache simulators" bash -c 'scripts/install-cache-simulators.sh || echo "SKIPPED: cache simulators: not all of them can be installed here"'
part "murphi" bash -c 'scripts/install-murphi.sh || echo "SKIPPED: murphi: rumur cannot be installed here"'
part "kernels and virtual machines" bash -c 'make --no-print-directory vm || echo "SKIPPED: vm: what boots kernels cannot be installed here"'
# With what default builds leave out. Tests that need another program build it so, too: else Cargo would build what it
# depends on once more, with fewer features.
export NIGH_TEST_BUILT="--workspace --features nigh/cloud-stores"
# shellcheck disable=SC2086
part "build" cargo build $NIGH_TEST_BUILT --bins --tests
# shellcheck disable=SC2086
part "rust tests" cargo test $NIGH_TEST_BUILT --no-fail-fast -- --show-output
# The tests explore its small worlds.
part "consistency contract, all worlds" target/debug/nigh check
part "consistency contract, second encoding" target/debug/nigh check --murphi
part "storms" target/debug/nigh experiment storm
part "python tests" scripts/test-python.sh

grep -E '^SKIPPED: ' "$log" | sort -u
skipped=$(grep -cE '^SKIPPED: ' "$log")
while read -r test; do
    case $test in '' | '#'*) continue ;; esac
    if grep -qF "SKIPPED: $test:" "$log" || ! grep -qE "^test (.*::)?$test \.\.\. ok" "$log"; then
        failed+=("$test must not skip and did not pass")
    fi
done <.ci/must-not-skip

printf '%s\n' "${times[@]}"
passed=$(grep -hoE '^test result: .* [0-9]+ passed' "$log" | awk '{ sum += $(NF - 1) } END { print sum + 0 }')
lost=$(grep -hoE '[0-9]+ failed;' "$log" | awk '{ sum += $1 } END { print sum + 0 }')
# What each failed test printed, once more and last, so that nobody has to look for it above.
awk '/^failures:$/ { shown = !shown; next } /^test result:/ { shown = 0 } shown' "$log"
grep -E '^test .* \.\.\. FAILED$|^(FAIL|ERROR): ' "$log"
for reason in "${failed[@]}"; do echo "FAILED: $reason"; done
echo "rust: $passed passed, $lost failed, $skipped skipped"
[ "${#failed[@]}" -eq 0 ]
