#!/usr/bin/env bash
# The tests that need no framework, on every Python from 3.10 on that is here: tests/live/pythons.sh [--torch] [VERSION ...]
# With --torch also counts of PyTorch models, held to exact integers, with the torch of requirements/torch.txt.
# A Python that is missing, or for which torch cannot be had, is named, and nothing fails for it.
set -euo pipefail
cd "$(dirname "$0")/../.."

with_torch=""
if [ "${1:-}" = --torch ]; then
    with_torch=yes
    shift
fi
versions=("${@:-3.10 3.11 3.12 3.13 3.14}")

plain=(tests/core tests/rules tests/frontends/mxnet)
# These three want numpy or torch.
for file in test_plugin test_reading test_shapes_oracles; do
    plain+=("--ignore=tests/core/$file.py")
done
torch=(tests/frontends/torch/test_closed_form.py tests/frontends/torch/test_conv.py tests/frontends/torch/test_attention.py
    tests/cli/test_count.py)
# torch's own needs on a CPU; with its dependencies it would bring gigabytes for devices.
torch_needs=(filelock fsspec jinja2 networkx sympy typing-extensions numpy)

interpreter() {
    local candidate
    for candidate in "python$1" "$HOME/.pyenv/versions/$1".*/bin/python; do
        if "$candidate" -c "" 2>/dev/null; then
            printf '%s\n' "$candidate"
            return
        fi
    done
}

for version in ${versions[*]}; do
    python=$(interpreter "$version")
    if [ -z "$python" ]; then
        printf 'Python %s skipped: it is not here\n' "$version"
        continue
    fi
    venv=.venv-python$version
    pip=("$venv/bin/python" -m pip install --quiet --disable-pip-version-check)
    if [ ! -e "$venv/.complete" ] || [ pyproject.toml -nt "$venv/.complete" ]; then
        "$python" -m venv --clear "$venv"
        "${pip[@]}" 'pytest>=8,<10' 'hypothesis>=6,<7' --editable .
        touch "$venv/.complete"
    fi
    tests=("${plain[@]}")
    if [ -n "$with_torch" ]; then
        if "${pip[@]}" "${torch_needs[@]}" && "${pip[@]}" --no-deps --requirement requirements/torch.txt; then
            tests+=("${torch[@]}")
        else
            printf 'Python %s: the torch of requirements/torch.txt cannot be had for it; the tests without it run\n' "$version"
        fi
    fi
    printf 'Python %s\n' "$("$venv/bin/python" --version)"
    OMP_NUM_THREADS=1 "$venv/bin/python" -m pytest -q --no-header -rf -p no:cacheprovider "${tests[@]}"
done
