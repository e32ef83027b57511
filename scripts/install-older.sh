#!/usr/bin/env bash
# Builds the programs of an earlier commit of this project, into the user's cache folder, for `nigh experiment upgrade --old COMMIT`.
# Does nothing for a commit that is there. The clone is not changed.
set -euo pipefail

fail() {
    echo "older: $1" >&2
    exit 1
}

root=$(cd "$(dirname "$0")/.." && pwd)
[ -n "${1:-}" ] || fail "name the commit: make older COMMIT=..."
commit=$(git -C "$root" rev-parse --verify --quiet "$1^{commit}") || fail "$1 is no commit of this clone"
cache=${XDG_CACHE_HOME:-$HOME/.cache}/nigh/older
folder=$cache/$commit
if [ -x "$folder/nigh" ]; then
    echo "older: $commit is built already"
    exit 0
fi
work=$folder.partial
rm -rf "$work/source"
mkdir -p "$work/source" "$work/programs"
git -C "$root" archive "$commit" | tar -x -C "$work/source"
echo "older: building $commit, at the lowest priority"
(cd "$work/source" && CARGO_TARGET_DIR=$work/target nice -n 19 cargo build --release --bins)
find "$work/target/release" -maxdepth 1 -type f -executable -exec cp -t "$work/programs" {} +
rm -rf "$folder"
mv "$work/programs" "$folder"
rm -rf "$work"
echo "older: built; nigh experiment upgrade --old $commit"
