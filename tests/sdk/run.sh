#!/usr/bin/env bash
# Runs one SDK's script against the S3 door that AWS_ENDPOINT_URL names, with the keys of the environment; OpenWhisk's
# client against NIGH_APIHOST, with NIGH_AUTH.
# Ends with 77, and the reason on standard error, if what the SDK needs is not on this machine.
set -euo pipefail

sdk=${1-}
. "$(dirname "$0")/built.sh"
cd "$sdk_scripts"
deps=$(cd ../.. && pwd)/.deps

# Default settings: nothing of the caller's configuration is read.
export AWS_CONFIG_FILE=/dev/null AWS_SHARED_CREDENTIALS_FILE=/dev/null AWS_EC2_METADATA_DISABLED=true AWS_PAGER=
unset AWS_PROFILE AWS_SESSION_TOKEN

# needs PATH INSTALLER: ends unless the path is there.
needs() {
    [ -e "$1" ] && return
    echo "$sdk is not installed as pinned here: $2 does it" >&2
    exit 77
}

case $sdk in
boto3)
    exec "${NIGH_TEST_PYTHON:-$deps/python/bin/python3}" boto3_s3.py
    ;;
aws-cli)
    needs "$(command -v aws || true)" "scripts/install-test-tools.sh, and .deps/test/bin on the path,"
    exec bash aws_cli_s3.sh
    ;;
s3fs)
    needs "$deps/s3fs/.requirements" scripts/install-test-tools.sh
    exec "$deps/s3fs/bin/python" s3fs_s3.py
    ;;
client-s3)
    needs "$deps/node/.installed" "scripts/install-test-tools.sh (with npm)"
    NODE_PATH="$deps/node/node_modules" exec node node/client_s3.cjs
    ;;
openwhisk)
    needs "$deps/openwhisk/.installed" "scripts/install-test-tools.sh (with npm)"
    # This client would ask a proxy for loopback, too.
    unset PROXY proxy HTTP_PROXY http_proxy HTTPS_PROXY https_proxy
    NODE_PATH="$deps/openwhisk/node_modules" exec node openwhisk/checks.cjs
    ;;
aws-sdk-go-v2 | minio-go)
    needs "$(built_go)/$sdk" "\`make peers\` (with go)"
    exec "$(built_go)/$sdk"
    ;;
java)
    needs "$(built_java)" "\`make peers\` (with java and mvn)"
    exec java -cp "$(built_java)/*" java/S3Checks.java
    ;;
rust)
    needs "$(built_rust)/aws-sdk-s3-checks" "\`make peers\`"
    exec "$(built_rust)/aws-sdk-s3-checks"
    ;;
*)
    echo "usage: run.sh boto3|aws-cli|s3fs|client-s3|openwhisk|aws-sdk-go-v2|minio-go|java|rust" >&2
    exit 2
    ;;
esac
