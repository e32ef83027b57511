#!/bin/sh
# Puts the kernels pinned in crates/nigh-lab/src/instrument/vm/kernels.tsv into .deps/kernels/<name>/vmlinuz, each checked by the
# sha256 of its package. They come from the Debian mirror that apt uses here, through apt's own downloader, or else
# from Debian's public one. No package is installed. Ends with one clear line and status 1 when one cannot be had.
set -u

root=$(cd "$(dirname "$0")/.." && pwd)
list="$root/crates/nigh-lab/src/instrument/vm/kernels.tsv"
folder="$root/.deps/kernels"
downloader=/usr/lib/apt/apt-helper
public=http://deb.debian.org/debian/

fail() {
    echo "vm kernels: cannot be had: $1" >&2
    exit 1
}

is_there() {
    printf '%s  %s\n' "$2" "$folder/$1/vmlinuz" | sha256sum --check --status 2>/dev/null
}

mirrors() {
    apt-get indextargets --format '$(REPO_URI) $(ORIGIN) $(LABEL)' 2>/dev/null | awk '$2 == "Debian" && $3 == "Debian" { print $1 }' | sort -u
    echo "$public"
}

scratch=$(mktemp -d) || fail "no temporary folder can be made"
trap 'rm -rf "$scratch"' EXIT

fetch() {
    for mirror in $(mirrors); do
        "$downloader" download-file "${mirror%/}/$1" "$scratch/package" "SHA256:$2" >"$scratch/log" 2>&1 && return 0
    done
    return 1
}

lines=$(grep -v '^#' "$list") || fail "$list is empty"
fetched=0
while IFS="$(printf '\t')" read -r name package package_sha256 vmlinuz_sha256; do
    is_there "$name" "$vmlinuz_sha256" && continue
    [ -x "$downloader" ] || fail "there is no $downloader here; put Linux $name of $package into $folder/$name"
    rm -rf "$scratch/package" "$scratch/tree"
    fetch "$package" "$package_sha256" ||
        fail "Linux $name: $(grep -E '^(E|W): ' "$scratch/log" | head -n 1 | sed 's/^.: //')"
    mkdir -p "$scratch/tree" "$folder/$name"
    dpkg-deb --fsys-tarfile "$scratch/package" | tar -x -C "$scratch/tree" --wildcards '*/vmlinuz*' ||
        fail "Linux $name: its package holds no vmlinuz"
    find "$scratch/tree" -name 'vmlinuz*' -type f -exec mv {} "$folder/$name/vmlinuz" \;
    is_there "$name" "$vmlinuz_sha256" || fail "Linux $name: $folder/$name/vmlinuz is not the pinned one"
    fetched=$((fetched + 1))
done <<EOF
$lines
EOF
echo "vm kernels: in $folder ($fetched fetched)"
