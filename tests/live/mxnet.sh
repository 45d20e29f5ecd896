#!/usr/bin/env bash
# The live tests of MXNet 1.9.1, which lives in a virtual environment of its own: tests/live/mxnet.sh
# Where MXNet cannot be had, the reason is printed and nothing fails.
set -euo pipefail
cd "$(dirname "$0")/../.."
venv=.venv-mxnet

skip() {
    printf 'live tests of MXNet skipped: %s\n' "$1"
    exit 0
}

# opcost needs Python 3.10, and numpy below 1.24 has no build for 3.12 and later.
python=""
for candidate in "${PYTHON310:-}" python3.10 "$HOME"/.pyenv/versions/3.10.*/bin/python python3.11 \
    "$HOME"/.pyenv/versions/3.11.*/bin/python; do
    if [ -n "$candidate" ] && "$candidate" -c "" 2>/dev/null; then
        python=$candidate
        break
    fi
done
[ -n "$python" ] || skip "neither Python 3.10 nor 3.11 is here"

pip=("$venv/bin/python" -m pip install --quiet --disable-pip-version-check)
if [ ! -e $venv/.complete ] || [ requirements/mxnet.txt -nt $venv/.complete ]; then
    "$python" -m venv --clear $venv
    "${pip[@]}" --requirement requirements/mxnet.txt || skip "MXNet 1.9.1 could not be installed for $(uname -m)"
    if [ "$(uname -m)" = aarch64 ]; then
        packages=$($venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
        ln -sf "$(ls "$packages"/scipy.libs/libopenblas*.so | head -n 1)" "$packages/mxnet/libarmpl_lp64_mp.so"
        for pair in libamath:libm libastring:libc; do
            ln -sf "$(ldconfig -p | awk -v name="${pair#*:}.so.6" '$1 == name { print $NF; exit }')" "$packages/mxnet/${pair%:*}.so"
        done
    fi
    touch $venv/.complete
fi
"${pip[@]}" --no-deps --editable .
$venv/bin/python -c 'import mxnet' 2>/dev/null || skip "MXNet 1.9.1 is installed and cannot be imported on $(uname -m)"
exec $venv/bin/python -m pytest tests/live/test_mxnet.py -s
