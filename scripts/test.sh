#!/usr/bin/env bash
# Runs all tests, prints minutes a part, and fails if a test failed, or skipped without a reason that holds here.
#
# may_skip.py writes which tests may skip on this machine; where any other would, it fails (tests/skipped.rs, skipped.py).
# judge_tests.py then judges the log.
set -uo pipefail
cd "$(dirname "$0")/.."

log=$(mktemp)
install_log=$(mktemp)
spent=$(mktemp)
may_skip=$(mktemp)
trap 'rm -f "$log" "$install_log" "$spent" "$may_skip"' EXIT
failed=()
times=()

# The processor seconds of all that this script has waited for so far, in $processor_s.
read_processor_s() {
    times >"$spent"
    processor_s=$(tail -n 1 "$spent" | awk -F '[ms ]+' '{ print $1 * 60 + $2 + $3 * 60 + $4 }')
}

# begin_part NAME; end_part NAME CODE: a part's heading; what it took, and whether it failed.
begin_part() {
    echo "== $1"
    read_processor_s
    part_begin=$SECONDS part_before=$processor_s
}

end_part() {
    if [ "$2" -ne 0 ]; then failed+=("$1"); fi
    read_processor_s
    times+=("$(awk -v wall=$((SECONDS - part_begin)) -v now="$processor_s" -v before="$part_before" -v name="$1" \
        'BEGIN { printf "%6.1f min (processors: %5.1f min)  %s", wall / 60, (now - before) / 60, name }')")
}

# part NAME COMMAND...
part() {
    begin_part "$1"
    "${@:2}" 2>&1 | tee -a "$log"
    end_part "$1" "${PIPESTATUS[0]}"
}

# What the tests use beside the crates. What cannot be installed is said; the tests that need it tell the rest.
install_tools() {
    # Programs of others are no concern of our lints.
    unset RUSTC_WORKSPACE_WRAPPER CLIPPY_ARGS
    make --no-print-directory deps && scripts/install-test-tools.sh || return
    scripts/install-swift.sh || echo "not installed: Swift"
    NIGH_PEERS="redis clients nats porcupine versitygw" scripts/install-peers.sh || echo "not installed: all of the peers"
    scripts/install-keystone.sh || echo "not installed: Keystone"
    scripts/install-cache-simulators.sh || echo "not installed: all of the cache simulators"
    scripts/install-murphi.sh || echo "not installed: rumur"
    make --no-print-directory vm || echo "not installed: what boots kernels"
    scripts/install-sdks.sh || echo "not installed: all of the larger SDKs"
}

# The programs that judge the tests, and the function by which Python tests skip.
test_judge() {
    python3 -m unittest discover -s scripts && python3 -m unittest discover -s tests
}

# A backtrace of each of the failures that tests provoke hides the few lines that say what went wrong.
export RUST_BACKTRACE=0
# Clippy's compiler stands in for rustc: the crates are compiled once for lints and tests together.
RUSTC_WORKSPACE_WRAPPER=$(rustup which clippy-driver 2>/dev/null || command -v clippy-driver)
export RUSTC_WORKSPACE_WRAPPER CLIPPY_ARGS="-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__"
# With what default builds leave out. Tests that need another program build it so, too: else Cargo would build what it
# depends on once more, with fewer features.
export NIGH_TEST_BUILT="--workspace --features nigh/cloud-stores"

install_tools >"$install_log" 2>&1 &
installing=$!
part "format" cargo fmt --check
part "judge of the tests" test_judge
# shellcheck disable=SC2086
part "lints and build" cargo build $NIGH_TEST_BUILT --bins --lib --tests
tools="Python, inputs, servers, kernels (after the build)"
begin_part "$tools"
# Not in a pipe: only the shell that began them can wait for them.
wait "$installing"
installed=$?
tee -a "$log" <"$install_log"
end_part "$tools" "$installed"
export PATH="$PWD/.deps/test/bin:$PATH" NIGH_TEST_PYTHON="$PWD/.deps/python/bin/python3"
# Looked at when all is installed that will be. Tests read it as other users, too.
part "tests that may skip here" scripts/may_skip.py "$may_skip"
chmod a+r "$may_skip"
export NIGH_TEST_MAY_SKIP="$may_skip"
# shellcheck disable=SC2086
part "rust tests" scripts/run_tests.py $NIGH_TEST_BUILT
# shellcheck disable=SC2086
part "examples in documentation" cargo test $NIGH_TEST_BUILT --doc
part "aarch64" scripts/check-aarch64.sh
# The tests explore its small worlds.
part "consistency contract, all worlds" target/debug/nigh check
part "consistency contract, second encoding" target/debug/nigh check --murphi
part "storms" target/debug/nigh experiment storm
part "python tests" scripts/test-python.sh
part "the page in a browser" scripts/test-page.sh

printf '%s\n' "${times[@]}"
echo "the longest test programs:"
sed -nE 's/^     Running (.*) \(([0-9]+) s\)$/\2 s\t\1/p' "$log" | sort -rn | head -8
# The first lines that each failed test printed, once more and last, so that nobody has to look for them above.
awk '
    NR == FNR { if (/^test .* \.\.\. FAILED$/) failed[$2]; next }
    /^---- / { shown = ($2 in failed) ? 40 : 0 }
    /^(failures|successes|test result):/ { shown = 0 }
    shown-- > 0
' "$log" "$log"
grep -E '^test .* \.\.\. FAILED$|^(FAIL|ERROR): ' "$log"
for reason in "${failed[@]}"; do echo "FAILED: $reason"; done
scripts/judge_tests.py "$log" "$may_skip" && [ "${#failed[@]}" -eq 0 ]
