#!/usr/bin/env bash
# What compares entity tags, on buckets whose tags are MD5 and whose are composite: aws-cli, rclone, s3cmd. Each uploads a
# tree, finds nothing to do in a second run, finds the one changed file in a third, and brings the tree back whole.
# Needs AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and the buckets sync-md5 and sync-composite with their
# policies. SYNCHRONIZERS names the programs that are here. Prints one line a check, `ok <what>` or `FAILED <what>`; exits
# with 1 if one failed.
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
        echo "FAILED $what: $(tail -c 600 "$work/said" | tr '\n' ' ')"
        failed=1
    fi
}

export RCLONE_CONFIG=$work/rclone.conf RCLONE_CONFIG_NIGH_TYPE=s3 RCLONE_CONFIG_NIGH_PROVIDER=Other
export RCLONE_CONFIG_NIGH_ENDPOINT=$AWS_ENDPOINT_URL RCLONE_CONFIG_NIGH_ACCESS_KEY_ID=$AWS_ACCESS_KEY_ID
export RCLONE_CONFIG_NIGH_SECRET_ACCESS_KEY=$AWS_SECRET_ACCESS_KEY
: >"$RCLONE_CONFIG"
host=${AWS_ENDPOINT_URL#http://}
: >"$work/s3cfg"
s3() {
    command s3cmd --config="$work/s3cfg" --no-ssl --host="$host" --host-bucket="$host" --access_key="$AWS_ACCESS_KEY_ID" \
        --secret_key="$AWS_SECRET_ACCESS_KEY" --region=us-east-1 --no-progress "$@"
}

# Each synchronises FROM TO and prints a line for each file that it moves.
aws_sync() { aws s3 sync "$1" "$2" --no-progress | grep -E '^(upload|download):'; true; }
rclone_sync() {
    # rclone takes no authorities by that variable, and fails where it is set.
    env -u AWS_CA_BUNDLE rclone sync --checksum --retries 1 --verbose "${1/#s3:\/\//nigh:}" "${2/#s3:\/\//nigh:}" 2>&1 |
        grep -E 'Copied \(|ERROR|Failed'
    true
}
s3cmd_sync() { s3 sync "$1" "$2" | grep -E '^(upload|download):'; true; }

moves() {
    local expected=$1 said
    shift
    said=$("$@")
    [ "$(grep -c . <<<"$said")" = "$expected" ] || { echo "expected $expected files, moved: $said"; return 1; }
}

for tool in $SYNCHRONIZERS; do
    for tags in md5 composite; do
        tree=$work/$tool-$tags
        to=s3://sync-$tags/$tool/
        mkdir -p "$tree/sub"
        head -c 1500000 /dev/urandom >"$tree/large"
        printf 'one' >"$tree/small"
        printf 'two' >"$tree/sub/smaller"
        check "$tool, $tags: uploads a tree" moves 3 "${tool}_sync" "$tree/" "$to"
        check "$tool, $tags: finds nothing to do" moves 0 "${tool}_sync" "$tree/" "$to"
        # Of another size: where there is no MD5, that is what the tools have to go by.
        sleep 1
        printf 'changed' >"$tree/small"
        check "$tool, $tags: finds what has changed" moves 1 "${tool}_sync" "$tree/" "$to"
        check "$tool, $tags: brings all back" moves 3 "${tool}_sync" "$to" "$work/back-$tool-$tags/"
        check "$tool, $tags: whole" diff -r "$tree" "$work/back-$tool-$tags"
    done
done
# The buckets are what they say.
tag_of() { aws s3api head-object --bucket "sync-$1" --key aws/large --query ETag --output text; }
check "an MD5" test "$(tag_of md5)" = "\"$(md5sum <"$work/aws-md5/large" | cut -d' ' -f1)\""
check "no MD5" grep -q -- '-1"$' <<<"$(tag_of composite)"
exit $failed
