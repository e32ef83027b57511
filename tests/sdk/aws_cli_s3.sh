#!/usr/bin/env bash
# S3 as aws-cli with its default settings uses it.
# Needs AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and a server without the buckets that it makes.
# Prints one line a check, `ok <what>` or `FAILED <what>`; exits with 1 if one failed.
set -uo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

# check WHAT COMMAND...: the command succeeds.
check() {
    local what=$1
    shift
    if "$@" >"$work/said" 2>&1; then
        echo "ok $what"
    else
        echo "FAILED $what: $(tail -c 400 "$work/said" | tr '\n' ' ')"
        failed=1
    fi
}

# refused CODE COMMAND...: the command fails and names the code.
refused() {
    local code=$1
    shift
    ! "$@" >"$work/refusal" 2>&1 && grep -q "$code" "$work/refusal"
}

is() { [ "$1" = "$2" ] || { echo "expected '$2', found '$1'"; return 1; }; }

head -c 20971537 /dev/urandom >"$work/large"
printf 'hello' >"$work/small"
mkdir -p "$work/tree/sub folder"
for name in one "two +%" "sub folder/drei ü"; do printf '%s' "$name" >"$work/tree/$name"; done

check "mb" aws s3 mb s3://cli-checks
check "ls of buckets" bash -c "aws s3 ls | grep -q cli-checks"
check "cp up" aws s3 cp "$work/small" s3://cli-checks/small --no-progress
check "cp down" bash -c "aws s3 cp s3://cli-checks/small - | cmp - '$work/small'"
check "cp of 20 MiB up, in parts" aws s3 cp "$work/large" "s3://cli-checks/large file" --no-progress
check "cp of 20 MiB down" bash -c "aws s3 cp 's3://cli-checks/large file' '$work/back' --no-progress && cmp '$work/back' '$work/large'"
check "cp from standard input" bash -c "printf streamed | aws s3 cp - s3://cli-checks/streamed"
check "cp within the bucket" aws s3 cp s3://cli-checks/small s3://cli-checks/copy --no-progress
check "cp of 20 MiB within the bucket, in parts" aws s3 cp "s3://cli-checks/large file" s3://cli-checks/large-copy --no-progress
check "mv" aws s3 mv s3://cli-checks/copy s3://cli-checks/moved --no-progress
check "sync up" aws s3 sync "$work/tree" s3://cli-checks/tree --no-progress
again() { is "$(aws s3 sync "$work/tree" s3://cli-checks/tree --no-progress)" ""; }
check "sync of what is there already" again
check "sync down" bash -c "aws s3 sync s3://cli-checks/tree '$work/tree-back' --no-progress && diff -r '$work/tree' '$work/tree-back'"
check "ls --recursive" bash -c "aws s3 ls --recursive s3://cli-checks/tree | grep -q 'sub folder/drei ü'"
check "ls of a prefix" bash -c "aws s3 ls s3://cli-checks/tree/ | grep -q 'PRE sub folder/'"
# Version 1 of aws-cli presigns with version 2 of the signature in us-east-1 unless told otherwise; that is refused.
printf '[default]\ns3 =\n    signature_version = s3v4\n' >"$work/config"
presigned() { is "$(curl -sf "$(AWS_CONFIG_FILE=$work/config aws s3 presign s3://cli-checks/small)")" hello; }
check "presign" presigned

api() { aws s3api "$@"; }
head_object() { is "$(api head-object --bucket cli-checks --key small --query ContentLength)" 5; }
check "head-object" head_object
put_metadata() {
    api put-object --bucket cli-checks --key meta --body "$work/small" --metadata colour=green --content-type a/b &&
        is "$(api head-object --bucket cli-checks --key meta --query Metadata.colour --output text)" green
}
check "put-object with metadata" put_metadata
ranged() {
    api get-object --bucket cli-checks --key small --range bytes=1-2 "$work/range" && is "$(cat "$work/range")" el
}
check "get-object with a range" ranged
for algorithm in CRC32 SHA1 SHA256; do
    check "put-object with $algorithm" api put-object --bucket cli-checks --key sum --body "$work/small" --checksum-algorithm $algorithm
    check "get-object with $algorithm" api get-object --bucket cli-checks --key sum --checksum-mode ENABLED "$work/sum"
done
tags() {
    api put-object-tagging --bucket cli-checks --key small --tagging 'TagSet=[{Key=a,Value=1}]' &&
        is "$(api get-object-tagging --bucket cli-checks --key small --query 'TagSet[0].Value' --output text)" 1
}
check "put- and get-object-tagging" tags
listing() { is "$(api list-objects-v2 --bucket cli-checks --prefix tree/ --page-size 1 --query 'length(Contents)')" 3; }
check "list-objects-v2 in pages of one" listing
old_listing() { is "$(api list-objects --bucket cli-checks --prefix tree/ --page-size 1 --query 'length(Contents)')" 3; }
check "list-objects in pages of one" old_listing
check "get-object of what is not there" refused NoSuchKey aws s3api get-object --bucket cli-checks --key none "$work/none"
check "rb of a full bucket" refused BucketNotEmpty aws s3 rb s3://cli-checks
check "a wrong secret" env AWS_SECRET_ACCESS_KEY=wrong bash -c "! aws s3 ls 2>'$work/e' && grep -q SignatureDoesNotMatch '$work/e'"
check "rm --recursive" aws s3 rm --recursive s3://cli-checks
check "rb" aws s3 rb s3://cli-checks

exit $failed
