#!/usr/bin/env bash
# S3 as aws-cli with its default settings uses it.
# Needs AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and a server without the buckets that it makes.
# Prints one line a check, `ok <what>` or `FAILED <what>`; exits with 1 if one failed. What stands before a colon are
# operations of README.md.
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

check "buckets: mb" aws s3 mb s3://cli-checks
head_bucket() { aws s3api head-bucket --bucket cli-checks && aws s3 ls | grep -q cli-checks; }
check "buckets: head-bucket, ls" head_bucket
check "objects: cp up" aws s3 cp "$work/small" s3://cli-checks/small --no-progress
check "objects: cp down" bash -c "aws s3 cp s3://cli-checks/small - | cmp - '$work/small'"
check "multipart: cp of 20 MiB up" aws s3 cp "$work/large" "s3://cli-checks/large file" --no-progress
check "cp of 20 MiB down" bash -c "aws s3 cp 's3://cli-checks/large file' '$work/back' --no-progress && cmp '$work/back' '$work/large'"
check "cp from standard input" bash -c "printf streamed | aws s3 cp - s3://cli-checks/streamed"
check "copy: cp within the bucket" aws s3 cp s3://cli-checks/small s3://cli-checks/copy --no-progress
check "cp of 20 MiB within the bucket, in parts" aws s3 cp "s3://cli-checks/large file" s3://cli-checks/large-copy --no-progress
check "mv" aws s3 mv s3://cli-checks/copy s3://cli-checks/moved --no-progress
check "sync up" aws s3 sync "$work/tree" s3://cli-checks/tree --no-progress
again() { is "$(aws s3 sync "$work/tree" s3://cli-checks/tree --no-progress)" ""; }
check "sync of what is there already" again
check "sync down" bash -c "aws s3 sync s3://cli-checks/tree '$work/tree-back' --no-progress && diff -r '$work/tree' '$work/tree-back'"
check "ls --recursive" bash -c "aws s3 ls --recursive s3://cli-checks/tree | grep -q 'sub folder/drei ü'"
check "listing: ls of a prefix" bash -c "aws s3 ls s3://cli-checks/tree/ | grep -q 'PRE sub folder/'"
# Version 1 of aws-cli presigns with version 2 of the signature in us-east-1 unless told otherwise; that is refused.
printf '[default]\ns3 =\n    signature_version = s3v4\n' >"$work/config"
presigned() { is "$(curl -sf "$(AWS_CONFIG_FILE=$work/config aws s3 presign s3://cli-checks/small)")" hello; }
check "presigned-get: presign" presigned

api() { aws s3api "$@"; }
head_object() { is "$(api head-object --bucket cli-checks --key small --query ContentLength)" 5; }
check "objects: head-object" head_object
put_metadata() {
    api put-object --bucket cli-checks --key meta --body "$work/small" --metadata colour=green --content-type a/b &&
        is "$(api head-object --bucket cli-checks --key meta --query Metadata.colour --output text)" green
}
check "metadata: put-object with metadata" put_metadata
ranged() {
    api get-object --bucket cli-checks --key small --range bytes=1-2 "$work/range" && is "$(cat "$work/range")" el
}
check "range: get-object with a range" ranged
for algorithm in CRC32 SHA1 SHA256; do
    check "checksums: put-object with $algorithm" api put-object --bucket cli-checks --key sum --body "$work/small" --checksum-algorithm $algorithm
    check "checksums: get-object with $algorithm" api get-object --bucket cli-checks --key sum --checksum-mode ENABLED "$work/sum"
done
tags() {
    api put-object-tagging --bucket cli-checks --key small --tagging 'TagSet=[{Key=a,Value=1}]' &&
        is "$(api get-object-tagging --bucket cli-checks --key small --query 'TagSet[0].Value' --output text)" 1 &&
        api delete-object-tagging --bucket cli-checks --key small &&
        is "$(api get-object-tagging --bucket cli-checks --key small --query 'length(TagSet)')" 0
}
check "tagging: put-, get- and delete-object-tagging" tags
listing() { is "$(api list-objects-v2 --bucket cli-checks --prefix tree/ --page-size 1 --query 'length(Contents)')" 3; }
check "list-objects-v2 in pages of one" listing
old_listing() { is "$(api list-objects --bucket cli-checks --prefix tree/ --page-size 1 --query 'length(Contents)')" 3; }
check "list-objects in pages of one" old_listing

read_conditions() {
    local etag
    etag=$(api head-object --bucket cli-checks --key small --query ETag --output text) &&
        api get-object --bucket cli-checks --key small --if-match "$etag" "$work/matched" &&
        refused 304 aws s3api get-object --bucket cli-checks --key small --if-none-match "$etag" "$work/none" &&
        refused PreconditionFailed aws s3api get-object --bucket cli-checks --key small --if-match '"other"' "$work/none"
}
check "read-conditions: get-object with if-match, if-none-match" read_conditions
write_conditions() {
    local once=(aws s3api put-object --bucket cli-checks --key once --if-none-match '*')
    "${once[@]}" --body "$work/small" && refused PreconditionFailed "${once[@]}" --body "$work/tree/one" &&
        is "$(aws s3 cp s3://cli-checks/once -)" hello
}
check "write-conditions: put-object with if-none-match" write_conditions
checksum() {
    is "$(api put-object --bucket cli-checks --key sum --body "$work/small" --query ChecksumCRC32 --output text)" NhCmhg== &&
        refused BadDigest aws s3api put-object --bucket cli-checks --key sum --body "$work/small" --checksum-crc32 AAAAAA==
}
check "checksums: the default one, a wrong one" checksum
odd_keys() {
    local key
    : >"$work/odd-keys"
    for key in "a b" "grün/日本/😀" "a//b" "/leading" "a+b" "100%" "a%20b"; do
        printf '%s' "$key" >"$work/odd" && api put-object --bucket cli-checks --key "$key" --body "$work/odd" &&
            api get-object --bucket cli-checks --key "$key" "$work/odd-back" && cmp "$work/odd" "$work/odd-back" || return 1
        printf '%s\n' "$key" >>"$work/odd-keys"
    done
    api list-objects-v2 --bucket cli-checks --query 'Contents[].[Key]' --output text >"$work/listed" &&
        is "$(grep -cxFf "$work/odd-keys" "$work/listed")" 7
}
check "odd-keys: put, get and list" odd_keys
two_parts() {
    head -c 5242880 "$work/large" >"$work/first"
    local upload first second
    upload=$(api create-multipart-upload --bucket cli-checks --key parts --query UploadId --output text) &&
        first=$(api upload-part --bucket cli-checks --key parts --upload-id "$upload" --part-number 1 --body "$work/first" --query ETag) &&
        second=$(api upload-part --bucket cli-checks --key parts --upload-id "$upload" --part-number 2 --body "$work/small" --query ETag) &&
        api complete-multipart-upload --bucket cli-checks --key parts --upload-id "$upload" --query ETag --multipart-upload \
            "{\"Parts\":[{\"PartNumber\":1,\"ETag\":$first},{\"PartNumber\":2,\"ETag\":$second}]}" | grep -q -- '-2\\"' &&
        aws s3 cp s3://cli-checks/parts - | cmp - <(cat "$work/first" "$work/small")
}
check "multipart: two parts by hand" two_parts
aborted() {
    local upload
    upload=$(api create-multipart-upload --bucket cli-checks --key aborted --query UploadId --output text) &&
        api upload-part --bucket cli-checks --key aborted --upload-id "$upload" --part-number 1 --body "$work/small" &&
        api abort-multipart-upload --bucket cli-checks --key aborted --upload-id "$upload" &&
        is "$(api list-multipart-uploads --bucket cli-checks --query Uploads --output text)" None &&
        refused 404 aws s3api head-object --bucket cli-checks --key aborted
}
check "aborted-multipart: neither object nor upload is left" aborted
echo "absent presigned-put: aws-cli presigns reads alone"
# A thousand and one files go up by one command; a request each would start the interpreter as often.
mkdir "$work/pages"
for index in $(seq -w 0 1000); do printf x >"$work/pages/$index"; done
pages() {
    aws s3 cp --recursive --quiet "$work/pages" s3://cli-checks/pages &&
        api list-objects-v2 --bucket cli-checks --prefix pages/ --query 'Contents[].[Key]' --output text >"$work/listed" &&
        seq -w 0 1000 | sed 's|^|pages/|' | cmp - "$work/listed"
}
check "pages: 1,001 keys, all and in order" pages
delete_many() {
    local from
    for from in 0 1000; do
        seq -w 0 1000 | tail -n +$((from + 1)) | head -n 1000 | sed 's|.*|{"Key":"pages/&"}|' | paste -sd, |
            sed 's|.*|{"Objects":[&],"Quiet":true}|' >"$work/delete" &&
            api delete-objects --bucket cli-checks --delete "file://$work/delete" || return 1
    done
    is "$(api list-objects-v2 --bucket cli-checks --prefix pages/ --query 'length(Contents || `[]`)')" 0
}
check "delete-many: delete-objects" delete_many
gone() {
    api delete-object --bucket cli-checks --key moved && api delete-object --bucket cli-checks --key moved &&
        refused NoSuchKey aws s3api get-object --bucket cli-checks --key moved "$work/none"
}
check "objects: delete-object, twice" gone
missing() {
    refused NoSuchKey aws s3api get-object --bucket cli-checks --key none "$work/none" &&
        refused NoSuchBucket aws s3api get-object --bucket no-such-bucket --key none "$work/none"
}
check "missing: get-object of no key, of no bucket" missing
check "bucket-delete: rb of a full bucket" refused BucketNotEmpty aws s3 rb s3://cli-checks
check "credentials: a wrong secret" refused SignatureDoesNotMatch env AWS_SECRET_ACCESS_KEY=wrong aws s3 ls
check "credentials: an unknown key" refused InvalidAccessKeyId env AWS_ACCESS_KEY_ID=UNKNOWNKEY aws s3 ls
check "rm --recursive" aws s3 rm --recursive s3://cli-checks
check "bucket-delete: rb" aws s3 rb s3://cli-checks

exit $failed
