#!/usr/bin/env bash
# The page of a running node in Debian's Chromium: each view, light, dark and 380 pixels wide. `--minutes N`: how long one view
# then stays open and is measured; `--shots FOLDER`: pictures of all views (docs/page has those of the last release).
set -euo pipefail
cd "$(dirname "$0")/.."

while [ $# -gt 0 ]; do
    case $1 in
    --minutes) export NIGH_TEST_PAGE_MINUTES=$2 ;;
    --shots) export NIGH_TEST_PAGE_SHOTS=$(realpath -m "$2") ;;
    *) echo "usage: scripts/test-page.sh [--minutes N] [--shots FOLDER]" >&2; exit 2 ;;
    esac
    shift 2
done
exec .deps/python/bin/python -m unittest discover -s tests/page -p page_test.py
