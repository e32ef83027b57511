# Installing Debian packages, for scripts that install something else with them. To be sourced; "fail" must be defined.

# apt_install PACKAGE...: installs them; their own services do not start: what runs here runs from its own folder on its
# own ports. Calls "fail" with a reason where they cannot be had.
apt_install() {
    command -v apt-get >/dev/null 2>&1 || fail "there is no apt-get here (Debian's packages are needed: $*)"
    [ "$(id -u)" = 0 ] || fail "root is needed for apt-get; run: sudo apt-get install --no-install-recommends $*"
    apt_log=$(mktemp) || fail "no temporary file can be made"
    apt_policy=/usr/sbin/policy-rc.d
    apt_made_policy=""
    trap apt_clean_up EXIT
    trap 'exit 1' INT TERM
    if [ ! -e "$apt_policy" ]; then
        printf '#!/bin/sh\nexit 101\n' >"$apt_policy" && chmod 755 "$apt_policy" && apt_made_policy=yes
    fi
    if ! apt_get install -y -qq --no-install-recommends "$@" >"$apt_log" 2>&1; then
        apt_get update -qq >>"$apt_log" 2>&1
        apt_get install -y -qq --no-install-recommends "$@" >"$apt_log" 2>&1 ||
            fail "$(grep -E '^E: ' "$apt_log" | head -n 1 | sed 's/^E: //')"
    fi
    apt_clean_up
    trap - EXIT INT TERM
}

apt_get() {
    DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 "$@"
}

apt_clean_up() {
    rm -f "$apt_log"
    [ -z "$apt_made_policy" ] || rm -f "$apt_policy"
    apt_made_policy=""
}
