#!/bin/sh
# Drives a Lambda door with aws-cli, unmodified, and prints a line a check.
#
# Environment: AWS_ENDPOINT_URL_LAMBDA, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY;
#   NIGH_SDK_RUNTIME (default python3.11): a Python runtime that the door has;
#   AWS_CLI (default aws): the program.
# Exit code: 0 if every check holds, 1 if one fails.
set -u
export AWS_DEFAULT_REGION=us-east-1 AWS_MAX_ATTEMPTS=1 AWS_PAGER=
aws=${AWS_CLI:-aws}
runtime=${NIGH_SDK_RUNTIME:-python3.11}
name="cli-$$-$(date +%s)"
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
failures=0

# check WHAT EXPECTED SEEN
check() {
    case $3 in
    *"$2"*) echo "ok      $1" ;;
    *) echo "FAILED  $1: expected $2, saw: $3"; failures=$((failures + 1)) ;;
    esac
}
# cli ARGUMENTS...: what it prints, errors too
cli() { "$aws" lambda "$@" --output json 2>&1; }

cat > "$folder/app.py" <<'PY'
def handler(event, context):
    print("a line of the log")
    if event.get("raise"):
        raise ValueError("asked to fail")
    return {"echo": event}
PY
printf '{"n": 1}' >"$folder/n.json"
printf '{"raise": true}' >"$folder/raise.json"
(cd "$folder" && python3 -m zipfile -c code.zip app.py) || exit 1

check "create-function" '"State": "Active"' "$(cli create-function --function-name "$name" --runtime "$runtime" \
    --handler app.handler --role any --zip-file "fileb://$folder/code.zip" --timeout 10)"
check "wait function-active" "0" "$(cli wait function-active-v2 --function-name "$name"; echo $?)"
check "get-function" "\"FunctionName\": \"$name\"" "$(cli get-function --function-name "$name")"
check "list-functions" "\"FunctionName\": \"$name\"" "$(cli list-functions)"
check "invoke" '"StatusCode": 200' "$(cli invoke --function-name "$name" --payload "fileb://$folder/n.json" "$folder/out")"
check "invoke's answer" '{"n": 1}' "$(python3 -c 'import json,sys; print(json.dumps(json.load(open(sys.argv[1]))["echo"]))' "$folder/out")"
log=$("$aws" lambda invoke --function-name "$name" --log-type Tail --query LogResult --output text "$folder/out" | base64 -d)
check "invoke with the log's tail" "a line of the log" "$log"
check "a handler's error" '"FunctionError": "Unhandled"' \
    "$(cli invoke --function-name "$name" --payload "fileb://$folder/raise.json" "$folder/out")"
check "a handler's error in the answer" '"asked to fail"' "$(cat "$folder/out")"
check "dry run" '204' "$(cli invoke --function-name "$name" --invocation-type DryRun "$folder/out")"
check "update-function-configuration" '"MemorySize": 192' \
    "$(cli update-function-configuration --function-name "$name" --memory-size 192)"
check "update-function-code" '"LastUpdateStatus": "Successful"' \
    "$(cli update-function-code --function-name "$name" --zip-file "fileb://$folder/code.zip")"
check "delete-function" "0" "$(cli delete-function --function-name "$name" >"$folder/deleted"; echo $?)"
check "the function is gone" "ResourceNotFoundException" "$(cli get-function --function-name "$name")"
check "a wrong secret" "InvalidSignatureException" "$(AWS_SECRET_ACCESS_KEY=wrong cli list-functions)"

[ "$failures" -eq 0 ] && echo "all checks hold" || { echo "$failures checks failed"; exit 1; }
