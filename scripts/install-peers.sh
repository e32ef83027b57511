#!/usr/bin/env bash
# Installs the servers that experiments compare with, and their Python clients: Redis from Debian's packages; MinIO,
# versitygw, NATS and the checker of histories built by Go into the user's cache folder, each by its version; redis-py, hiredis and swiftclient
# beside them; WEKA by Maven. Does nothing for what is there. What cannot be had is said in one line and is left out: experiments and
# tests that need it say so. NIGH_PEERS names some of them only: NIGH_PEERS="redis clients".
set -uo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/nigh/peers
versions=$root/crates/nigh-lab/peers/versions
clients=$root/crates/nigh-lab/peers/clients.txt
python=$root/.deps/python/bin/python3
[ -x "$python" ] || python=${PYTHON:-python3}
left_out=0

say() { echo "install-peers: $*"; }
leave_out() {
    echo "install-peers: $1" >&2
    left_out=1
}
# "nats" is nats-server too.
wanted() { [[ -z ${NIGH_PEERS:-} || " $NIGH_PEERS " == *" $1 "* ]]; }

redis() {
    if command -v redis-server >/dev/null 2>&1; then
        say "redis: already installed"
        return
    fi
    (
        fail() {
            echo "install-peers: redis: cannot be installed: $1" >&2
            exit 1
        }
        . "$root/scripts/apt.sh"
        apt_install redis-server
    ) && say "redis: installed" || left_out=1
}

# go_program NAME VERSION MODULE
go_program() {
    local name=$1 version=$2 module=$3 began=$SECONDS
    local folder=$cache/$name-$version
    if [ -x "$folder/$name" ]; then
        say "$name $version: already built"
    elif ! command -v go >/dev/null 2>&1; then
        leave_out "$name: there is no go here to build it with"
    else
        say "$name $version: building, at the lowest priority"
        local partial=$folder.partial.$$
        mkdir -p "$partial"
        if GOBIN=$partial GOTOOLCHAIN=local nice -n 19 go install "$module@$version"; then
            rm -rf "$folder" && mv "$partial" "$folder"
            say "$name $version: built in $((SECONDS - began)) s"
        else
            rm -rf "$partial"
            leave_out "$name: cannot be built; is Go's module proxy reachable, and go new enough?"
        fi
    fi
}

# A checker of histories, from its sources in tests/porcupine.
porcupine() {
    local sources=$root/tests/porcupine hash folder partial
    hash=$(cat "$sources"/{go.mod,go.sum,main.go} | sha256sum | cut -c1-12)
    folder=$cache/porcupine-$hash
    if [ -x "$folder/porcupine" ]; then
        say "porcupine: already built"
    elif ! command -v go >/dev/null 2>&1; then
        leave_out "porcupine: there is no go here to build it with"
    else
        partial=$folder.partial.$$
        mkdir -p "$partial"
        if (cd "$sources" && GOTOOLCHAIN=local nice -n 19 go build -mod=readonly -o "$partial/porcupine" .); then
            rm -rf "$folder" && mv "$partial" "$folder"
            say "porcupine: built"
        else
            rm -rf "$partial"
            leave_out "porcupine: cannot be built; is Go's module proxy reachable?"
        fi
    fi
}

python_clients() {
    local version hash folder partial
    version=$("$python" -c 'import sys; print(f"python3.{sys.version_info.minor}")') || {
        leave_out "clients: there is no $python; run \`make deps\` first"
        return
    }
    hash=$(sha256sum "$clients" | cut -c1-12)
    folder=$cache/clients-$version-$hash
    if [ -d "$folder" ]; then
        say "clients for $version: already installed"
        return
    fi
    partial=$folder.partial.$$
    mkdir -p "$cache"
    if "$python" -m pip install --quiet --disable-pip-version-check --no-input --no-deps --only-binary :all: \
        --target "$partial" --requirement "$clients"; then
        mv "$partial" "$folder"
        say "clients for $version: installed"
    else
        rm -rf "$partial"
        leave_out "clients: pip could not install $clients; is a package index reachable?"
    fi
}

# The jars of the learners that nigh experiment learn compares with.
weka() {
    local pom=$root/crates/nigh-lab/peers/weka/pom.xml version folder partial
    version=$(sed -n '/<artifactId>weka-stable</{n;s/.*<version>\(.*\)<.*/\1/p}' "$pom")
    folder=$cache/weka-$version
    if [ -d "$folder" ]; then
        say "weka $version: already installed"
    elif ! command -v mvn >/dev/null 2>&1 || ! command -v java >/dev/null 2>&1; then
        leave_out "weka: there is no mvn or no java here"
    else
        partial=$folder.partial.$$
        mkdir -p "$partial"
        if nice -n 19 mvn -q -B -f "$pom" dependency:copy-dependencies -DincludeScope=runtime \
            -DoutputDirectory="$partial"; then
            mv "$partial" "$folder"
            say "weka $version: installed"
        else
            rm -rf "$partial"
            leave_out "weka: Maven could not fetch it; is a repository reachable?"
        fi
    fi
}

say "into $cache: MinIO takes a quarter of an hour on two busy cores the first time, the others a minute or two each"
if wanted redis; then redis; fi
if wanted clients; then python_clients; fi
if wanted porcupine; then porcupine; fi
if wanted weka; then weka; fi
while read -r name version module; do
    if wanted "$name" || wanted "${name%-server}"; then go_program "$name" "$version" "$module"; fi
done <"$versions"
exit $left_out
