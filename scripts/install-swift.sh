#!/bin/sh
# Installs OpenStack Swift (proxy, account, container and object server, s3api) and memcached from Debian's packages.
# Idempotent: returns at once when everything is there. Ends with one clear line and status 1 when it cannot.
set -u

packages="swift-proxy swift-account swift-container swift-object memcached"
programs="swift-ring-builder swift-proxy-server swift-account-server swift-container-server swift-object-server memcached"

missing=""
for program in $programs; do
    command -v "$program" >/dev/null 2>&1 || missing="$missing $program"
done
if [ -z "$missing" ]; then
    echo "swift: already installed"
    exit 0
fi

fail() {
    echo "swift: cannot be installed: $1" >&2
    exit 1
}

. "$(dirname "$0")/apt.sh"
# shellcheck disable=SC2086 # the list is meant to be split
apt_install $packages
for program in $programs; do
    command -v "$program" >/dev/null 2>&1 || fail "$program is missing although its package was installed"
done
echo "swift: installed"
