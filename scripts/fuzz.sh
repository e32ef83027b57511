#!/usr/bin/env bash
# Runs each fuzz target for NIGH_FUZZ_SECONDS (60) seconds.
set -euo pipefail
cd "$(dirname "$0")/.."

command -v cargo-fuzz >/dev/null || { echo "fuzz: cargo-fuzz is missing; run: cargo install cargo-fuzz" >&2; exit 1; }
for target in fuzz/fuzz_targets/*.rs; do
    name=$(basename "$target" .rs)
    echo "== $name"
    options=(-max_total_time="${NIGH_FUZZ_SECONDS:-60}")
    # A session is a sequence of steps: inputs are long from the beginning.
    if [ "$name" = fast_path_session ]; then options+=(-len_control=0); fi
    cargo +nightly fuzz run "$name" -- "${options[@]}"
done
