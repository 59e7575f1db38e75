# make run       install into .venv and start: this machine's GPUs, or the demo where no driver answers
# make check     lint, types, import contract, unit tests (about two minutes)
# make test-e2e  install a cluster on real hosts under systemd-nspawn (root, about ten minutes)
# make test      everything, with what the tests need installed first (root: Debian packages too)
# make bench     what the agent costs, beside a floor and other monitors (about seven minutes)
# make bench-fleet  what the server's poller costs with 1,000 and 10,000 hosts (about eight minutes)
# make bench-page  what the page costs: bytes, times, answers per second (about a minute)
# make bench-scrape  what /metrics costs with 1,000 hosts, beside prometheus-client
# make test-gpu  compare the readings with nvidia-smi on a machine with a real GPU (under 4 minutes)
# make openapi   write docs/openapi.json and docs/schema.json anew from the types
# make clean     remove what the above made

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.DEFAULT_GOAL := help
.PHONY: help run check test test-e2e test-gpu bench bench-fleet bench-page bench-scrape openapi clean

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
	cd ansible-install && PATH="$(CURDIR)/$(BIN):$$PATH" ansible-lint --offline -q --profile production
	$(BIN)/pytest -m "not system and not e2e"

test: $(VENV)/.dev
	tests/install-packages
	$(MAKE) check
	$(BIN)/pytest -m "system or e2e"

test-e2e: $(VENV)/.dev
	tests/install-packages
	$(BIN)/pytest -m e2e

bench: $(VENV)/.dev
	$(BIN)/python bench/agent.py

bench-fleet: $(VENV)/.dev
	$(BIN)/python bench/fleet.py

bench-page: $(VENV)/.dev
	$(BIN)/python bench/page.py

bench-scrape: $(VENV)/.dev
	$(BIN)/python bench/scrape.py

test-gpu: $(VENV)/.server
	$(BIN)/python tests/gpu/check.py

openapi: $(VENV)/.server
	$(BIN)/python -c 'import json; from gpumon.web.openapi import openapi; print(json.dumps(json.loads(openapi()), indent=1, ensure_ascii=False))' > docs/openapi.json
	$(BIN)/python -c 'import json; from gpumon.web.schema import json_schema; print(json.dumps(json.loads(json_schema()), indent=1, ensure_ascii=False))' > docs/schema.json

clean:
	rm -rf $(VENV) build dist *.egg-info test-artifacts .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	$(MAKE) --no-print-directory -C tests/fake_nvml clean
