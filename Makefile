# make demo    count two example models and print their tables
# make test    all tests, with a sample where many cases follow one rule          make lint    style, types and import arrows
# make test-all           all tests with all their cases
# make test-frameworks    live tests, each framework in a virtual environment of its own
# make test-browser  the page, and TensorBoard, in a real Chromium, where one is on the path; says so where none is
# make test-pythons  tests without a framework on every Python from 3.10 on that is here
#              (ARGS=--quick: the core of them; ARGS=--torch: and counts of PyTorch)
# make test-peers    the peers' own test suites, as they are and with only the import changed (ARGS="--sources FOLDER" for checkouts)
# make fuzz    20,000 changes of every file format that is read, and Ctrl-C at every line of a count
# make mutate  constants and operators changed one at a time, room by room: lists those that no test notices
#              (ARGS="onnx memory --sample 60 --seconds 300": two rooms, a sample, a time limit)
# make frozen  numbers, tables and pages of about 530 sources against the committed digests: names the first difference of each
#              (ARGS="torch 'timm/res*' --against DIR": a room, some sources, and the full data of other code)
# make docs    the documentation as a site in build/site, offline; a link that leads nowhere fails it
# make release-check  source archive and wheel: built, looked through, installed anew, and the README's commands run
# make bench   speed against other tools          make bench-timm    every model of timm against the exact integers
#
# Needs python3 with pip, and make. Everything is installed into $(VENV); a stamp per set of dependencies keeps the
# second run quick. Another interpreter: make test PYTHON=python3.12 VENV=.venv312

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
STAMPS := $(VENV)/.stamps

.DEFAULT_GOAL := help
export PYTHONDONTWRITEBYTECODE :=  # workers, and programs that tests start, compile what they import once

.PHONY: help demo test test-all test-browser test-frameworks test-megengine test-mxnet test-pythons test-peers fuzz mutate frozen lint format docs release-check bench bench-timm clean

help:
	@sed -n 's/^# \{0,1\}//p' Makefile

demo: $(STAMPS)/torch
	$(BIN)/opcost count examples/resnet18.py:ResNet18 --input 1x3x224x224 --depth 2
	$(BIN)/opcost count examples/transformer.py:Decoder --input tokens:1x256:int64 --depth 2

test: $(STAMPS)/test  # one thread for each worker: workers and threads for every core would be slower
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto --dist worksteal $(ARGS)

test-all: $(STAMPS)/test
	OPCOST_FULL=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto --dist worksteal $(ARGS)

test-browser: $(STAMPS)/test
	tests/browser/run.sh $(BIN)/python $(ARGS)

test-frameworks: test-megengine test-mxnet

test-megengine: $(STAMPS)/test
	tests/live/megengine.sh $(BIN)/python

test-mxnet:
	tests/live/mxnet.sh

test-pythons:
	tests/live/pythons.sh $(ARGS)

test-peers: $(STAMPS)/test
	$(BIN)/python tests/peers/run.py $(ARGS)

fuzz: $(STAMPS)/test
	OPCOST_FUZZ=20000 OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto --dist worksteal \
		tests/fuzz tests/frontends/torch/stateful/test_interrupts.py $(ARGS)

mutate: $(STAMPS)/test
	$(BIN)/python benchmarks/mutate.py $(ARGS)

frozen: $(STAMPS)/test
	OMP_NUM_THREADS=1 $(BIN)/python tests/frozen/compare.py $(ARGS)

lint: $(STAMPS)/lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMPS)/lint
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(STAMPS)/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

release-check: $(STAMPS)/release
	$(BIN)/python tests/release/check.py $(ARGS)

bench: $(STAMPS)/test
	$(BIN)/python benchmarks/speed.py $(ARGS)

bench-timm: $(STAMPS)/test
	$(BIN)/python benchmarks/exact.py timm $(ARGS)

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(STAMPS)/package: pyproject.toml src/opcost/version.py | $(BIN)/python
	$(PIP) --editable .
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/torch: requirements/torch.txt $(STAMPS)/package
	$(PIP) --requirement requirements/torch.txt
	@touch $@

$(STAMPS)/test: requirements/test.txt requirements/traces.txt requirements/test-nodeps.txt $(STAMPS)/torch
	$(PIP) --requirement requirements/test.txt
	$(PIP) --no-deps --requirement requirements/test-nodeps.txt
	@touch $@

$(STAMPS)/docs: requirements/docs.txt $(STAMPS)/test  # the gallery counts models of timm
	$(PIP) --requirement requirements/docs.txt
	@touch $@

$(STAMPS)/release: requirements/release.txt | $(BIN)/python
	$(PIP) --requirement requirements/release.txt
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/lint: requirements/lint.txt requirements/traces.txt $(STAMPS)/package
	$(PIP) --requirement requirements/lint.txt
	@touch $@
