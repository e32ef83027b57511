#!/bin/sh
# Installs what `make release` and `make test-packages` use beside Rust and Python: mmdebstrap, which makes file systems of
# Debian's packages, runc and containerd. What is there already stays.
set -u

root=$(cd "$(dirname "$0")/.." && pwd)
fail() {
    echo "install-package-tools: left out: $1" >&2
    exit 0
}

missing=""
for tool in mmdebstrap runc containerd; do
    command -v "$tool" >/dev/null 2>&1 || missing="$missing $tool"
done
[ -n "$missing" ] || exit 0
. "$root/scripts/apt.sh"
# shellcheck disable=SC2086
apt_install $missing && echo "install-package-tools: installed$missing"
