#!/bin/sh
# Installs what the simulated cache is compared with: valgrind (cachegrind, lackey) by apt, and pycachesim in .deps/cachesim.
# The tests run them and never link them. Does nothing for what is there.
set -eu

version=0.3.1
root=$(cd "$(dirname "$0")/.." && pwd)
# Where .deps really lies: it may be a link to a folder that several checkouts share.
mkdir -p "$root/.deps"
venv="$(cd -P "$root/.deps" && pwd)/cachesim"
python=${PYTHON:-python3}

fail() {
    echo "install-cache-simulators: $1" >&2
    exit 1
}

if ! command -v valgrind >/dev/null 2>&1; then
    command -v apt-get >/dev/null 2>&1 || fail "there is no apt-get here; install valgrind"
    [ "$(id -u)" = 0 ] || fail "root is needed for apt-get; run: sudo apt-get install --no-install-recommends valgrind"
    install="apt-get -o DPkg::Lock::Timeout=300 install -y -qq --no-install-recommends valgrind"
    $install >/dev/null 2>&1 || { apt-get -o DPkg::Lock::Timeout=300 update -qq && $install >/dev/null; } ||
        fail "apt-get could not install valgrind"
fi

if ! "$venv/bin/python" -c "import cachesim; assert cachesim.__version__ == '$version'" 2>/dev/null; then
    rm -rf "$venv"
    "$python" -m venv "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-input "pycachesim==$version" || {
        rm -rf "$venv"
        fail "pip could not install pycachesim $version; it needs a package index, a C compiler and Python's headers"
    }
fi
echo "install-cache-simulators: valgrind and $venv are there"
