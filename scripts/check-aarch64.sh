#!/bin/sh
# Compiles the programs of a release for aarch64, where Rust's library for it is here or can be had, and Debian's cross
# compiler, which the C libraries among the crates need. Says what it left out, and why.
set -u
cd "$(dirname "$0")/.."

target=aarch64-unknown-linux-gnu
fail() {
    echo "check-aarch64: left out: $1" >&2
    exit 0
}

[ "$(uname -m)" != aarch64 ] || fail "this machine is one"
[ -d "$(rustc --print sysroot)/lib/rustlib/$target" ] || rustup target add "$target" >/dev/null 2>&1 ||
    fail "Rust's library for $target is missing and cannot be had here"
if ! command -v aarch64-linux-gnu-gcc >/dev/null 2>&1; then
    . scripts/apt.sh
    apt_install gcc-aarch64-linux-gnu libc6-dev-arm64-cross
fi
CC_aarch64_unknown_linux_gnu=aarch64-linux-gnu-gcc \
    cargo check --quiet --locked --target "$target" --bins --lib --features nigh/cloud-stores \
    -p nigh -p nigh-sandbox -p nigh-sizing -p nigh-lambda -p nigh-python && echo "check-aarch64: done"
