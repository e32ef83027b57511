# In a guest whose kernel allocates cache: a node, two actions by OpenWhisk's API, what they need learned, and the class in
# which the kernel has each while it runs. Prints a JSON object a line.
set -e
mount -t resctrl resctrl /sys/fs/resctrl
export NIGH_STATE=/tmp/state
nigh up --s3-listen 127.0.0.1:9400 --lambda-listen 127.0.0.1:9401 --cache "64 MiB" > /tmp/node.log 2>&1 &
node=$!
trap '[ $? = 0 ] || tail -n 40 /tmp/node.log >&2' EXIT
until nigh status > /dev/null 2>&1; do kill -0 $node; sleep 1; done

# Reads its object, works until the classes are fitted to it, and says in which one it is then.
cat > /tmp/action <<'ACTION'
#!/bin/sh
key=${1##*\"key\":\"}
key=${key%%\"*}
curl --silent --show-error --fail --output /dev/null --aws-sigv4 "aws:amz:$AWS_REGION:s3" \
    --header "x-amz-content-sha256: UNSIGNED-PAYLOAD" \
    --user "$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY" "$AWS_ENDPOINT_URL_S3/data/$key"
sleep 1
read -r group < /proc/self/cpu_resctrl_groups
echo "{\"group\": \"${group#res:}\"}"
ACTION
code=$(base64 -w 0 /tmp/action)
auth=$(nigh openwhisk auth)
whisk() {
    curl --silent --show-error --user "$auth" --request "$1" --data "$3" "http://127.0.0.1:9401/api/v1/namespaces/_/$2"
}
nigh objects mb nigh://data > /dev/null
for size in 1000 100000; do
    head -c $size /dev/zero > /tmp/input
    nigh objects cp /tmp/input nigh://data/of-$size > /dev/null
done
event() { echo "{\"input\":{\"bucket\":\"data\",\"key\":\"of-$1\"}}"; }
for action in steady hungry; do
    whisk PUT actions/$action "{\"exec\": {\"kind\": \"native\", \"code\": \"$code\"}}" > /dev/null
done

# One is profiled here, by its runs; the other's need is known from elsewhere.
nigh --json llc profile steady --event "$(event 1000)" > /tmp/profile
echo "{\"profile\": $(tail -n 1 /tmp/profile)}"
cat > /tmp/rows <<'ROWS'
[{"input": {"size": 1000}, "ways": 1, "class": "light"}, {"input": {"size": 100000}, "ways": 4, "class": "sensitive"}]
ROWS
nigh llc learn hungry --rows /tmp/rows > /dev/null

for run in steady:1000 hungry:1000 hungry:100000; do
    record=$(whisk POST "actions/${run%:*}?blocking=true" "$(event ${run#*:})")
    id=${record#*\"activationId\":\"}
    id=${id%%\"*}
    group=${record#*\"group\":\"}
    group=${group%%\"*}
    echo "{\"run\": \"$run\", \"record\": $record, \"explained\": $(nigh --json llc explain $id)," \
        "\"schemata\": \"$(grep L3: /sys/fs/resctrl/$group/schemata | tr -d ' ')\"}"
done
kill $node
wait $node
trap - EXIT
echo "{\"left\": \"$(ls /sys/fs/resctrl | grep -c nigh- || true)\"}"
