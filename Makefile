# Everything a fresh machine needs is here: `make run` and `make test` set up by themselves.
SHELL := /bin/sh
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
NATS := .cache/nats
LOCK := deploy/requirements.lock
# Twice the two cores of CI: a third of a test's time is spent waiting.
WORKERS ?= 4
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: help setup run test nightly bench lint lock generate format clean

help:
	@echo "make run      set up, then start everything with a sample journal (Ctrl-C stops it); settings are"
	@echo "              environment variables, for example CREW_JOURNAL_HTTP=127.0.0.1:9120 (docs/settings.md)"
	@echo "make test     set up, then run the tests (bounded sizes)"
	@echo "make nightly  the full-size fault and property runs"
	@echo "make bench    the benchmarks; figures as JSON, see bench/README.md"
	@echo "make lint     ruff, mypy (strict), import rules"
	@echo "make generate the client's methods and docs/operations.md, from schemas/operations"
	@echo "make setup    only set up: $(VENV), nats-server, MiniLM weights"
	@echo "make lock     bring $(LOCK) in line with pyproject.toml; UPGRADE=1 takes the newest releases"

$(VENV)/.installed: pyproject.toml $(LOCK)
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed, this is " + sys.version.split()[0]) if sys.version_info < (3, 11) else None'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) --require-hashes -r $(LOCK)
	$(PIP) --no-deps --no-build-isolation -e .
	@touch $@

setup: $(VENV)/.installed
	@deploy/install-nats $(NATS) >/dev/null || $(BIN)/crew-journal broker install --nats-dir $(NATS) >/dev/null
	@$(BIN)/crew-journal embedder install minilm >/dev/null

run: setup
	@exec $(BIN)/crew-journal up --sample

test: setup
	$(BIN)/python -m pytest -m "not nightly" -n $(WORKERS) --dist worksteal

nightly: setup
	$(BIN)/python -m pytest -m "nightly or not nightly" --hypothesis-profile=nightly

bench: setup
	$(BIN)/python -m bench

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

generate: $(VENV)/.installed
	$(BIN)/python -m crew_journal.services.generate .
	$(BIN)/ruff format --quiet services/client/generated*.py
# One file for all systems and for Python 3.11 and newer (markers). uv is used only here and is not a dependency.
lock:
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) uv
	$(BIN)/uv pip compile pyproject.toml --extra dev --universal --python-version 3.11 --generate-hashes --quiet \
		--no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" $(if $(UPGRADE),--upgrade) -o $(LOCK)

format: $(VENV)/.installed
	$(BIN)/ruff check --fix --quiet .
	$(BIN)/ruff format --quiet .

clean:
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist *.egg-info
