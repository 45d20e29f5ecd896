#!/usr/bin/env bash
# The page, and what TensorBoard shows of a log, in a real browser. Says so, and is fine, where no Chromium is on the path.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=$1; shift
for name in chromium chromium-browser google-chrome google-chrome-stable chrome; do
    if found=$(command -v "$name"); then break; fi
done
if [ -z "${found:-}" ]; then
    echo "skipped: no browser is here (chromium, chromium-browser, google-chrome or chrome on the path), so the page was not looked at"
    exit 0
fi
echo "browser: $found"
"$python" -m pip install --quiet --disable-pip-version-check --requirement requirements/browser.txt
OMP_NUM_THREADS=1 OPCOST_BROWSER=$found "$python" -m pytest -q tests/browser "$@"
