#!/bin/sh
# Drives EventBridge Scheduler's API of a Lambda door with aws-cli, unmodified, and prints a line a check.
#
# Environment: as aws_cli_lambda.sh, and AWS_ENDPOINT_URL_SCHEDULER, which is the Lambda door's.
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
cli() { "$aws" scheduler "$@" --output json 2>&1; }

echo 'def handler(event, context): return event' > "$folder/app.py"
(cd "$folder" && python3 -m zipfile -c code.zip app.py) || exit 1
"$aws" lambda create-function --function-name "$name" --runtime "$runtime" --handler app.handler --role any \
    --zip-file "fileb://$folder/code.zip" >"$folder/made" || exit 1
target="{\"Arn\": \"arn:aws:lambda:us-east-1:000000000000:function:$name\", \"RoleArn\": \"arn:aws:iam::000000000000:role/any\"}"
window='{"Mode": "OFF"}'

check "create-schedule" "schedule/default/$name" "$(cli create-schedule --name "$name" --schedule-expression 'cron(15 10 ? * 6L 2098-2099)' \
    --target "$target" --flexible-time-window "$window")"
check "get-schedule" '"ScheduleExpression": "cron(15 10 ? * 6L 2098-2099)"' "$(cli get-schedule --name "$name")"
check "list-schedules" "\"Name\": \"$name\"" "$(cli list-schedules --name-prefix "$name" --group-name default)"
check "list-schedule-groups" '"Name": "default"' "$(cli list-schedule-groups)"
check "update-schedule" "schedule/default/$name" "$(cli update-schedule --name "$name" --schedule-expression 'rate(5 minutes)' \
    --start-date 2098-01-01T00:00:00Z --state DISABLED --target "$target" --flexible-time-window "$window")"
check "its state" '"State": "DISABLED"' "$(cli get-schedule --name "$name")"
check "a wrong expression" "Invalid Schedule Expression" "$(cli create-schedule --name bad --schedule-expression 'cron(* * * * *)' \
    --target "$target" --flexible-time-window "$window")"
check "delete-schedule" "0" "$(cli delete-schedule --name "$name" >"$folder/deleted"; echo $?)"
check "the schedule is gone" "ResourceNotFoundException" "$(cli get-schedule --name "$name")"
"$aws" lambda delete-function --function-name "$name"

[ "$failures" -eq 0 ] && echo "all checks hold" || { echo "$failures checks failed"; exit 1; }
