#!/usr/bin/env bash
# The live tests of MegEngine 1.13.0, which lives in a virtual environment of its own: tests/live/megengine.sh PYTHON
# PYTHON runs the tests. Where MegEngine cannot run, its profile_analyze, which is plain Python, is taken out of its wheel and
# tested alone. Where nothing can be had, the reason is printed and nothing fails.
# OPCOST_MEGENGINE_PYTHON names a Python that has MegEngine already.
set -euo pipefail
cd "$(dirname "$0")/../.."
tests=${1:?the Python that runs the tests}
venv=.venv-megengine

skip() {
    printf 'live tests of MegEngine skipped: %s\n' "$1"
    exit 0
}

tool_alone() {
    printf 'live tests that run MegEngine skipped: %s\n' "$1"
    local folder=.venv-megengine-tool
    if [ ! -e $folder/.complete ]; then
        rm -rf $folder
        "$tests" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --dest $folder/wheel \
            --platform manylinux2014_x86_64 --python-version 310 megengine==1.13.0 || skip "its wheel cannot be had"
        for file in megengine/tools/profile_analyze.py megengine/utils/profile_analyzer.py; do
            "$tests" -c 'import sys, zipfile; zipfile.ZipFile(sys.argv[1]).extract(*sys.argv[2:])' \
                $folder/wheel/*.whl $file $folder
        done
        rm -rf $folder/wheel
        touch $folder/.complete
    fi
    export OPCOST_MEGENGINE_TOOL=$PWD/$folder
    exec "$tests" -m pytest tests/live/test_megengine_profile.py -s
}

if [ -z "${OPCOST_MEGENGINE_PYTHON:-}" ]; then
    [ "$(uname -m)" = x86_64 ] || tool_alone "MegEngine 1.13.0 has no build for $(uname -m)"
    python=""
    for candidate in "${PYTHON310:-}" python3.10 "$HOME"/.pyenv/versions/3.10.*/bin/python; do
        # Run, not only found: pyenv leaves a shim for every version that it once had.
        if [ -n "$candidate" ] && "$candidate" -c "" >/dev/null 2>&1; then
            python=$candidate
            break
        fi
    done
    [ -n "$python" ] || tool_alone "Python 3.10 is missing; MegEngine 1.13.0 has no build for later ones"
    if [ ! -e $venv/.complete ]; then
        "$python" -m venv --clear $venv
        $venv/bin/python -m pip install --quiet --disable-pip-version-check --requirement requirements/megengine.txt
        touch $venv/.complete
    fi
    export OPCOST_MEGENGINE_PYTHON=$PWD/$venv/bin/python
fi
exec "$tests" -m pytest tests/live/test_megengine.py tests/live/test_megengine_operators.py tests/live/test_megengine_profile.py \
    tests/live/test_megengine_stats.py -s
