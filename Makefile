# Needs Python 3.11 or newer and make; everything else is installed into .venv by the targets themselves.
PYTHON ?= $(shell command -v python3.11 || command -v python3 || echo python3)
VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip install --quiet --disable-pip-version-check
INSTALLED := $(VENV)/.installed
WITH_TOOLS := $(VENV)/.installed-with-tools

.PHONY: help run test test-all lint check bench reports fuzz site clean

help: ## show this list
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1: \2/p' $(MAKEFILE_LIST)

$(INSTALLED): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "ascendsim needs Python 3.11 or newer: make PYTHON=/path/to/python3.11 ..."; exit 1; }
	@echo "Installing ascendsim into $(VENV), once ..."
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) -e .
	@touch $@

$(WITH_TOOLS): $(INSTALLED)
	@echo "Installing the tools for development into $(VENV), once ..."
	@$(PIP) -e '.[dev]'
	@touch $@

PRODUCTS := 910B 910_93 910_95 310P 910

run: $(INSTALLED) ## the main job: backward of a ResNet-50 layer on every product, with a report folder
	$(VENV)/bin/ascendsim run s3b1_3x3 --batch 4 $(PRODUCTS:%=--product %) --interval --out out/main-job

test: $(WITH_TOOLS) ## the tests, by two processes
	$(PY) -m pytest -n 2

test-all: $(WITH_TOOLS) ## the tests with the slow, exhaustive ones
	$(PY) -m pytest -m "slow or not slow"

lint: $(WITH_TOOLS) ## ruff and mypy
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

check: lint test ## everything a commit must pass

bench: $(WITH_TOOLS) ## the speed figures, as ratios within one run
	$(PY) -m benchmarks

reports: $(WITH_TOOLS) ## write the pages under reports/ anew; validation.md needs the data that ASCENDSIM_DATA names
	$(PY) -m pytest -m "slow or not slow" tests/reports/test_reports_committed.py --update

FUZZ_SECONDS = $(or $(SECONDS),60)

fuzz: $(WITH_TOOLS) ## random calls at every door: make fuzz SECONDS=600, or what a failure says to paste
	PYTHONPATH=tools:. $(PY) -W error -m fuzz --seconds $(FUZZ_SECONDS) $(FUZZ)

site: $(WITH_TOOLS) ## the pages as a site, in out/site; a link that leads nowhere is an error
	@$(PIP) -e '.[site]'
	@NO_MKDOCS_2_WARNING=1 DISABLE_MKDOCS_2_WARNING=true $(PY) -m mkdocs build --quiet

clean: ## remove the environment and what was built
	rm -rf $(VENV) build dist out
