#!/bin/sh
# Makes .deps/python: the interpreter, the Lambda runtime client and the packages of functions/, exactly as pinned.
#
# Run it as often as you like: it does nothing when the folder is what it would make. It never touches the machine's
# own Python. PYTHON names another interpreter than `python3` (3.10 to 3.13, for which the pins have wheels).
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
# Where .deps really lies: it may be a link to a folder that several checkouts share.
mkdir -p "$root/.deps"
deps=$(cd -P "$root/.deps" && pwd)
venv="$deps/python"
requirements="$root/functions/requirements.txt"
instrument="$root/runtimes/python/nigh_phases"
policy="$root/runtimes/python/imagemagick/policy.xml"
python=${PYTHON:-python3}

say() { printf 'install-python: %s\n' "$*"; }
fail() { printf 'install-python: %s\n' "$*" >&2; exit 1; }

command -v "$python" >/dev/null 2>&1 || fail "there is no '$python'. Install Python 3.10 to 3.13, or set PYTHON to it."
"$python" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' \
    || fail "$("$python" --version) will not do: the pins have wheels for Python 3.10 to 3.13. Set PYTHON to one."
"$python" -c 'import venv, ensurepip' 2>/dev/null \
    || fail "this Python cannot make virtual environments. On Debian and Ubuntu: apt-get install python3-venv."

# What the folder was made from: the pins, the instrument, this script and the interpreter itself.
want=$( {
    cat "$requirements" "$instrument"/*.py "$policy" "$0"
    "$python" -c 'import os, sys; print(sys.version, os.path.realpath(sys.executable))'
} | sha256sum | cut -d' ' -f1)
if [ "$(cat "$venv/.stamp" 2>/dev/null || true)" = "$want" ] && "$venv/bin/python" -c '' 2>/dev/null; then
    say "$venv is up to date"
    exit 0
fi

began=$(date +%s)
# One run at a time: two makes at once must not build one folder together.
exec 9>"$deps/.python.lock"
flock -w 900 9 2>/dev/null || fail "another run holds $deps/.python.lock since 15 minutes; end it first."
if [ "$(cat "$venv/.stamp" 2>/dev/null || true)" = "$want" ]; then
    say "$venv was made by another run"
    exit 0
fi

say "making $venv with $("$python" --version)"
rm -rf "$venv"
"$python" -m venv "$venv" || fail "'$python -m venv $venv' failed; is the disk full?"

say "installing the packages pinned in functions/requirements.txt (about 115 MB to fetch)"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-input --no-deps --no-compile \
    --only-binary :all: --retries 5 --requirement "$requirements" \
    || fail "pip could not install $requirements. Is a package index reachable ('pip config list')?"
"$venv/bin/python" -m pip check --disable-pip-version-check >/dev/null \
    || fail "the pins in $requirements do not fit each other: run '$venv/bin/python -m pip check'."

site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
# The phase instrument; it does nothing unless a function's environment asks botocore for it.
mkdir -p "$site/nigh_phases"
cp "$instrument"/*.py "$site/nigh_phases/"
# ImageMagick's limits for this interpreter and no other: a line of a .pth file runs when it starts.
mkdir -p "$venv/etc/imagemagick"
cp "$policy" "$venv/etc/imagemagick/"
printf '%s\n' 'import os, sys; os.environ.setdefault("MAGICK_CONFIGURE_PATH", sys.prefix + "/etc/imagemagick")' \
    >"$site/imagemagick_limits.pth"

say "compiling bytecode"
# Sandboxes see the folder read-only: what is not compiled now would be compiled again at every cold start. A few
# packages carry sources of other Python versions, which do not compile and are never imported.
"$venv/bin/python" -m compileall -q -j 0 "$site" >/dev/null 2>&1 || true

"$venv/bin/python" -c 'import awslambdaric, boto3, imageio_ffmpeg, jinja2, nigh_phases, numpy, PIL.Image, pocketsphinx, reportlab' \
    || fail "a package was installed but cannot be imported; remove $venv and run again."
printf '%s\n' "$want" >"$venv/.stamp"
say "done in $(($(date +%s) - began)) s, $(du -sm "$venv" | cut -f1) MB in $venv"
