#!/bin/sh
# Installs what boots and checks real kernels in virtual machines: QEMU, a static busybox, pqos, unpackers.
# Idempotent: returns at once when everything is there. Ends with one clear line and status 1 when it cannot.
set -u

packages="qemu-system-x86 busybox-static intel-cmt-cat lz4 zstd"
programs="qemu-system-x86_64 busybox pqos lz4 zstd setpriv"

missing=""
for program in $programs; do
    command -v "$program" >/dev/null 2>&1 || missing="$missing $program"
done
if [ -z "$missing" ]; then
    echo "vm: already installed"
    exit 0
fi

fail() {
    echo "vm: cannot be installed: $1" >&2
    exit 1
}

command -v apt-get >/dev/null 2>&1 || fail "there is no apt-get here (Debian's packages are needed: $packages)"
[ "$(id -u)" = 0 ] || fail "root is needed for apt-get; run: sudo apt-get install --no-install-recommends $packages"

log=$(mktemp) || fail "no temporary file can be made"
trap 'rm -f "$log"' EXIT

install() {
    # shellcheck disable=SC2086 # the list is meant to be split
    DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -y -qq --no-install-recommends $packages >"$log" 2>&1
}
if ! install; then
    apt-get -o DPkg::Lock::Timeout=300 update -qq >>"$log" 2>&1
    install || fail "$(grep -E '^E: ' "$log" | head -n 1 | sed 's/^E: //')"
fi

for program in $programs; do
    command -v "$program" >/dev/null 2>&1 || fail "$program is missing although its package was installed"
done
echo "vm: installed"
