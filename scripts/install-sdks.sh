#!/usr/bin/env bash
# Builds what the tests of the larger SDKs need (Go, Java, Rust) into the user's cache folder: the first time it takes
# minutes. Does nothing for what is up to date. A missing toolchain is said and is no fault; a failed build is.
set -uo pipefail

. "$(dirname "$0")/../tests/sdk/built.sh"
failed=0

# build NAME FOLDER TOOL COMMAND...: the command fills "$partial", which takes the place of older builds.
build() {
    local name=$1 folder=$2 tool=$3
    shift 3
    if [ -d "$folder" ]; then
        echo "install-sdks: $name: up to date"
    elif ! command -v "$tool" >/dev/null 2>&1; then
        echo "install-sdks: $name: there is no $tool here; its tests will be skipped"
    else
        partial=$sdk_cache/partial.$$
        rm -rf "$partial"
        mkdir -p "$partial"
        if (cd "$sdk_scripts/$name" && "$@"); then
            rm -rf "$sdk_cache/$name"-????????????????
            mv "$partial" "$folder"
            echo "install-sdks: $name: built"
        else
            rm -rf "$partial"
            echo "install-sdks: $name: cannot be built; its tests will be skipped. Is its package registry reachable?" >&2
            failed=1
        fi
    fi
}

build_go() { GOTOOLCHAIN=local go build -mod=readonly -o "$partial/" ./aws-sdk-go-v2 ./minio-go; }
build_java() { mvn -q -B dependency:copy-dependencies -DoutputDirectory="$partial"; }
build_rust() {
    CARGO_TARGET_DIR="$sdk_cache/rust-target" cargo build --quiet --locked &&
        cp "$sdk_cache/rust-target/debug/aws-sdk-s3-checks" "$partial/"
}

build go "$(built_go)" go build_go
build java "$(built_java)" mvn build_java
build rust "$(built_rust)" cargo build_rust
exit $failed
