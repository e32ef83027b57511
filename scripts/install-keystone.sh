#!/bin/sh
# Installs OpenStack Keystone into .deps/keystone (pip, pinned), and the middleware by which Debian's Swift asks it
# (Debian's package). Idempotent: returns at once when everything is there. Ends with one clear line and status 1 when
# it cannot.
set -u
cd "$(dirname "$0")/.."

version=30.0.0
middleware=python3-keystonemiddleware
folder=.deps/keystone

fail() {
    echo "keystone: cannot be installed: $1" >&2
    exit 1
}

if ! /usr/bin/python3 -c 'import keystonemiddleware.auth_token' 2>/dev/null; then
    [ "$(id -u)" = 0 ] || fail "root is needed for apt-get; run: sudo apt-get install --no-install-recommends $middleware"
    apt_get="apt-get -o DPkg::Lock::Timeout=300"
    install="env DEBIAN_FRONTEND=noninteractive $apt_get install -y -qq --no-install-recommends $middleware"
    $install >/dev/null 2>&1 || { $apt_get update -qq >/dev/null 2>&1 && $install >/dev/null 2>&1; } ||
        fail "apt-get finds no $middleware"
fi
if [ "$(cat "$folder/.installed" 2>/dev/null)" = "$version" ]; then
    echo "keystone: already installed"
    exit 0
fi
rm -rf "$folder"
/usr/bin/python3 -m venv "$folder" || fail "no virtual environment can be made; install python3-venv"
"$folder/bin/pip" install --quiet --disable-pip-version-check "keystone==$version" ||
    fail "pip cannot install keystone $version"
echo "$version" >"$folder/.installed"
echo "keystone: installed"
