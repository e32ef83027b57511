#!/bin/sh
# Makes .deps/test: boto3 and aws-cli, exactly as pinned in tests/requirements.txt. Does nothing when it is up to date.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
venv="$root/.deps/test"
requirements="$root/tests/requirements.txt"
python=${NIGH_PYTHON:-python3}

if cmp -s "$requirements" "$venv/.requirements" && "$venv/bin/aws" --version >/dev/null 2>&1; then
    echo "install-test-tools: $venv is up to date"
    exit 0
fi
rm -rf "$venv"
"$python" -m venv "$venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-input --requirement "$requirements" || {
    echo "install-test-tools: pip could not install $requirements; is a package index reachable?" >&2
    exit 1
}
cp "$requirements" "$venv/.requirements"
echo "install-test-tools: done"
