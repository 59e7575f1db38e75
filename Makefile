# make run       install into .venv and start: this machine's GPUs, or the demo where no driver answers
# make check     lint, types, import contract, unit tests (about two minutes)
# make test      everything, with what the tests need installed first (root: Debian packages too)
# make bench     what the agent costs, beside a floor and other monitors (about five minutes)
# make bench-page  what the page costs: bytes, times, answers per second (about a minute)
# make test-gpu  compare the readings with nvidia-smi on a machine with a real GPU (under 4 minutes)
# make clean     remove what the above made

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.DEFAULT_GOAL := help
.PHONY: help run check test test-gpu bench bench-page clean

help:
	@sed -n 's/^# //p' Makefile

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
	  echo "gpumon needs Python 3.10 or newer, $(PYTHON) is $$($(PYTHON) -V 2>&1)." \
	       "Name another one: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "$(PYTHON) -m venv failed. On Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }

$(VENV)/.server: $(VENV)/bin/python pyproject.toml
	@echo "Installing gpumon into $(VENV) ..."
	@$(PIP) install --editable '.[server]'
	@touch $@

$(VENV)/.dev: $(VENV)/bin/python pyproject.toml
	@echo "Installing gpumon and its development tools into $(VENV) ..."
	@$(PIP) install --editable '.[dev]'
	@touch $@ $(VENV)/.server

run: $(VENV)/.server
	@exec $(BIN)/gpumon up --or-demo --config config.yml

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/pytest -m "not system"

test: $(VENV)/.dev
	tests/install-packages
	$(MAKE) check
	$(BIN)/pytest -m system

bench: $(VENV)/.dev
	$(BIN)/python bench/agent.py

bench-page: $(VENV)/.dev
	$(BIN)/python bench/page.py

test-gpu: $(VENV)/.server
	$(BIN)/python tests/gpu/check.py

clean:
	rm -rf $(VENV) build dist *.egg-info test-artifacts .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	$(MAKE) --no-print-directory -C tests/fake_nvml clean
