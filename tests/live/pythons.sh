#!/usr/bin/env bash
# The tests that need no framework, on every Python from 3.10 on that is here: tests/live/pythons.sh [--quick] [--torch] [VERSION ...]
# With --quick the core of them (data types, rules, the command line on files) on every Python but that of .venv, which has run
# all. With --torch also counts of PyTorch models, compared with exact integers, with the torch of requirements/torch.txt or,
# where that one wants a device, an older one. All Pythons are
# tested at once, and the last line says which were and which are not here; nothing fails for one that is missing.
set -euo pipefail
cd "$(dirname "$0")/../.."

quick="" with_torch=""
while [[ "${1:-}" == --* ]]; do
    case $1 in
    --quick) quick=yes ;;
    --torch) with_torch=yes ;;
    *) printf 'unknown option %s; there are --quick and --torch\n' "$1" >&2 && exit 2 ;;
    esac
    shift
done
if [ $# -eq 0 ]; then
    own=$([ -z "$quick" ] || .venv/bin/python -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null || true)
    for version in 3.10 3.11 3.12 3.13 3.14; do
        [ "$version" = "$own" ] || set -- "$@" "$version"
    done
fi

plain=(tests/core tests/rules tests/cli/test_mxnet_source.py)
[ -n "$quick" ] || plain+=(tests/frontends/mxnet tests/frontends/tflite tests/frontends/checkpoint)
# These three want numpy or torch.
for file in test_plugin test_reading test_shapes_oracles; do
    plain+=("--ignore=tests/core/$file.py")
done
torch=(tests/frontends/torch/test_closed_form.py tests/frontends/torch/test_conv.py tests/frontends/torch/test_attention.py
    tests/cli/test_count.py)
# torch's own needs on a CPU; with its dependencies it would bring gigabytes for devices.
torch_needs=(filelock fsspec jinja2 networkx sympy typing-extensions numpy)
# The last whose wheels for ARM do without the libraries of CUDA.
older_torch=torch==2.10.0

interpreter() {
    local candidate
    for candidate in "python$1" "$HOME/.pyenv/versions/$1".*/bin/python; do
        if "$candidate" -c "" 2>/dev/null; then
            printf '%s\n' "$candidate"
            return
        fi
    done
}

runs_torch() { # in the virtual environment $1
    "$1/bin/python" -W ignore -c 'import torch; print("torch", torch.__version__)'
}

run_tests() { # of the Python of version $1, found at $2
    local venv=.venv-python$1 tests=("${plain[@]}")
    local pip=("$venv/bin/python" -m pip install --quiet --disable-pip-version-check)
    if [ ! -e "$venv/.complete" ] || [ pyproject.toml -nt "$venv/.complete" ]; then
        "$2" -m venv --clear "$venv" || return
        "${pip[@]}" 'pytest>=8,<10' 'hypothesis>=6,<7' --editable . || return
        touch "$venv/.complete"
    fi
    "$venv/bin/python" -m compileall -q src || return
    if [ -n "$with_torch" ]; then
        "${pip[@]}" "${torch_needs[@]}" || return
        if { "${pip[@]}" --no-deps --requirement requirements/torch.txt && runs_torch "$venv"; } ||
            { "${pip[@]}" --no-deps "$older_torch" && runs_torch "$venv"; }; then
            tests+=("${torch[@]}")
        else
            printf 'no torch that runs without a device can be had for Python %s; the tests without it run\n' "$1"
        fi
    fi
    OMP_NUM_THREADS=1 "$venv/bin/python" -m pytest -q --no-header -rf -p no:cacheprovider "${tests[@]}"
}

logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
missing=() tested=() failed=() workers=()
for version; do
    python=$(interpreter "$version")
    if [ -z "$python" ]; then
        missing+=("$version")
        continue
    fi
    run_tests "$version" "$python" >"$logs/$version" 2>&1 &
    tested+=("$version")
    workers+=($!)
done
for i in "${!tested[@]}"; do
    wait "${workers[$i]}" || failed+=("${tested[$i]}")
    printf '\nPython %s\n' "${tested[$i]}"
    cat "$logs/${tested[$i]}"
done
printf '\ntested with Python %s; failed: %s; skipped, not here: %s\n' \
    "${tested[*]:-none}" "${failed[*]:-none}" "${missing[*]:-none}"
[ ${#failed[@]} -eq 0 ]
