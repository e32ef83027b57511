#!/bin/sh
# Makes .deps/test (boto3 and aws-cli), .deps/s3fs, .deps/node (@aws-sdk/client-s3) and .deps/openwhisk (OpenWhisk's
# client for JavaScript), exactly as pinned, all at once;
# installs Debian's runc, slirp4netns and chromium.
# Does nothing for what is up to date. Fails only for boto3 and aws-cli: the tests of the others say that they are skipped.
set -u

root=$(cd "$(dirname "$0")/.." && pwd)
# Where .deps really lies: it may be a link to a folder that several checkouts share.
mkdir -p "$root/.deps"
deps=$(cd -P "$root/.deps" && pwd)
python=${PYTHON:-python3}

# venv FOLDER REQUIREMENTS: a virtual environment of them.
venv() {
    if cmp -s "$2" "$1/.requirements" && "$1/bin/python" --version >/dev/null 2>&1; then
        echo "install-test-tools: $1 is up to date"
        return
    fi
    rm -rf "$1"
    "$python" -m venv "$1" &&
        "$1/bin/python" -m pip install --quiet --disable-pip-version-check --no-input --requirement "$2" || {
        echo "install-test-tools: pip could not install $2; is a package index reachable?" >&2
        return 1
    }
    cp "$2" "$1/.requirements"
    echo "install-test-tools: $1: done"
}

# modules FOLDER NAME: the packages of tests/sdk/NAME.
modules() {
    lock="$root/tests/sdk/$2/package-lock.json"
    if cmp -s "$lock" "$1/.installed"; then
        echo "install-test-tools: $1 is up to date"
        return
    fi
    command -v npm >/dev/null 2>&1 || {
        echo "install-test-tools: there is no npm here, so $1 is left out"
        return
    }
    rm -rf "$1"
    mkdir -p "$1" && cp "$root/tests/sdk/$2/package.json" "$lock" "$1" &&
        (cd "$1" && npm ci --silent --ignore-scripts --no-audit --no-fund) || {
        echo "install-test-tools: npm could not install $lock; is a package registry reachable?" >&2
        return 1
    }
    cp "$lock" "$1/.installed"
    echo "install-test-tools: $1: done"
}

# package NAME: a program of Debian's: without it the tests that need it say that they are skipped.
package() {
    wanted=$1
    command -v "$wanted" >/dev/null 2>&1 && return
    fail() {
        echo "install-test-tools: $wanted is left out: $1" >&2
        exit 0
    }
    . "$root/scripts/apt.sh"
    apt_install "$wanted" && echo "install-test-tools: $wanted: done"
}

# For the engine of that name, and for functions with a way out to the network.
(package runc)
(package slirp4netns)
# For the page.
(package chromium)
venv "$deps/s3fs" "$root/tests/requirements-s3fs.txt" &
s3fs=$!
modules "$deps/node" node &
node=$!
modules "$deps/openwhisk" openwhisk &
openwhisk=$!
venv "$deps/test" "$root/tests/requirements.txt"
required=$?
wait $s3fs
wait $node
wait $openwhisk
exit $required
