#!/bin/sh
# Installs ImageMagick's library, which the wand_ functions call, from the distribution's packages (Debian, Ubuntu).
# Idempotent: returns at once when it is there. Ends with one clear line and status 1 when it cannot.
set -u

# One name for each release: Debian 12, Ubuntu 24.04, Debian 13. The first that is on offer is taken.
packages="libmagickwand-6.q16-6 libmagickwand-6.q16-7t64 libmagickwand-7.q16-10"

installed() { PATH="$PATH:/sbin:/usr/sbin" ldconfig -p 2>/dev/null | grep -q 'libMagickWand-'; }

if installed; then
    echo "imagemagick: already installed"
    exit 0
fi

fail() {
    echo "imagemagick: cannot be installed: $1" >&2
    exit 1
}

command -v apt-get >/dev/null 2>&1 || fail "there is no apt-get here; install ImageMagick's MagickWand library"
[ "$(id -u)" = 0 ] || fail "root is needed for apt-get; run: sudo $0"

log=$(mktemp) || fail "no temporary file can be made"
trap 'rm -f "$log"' EXIT

install() {
    for package in $packages; do
        apt-cache show "$package" >/dev/null 2>&1 || continue
        DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -y -qq --no-install-recommends "$package" >"$log" 2>&1
        return
    done
    echo "E: none of these packages is on offer: $packages" >"$log"
    return 1
}
if ! install; then
    apt-get -o DPkg::Lock::Timeout=300 update -qq >>"$log" 2>&1
    install || fail "$(grep -E '^E: ' "$log" | head -n 1 | sed 's/^E: //')"
fi

installed || fail "the package was installed, but the linker does not find libMagickWand"
echo "imagemagick: installed"
