#!/bin/sh
# Makes .deps/test (boto3 and aws-cli), .deps/s3fs, .deps/node (@aws-sdk/client-s3), .deps/openwhisk (OpenWhisk's
# client for JavaScript) and .deps/promlint (Prometheus' linter), exactly as pinned, all at once;
# installs Debian's runc, slirp4netns, chromium, rclone and s3cmd, and takes promtool out of Debian's prometheus.
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

# promlint: Prometheus' linter of metrics, from its sources in tests/promlint.
promlint() {
    sources="$root/tests/promlint"
    built="$deps/promlint.sources"
    if [ -x "$deps/promlint" ] && cat "$sources/go.mod" "$sources/go.sum" "$sources/main.go" | cmp -s - "$built"; then
        echo "install-test-tools: $deps/promlint is up to date"
        return
    fi
    command -v go >/dev/null 2>&1 || {
        echo "install-test-tools: there is no go here, so promlint is left out"
        return
    }
    (cd "$sources" && GOTOOLCHAIN=local nice -n 19 go build -mod=readonly -o "$deps/promlint" .) || {
        echo "install-test-tools: promlint cannot be built; is Go's module proxy reachable, and go new enough?" >&2
        return 1
    }
    cat "$sources/go.mod" "$sources/go.sum" "$sources/main.go" >"$built"
    echo "install-test-tools: $deps/promlint: done"
}

# promtool: Prometheus' tester of alert rules, alone out of Debian's package. Needs no root, and installs no server.
install_promtool() {
    if command -v promtool >/dev/null 2>&1 || [ -x "$deps/promtool" ]; then return; fi
    folder=$(mktemp -d) || return
    (cd "$folder" && { apt-get download -qq prometheus || { apt-get update -qq && apt-get download -qq prometheus; }; }) \
        >"$folder/log" 2>&1 &&
        dpkg-deb --fsys-tarfile "$folder"/prometheus_*.deb | tar -xf - -C "$folder" ./usr/bin/promtool &&
        mv "$folder/usr/bin/promtool" "$deps/promtool" && echo "install-test-tools: $deps/promtool: done" ||
        echo "install-test-tools: promtool is left out: Debian's package prometheus cannot be had" >&2
    rm -rf "$folder"
}

# For the engine of that name, and for functions with a way out to the network.
(package runc)
(package slirp4netns)
# For the page.
(package chromium)
# They compare entity tags with MD5 sums.
(package rclone)
(package s3cmd)
venv "$deps/s3fs" "$root/tests/requirements-s3fs.txt" &
s3fs=$!
modules "$deps/node" node &
node=$!
modules "$deps/openwhisk" openwhisk &
openwhisk=$!
promlint &
promlint=$!
install_promtool &
promtool=$!
venv "$deps/test" "$root/tests/requirements.txt"
required=$?
wait $s3fs
wait $node
wait $openwhisk
wait $promlint
wait $promtool
exit $required
