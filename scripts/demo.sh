#!/usr/bin/env bash
# Builds Nigh and, meanwhile, installs what the demonstration needs; then runs it.
#
# What is installed comes over the network, and the build keeps all processors busy: together they take as long as the build.
set -euo pipefail
cd "$(dirname "$0")/.."

log=$(mktemp)
trap 'rm -f "$log"' EXIT
install_all() {
    make --no-print-directory deps
    scripts/install-swift.sh || echo "demo: without Swift; times are shown, no improvement is claimed"
}

echo "demo: builds Nigh (some minutes the first time) and installs Python's packages, inputs and Swift beside it"
# In a process group of its own, so that Ctrl-C ends all of it.
set -m
install_all >"$log" 2>&1 &
installing=$!
set +m
trap 'kill -- -"$installing" 2>/dev/null || true; rm -f "$log"' EXIT
cargo build --release --workspace --bins --lib --no-default-features
if ! wait "$installing"; then
    cat "$log" >&2
    exit 1
fi
grep '^demo: ' "$log" || true
target/release/nigh experiment demo --html demo.html
