#!/bin/sh
# Installs rumur, which checks the models in crates/nigh-check/murphi, and the C compiler it needs, from Debian's
# packages. Idempotent: returns at once when they are there. Ends with one clear line and status 1 when it cannot.
set -u

fail() {
    echo "murphi: cannot be installed: $1" >&2
    exit 1
}

if command -v rumur >/dev/null 2>&1 && command -v cc >/dev/null 2>&1; then
    echo "murphi: already installed"
    exit 0
fi
. "$(dirname "$0")/apt.sh"
apt_install rumur gcc libc6-dev
command -v rumur >/dev/null 2>&1 || fail "rumur is missing although its package was installed"
echo "murphi: installed"
