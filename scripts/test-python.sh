#!/usr/bin/env bash
# The Python side's own tests: the instrument, the runtimes of Node.js and of OpenWhisk's actions, what makes packages,
# Swift's middleware on a real Swift, the sample functions against a real S3 door, the admin API against its description,
# and the commands in the documentation.
#
# Swift's middleware is tested with the Python that Debian's Swift belongs to.
# The functions' and the admin API's tests need a node: one with a folder of its own is started for them, and stopped.
set -euo pipefail
cd "$(dirname "$0")/.."

python=.deps/python/bin/python
# All tests' own build has it already. One of libraries alone has other features and would build them all again.
if [ -z "${NIGH_TEST_BUILT:-}" ]; then
    cargo build --quiet --package nigh-python
fi
NIGH_NATIVE="$PWD/target/debug/libnigh_native.so" "$python" -m unittest discover -s runtimes/python
"$python" -m unittest discover -s runtimes/openwhisk
"$python" -m unittest discover -s runtimes/node
"$python" -m unittest discover -s packaging/tests -t packaging
"$python" -m unittest discover -s tests/packages -p tutorial_test.py
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=integrations/swift/src:integrations/swift/tests \
    /usr/bin/python3 -m unittest discover -s integrations/swift/tests
PYTHONDONTWRITEBYTECODE=1 "$python" -m unittest discover -s tests/docs
PYTHONDONTWRITEBYTECODE=1 "$python" tests/docs/run.py --programs target/debug

state=$(mktemp -d)
target/debug/nigh up --state "$state" --s3-listen 127.0.0.1:0 --lambda-listen 127.0.0.1:0 \
    --set events.retry_wait='50 ms' --python "$PWD/$python" >"$state/up.log" 2>&1 &
nigh=$!
trap 'kill "$nigh" 2>/dev/null || true; wait "$nigh" 2>/dev/null || true; rm -rf "$state"' EXIT
for _ in $(seq 300); do
    [ -s "$state/endpoints.json" ] && break
    kill -0 "$nigh" 2>/dev/null || { cat "$state/up.log"; exit 1; }
    sleep 0.1
done
NIGH_TEST_S3_ENDPOINT=$("$python" -c 'import json, sys; print(json.load(open(sys.argv[1]))["s3"])' "$state/endpoints.json")
key() { sed -n "s/^$1 = //p" "$state/credentials"; }
AWS_ACCESS_KEY_ID=$(key aws_access_key_id)
AWS_SECRET_ACCESS_KEY=$(key aws_secret_access_key)
export NIGH_TEST_S3_ENDPOINT AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_DEFAULT_REGION=us-east-1
"$python" -m unittest discover -s functions/tests -t functions
NIGH_TEST_ADMIN_KEY=$(NIGH_STATE="$state" target/debug/nigh --json keys create --role operate)
export NIGH_TEST_ADMIN_KEY
NIGH_TEST_STATE="$state" PYTHONDONTWRITEBYTECODE=1 .deps/test/bin/python -m unittest discover -s tests/openapi
