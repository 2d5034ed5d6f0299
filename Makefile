# The same verbs for people and for CI. Each target installs what it needs; the first run takes a minute or two.

PYTHON  ?= $(shell python3.11 -V >/dev/null 2>&1 && echo python3.11 || echo python3)
BIN     := .venv/bin
PIP     := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt
# Workers share the cores: a thread that waits by spinning would take one from another worker.
PYTEST  := OMP_WAIT_POLICY=passive $(BIN)/pytest --numprocesses auto --dist worksteal
SOURCES := src tests tools benchmarks examples
SUITES  := dense_training ragged_training inference drop_in company real_models call_overhead own_cells matrix_cells plain_loop \
           against_tensorflow first_call memory parallel_iterations cross_entropy epoch swap_memory

.PHONY: help setup demo test test-gpu browser sanitize bench-gpu smoke check format coverage bench peers company models docs goldens clean
.DEFAULT_GOAL := help

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

setup: .venv/installed  ## create .venv and install the package, its tests and its linters

demo: setup  ## the contract on a small example, then a speaker classifier trained on real data
	$(BIN)/throughtime demo

test: setup  ## all tests, in parallel; says at the end what they covered
	$(PYTEST)

test-gpu: setup  ## conformance of kernels on a GPU
	$(PYTEST) -q tests/gpu

browser:  ## install Debian's chromium, in which the tests open reports; as root
	command -v chromium >/dev/null || { apt-get update && apt-get install --yes --no-install-recommends chromium; }

sanitize: setup  ## small kernels under memcheck and racecheck of compute-sanitizer
	$(BIN)/python tools/sanitize.py --save benchmarks/results/$$(date +%F)-gpu-sanitizer.txt

bench-gpu: setup  ## measure against cuDNN and eager loops, on a GPU
	$(BIN)/python benchmarks/gpu_cudnn.py
	$(BIN)/python benchmarks/gpu_own_cells.py
	$(BIN)/python benchmarks/gpu_graphs.py
	$(BIN)/python benchmarks/gpu_call.py
	$(BIN)/python benchmarks/swap_memory.py
	$(BIN)/python tools/tables.py
	$(BIN)/python tools/pictures.py

smoke: setup  ## the whole in ten seconds
	$(BIN)/pytest -q tests/test_smoke.py

check: setup  ## formatting, lint and types
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/mypy --strict src
	$(BIN)/mypy --follow-imports=silent tools benchmarks examples

format: setup  ## rewrite the sources as `make check` wants them
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check --fix $(SOURCES)

coverage: setup  ## all tests, then the lines of the package that none of them ran
	$(PYTEST) --cov --cov-report=term

bench: setup  ## measure speed and memory against torch, ONNX Runtime and TensorFlow; a quarter of an hour
	@$(BIN)/python benchmarks/peer.py
	@for suite in $(SUITES); do $(BIN)/python benchmarks/$$suite.py || exit 1; done
	$(BIN)/python tools/tables.py
	$(BIN)/python tools/pictures.py

peers: .venv-peers/onnxruntime/installed .venv-tf/installed company models  ## install those that `make bench` compares with

company: .venv-peers/company/installed  ## install packages with an OpenMP runtime of their own, beside .venv's torch

models: .venv-peers/models/installed  ## install the packages of benchmarks/real_models.py, beside .venv's torch

docs: .venv/installed-docs  ## build the documentation into docs/_site; a broken link is an error
	$(BIN)/zensical build --clean --strict
	@echo "open docs/_site/index.html"

goldens: .venv-tf/installed  ## record tests/goldens again from real TensorFlow
	TF_USE_LEGACY_KERAS=1 TF_CPP_MIN_LOG_LEVEL=3 CUDA_VISIBLE_DEVICES= \
	  .venv-tf/bin/python tools/record_goldens.py --out tests/goldens
	TF_CPP_MIN_LOG_LEVEL=3 .venv-tf/bin/python tools/record_checkpoints.py --out tests/goldens/checkpoints

clean:  ## remove build products and caches; the environments stay
	rm -rf build dist docs/_site .cache .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage*
	find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(PIP) --editable '.[test]'
	@touch $@

.venv/installed-docs: .venv/installed
	$(PIP) --editable '.[docs]'
	@touch $@

# A link to a folder that was removed counts as none.
.venv-peers:
	rm -f $@ && mkdir $@

.venv-peers/onnxruntime/installed: constraints.txt | .venv-peers
	$(PYTHON) -m venv .venv-peers/onnxruntime
	.venv-peers/onnxruntime/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt \
	  'onnxruntime==1.31.*' onnx numpy
	@touch $@

# An environment that has all of .venv, torch and this package too, and packages of its own.
BESIDE = $(PYTHON) -m venv $(@D) && printf '%s\n' '$(CURDIR)/src' \
  $$($(BIN)/python -c "import sysconfig; print(sysconfig.get_path('purelib'))") \
  > $$($(@D)/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/beside.pth
PIP_BESIDE = $(@D)/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt

.venv-peers/company/installed: .venv/installed benchmarks/company.txt | .venv-peers
	$(BESIDE)
	$(PIP_BESIDE) --requirement benchmarks/company.txt
	@touch $@

# PyPI's torchaudio has an extension that wants CUDA's libraries; without it, torchaudio does without.
.venv-peers/models/installed: .venv/installed benchmarks/real_models.txt benchmarks/real_models_alone.txt | .venv-peers
	$(BESIDE)
	$(PIP_BESIDE) --requirement benchmarks/real_models.txt
	$(PIP_BESIDE) --no-deps --requirement benchmarks/real_models_alone.txt
	rm -f $(@D)/lib/python*/site-packages/torchaudio/lib/*.so
	@touch $@

.venv-tf/installed:
	$(PYTHON) -m venv .venv-tf
	.venv-tf/bin/pip install --quiet --disable-pip-version-check 'tensorflow-cpu==2.21.*' 'tf_keras==2.21.*'
	@touch $@
