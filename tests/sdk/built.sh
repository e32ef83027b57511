# Where `make peers` builds what the larger SDKs need, outside the clone. To be sourced.
# A folder is named after what it was built from, so that nothing stale is run.
sdk_scripts=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
sdk_cache=${XDG_CACHE_HOME:-$HOME/.cache}/nigh/sdks

# built NAME PATH...: the folder of what is built from these paths of tests/sdk/NAME.
built() {
    local name=$1 key
    shift
    key=$(cd "$sdk_scripts/$name" && find "$@" -type f | LC_ALL=C sort | xargs sha256sum | sha256sum | cut -c1-16)
    echo "$sdk_cache/$name-$key"
}

built_go() { built go go.mod go.sum checks aws-sdk-go-v2 minio-go; }
built_java() { built java pom.xml; }
built_rust() { built rust Cargo.toml Cargo.lock src; }
