# Needs Python 3.11 or newer and make; everything else is installed into .venv by the targets themselves.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed

.PHONY: help run test test-all lint check bench clean

help: ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/:/' | column -t -s ':'

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "ascendsim needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

run: $(STAMP) ## the main job: backward of a ResNet-50 layer, bits and cycles, with a report folder
	$(VENV)/bin/ascendsim run s3b1_3x3 --batch 4 --product 910B --out out/main-job

test: $(STAMP) ## the tests
	$(PY) -m pytest

test-all: $(STAMP) ## the tests with the slow, exhaustive ones
	$(PY) -m pytest -m "slow or not slow"

lint: $(STAMP) ## ruff and mypy
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

check: lint test ## everything a commit must pass

bench: $(STAMP) ## the speed figures, as ratios within one run
	$(PY) -m benchmarks

clean: ## remove the environment and what was built
	rm -rf $(VENV) build dist out
