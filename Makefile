# Everything a fresh machine needs is here: `make run` and `make test` set up by themselves.
SHELL := /bin/sh
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
NATS := .cache/nats
LOCK := deploy/requirements.lock
DEV_LOCK := deploy/requirements-dev.lock
# Twice the two cores of CI: a third of a test's time is spent waiting.
WORKERS ?= 4
# Some container images set it; every process of the tests would compile all modules again.
unexport PYTHONDONTWRITEBYTECODE
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

COMPILE := $(BIN)/uv pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes --quiet \
	--no-emit-index-url --no-emit-find-links --custom-compile-command "make lock"

.PHONY: help setup run test nightly bench lint lock generate format clean

help:
	@echo "make run      set up, then start everything with a sample journal (Ctrl-C stops it); settings are"
	@echo "              environment variables, for example CREW_JOURNAL_HTTP=127.0.0.1:9120 (docs/settings.md)"
	@echo "make test     set up, then run the tests (bounded sizes)"
	@echo "make nightly  the full-size fault and property runs"
	@echo "make bench    the benchmarks; figures as JSON, see bench/README.md"
	@echo "make lint     ruff, mypy (strict), import rules"
	@echo "make generate what follows from the declarations: client methods, docs/operations.md, docs/events.md,"
	@echo "              the tables of settings and sweeps, JSON Schemas"
	@echo "make setup    only set up what running needs: $(VENV), nats-server, MiniLM weights"
	@echo "make lock     bring the locks in deploy/ in line with pyproject.toml; UPGRADE=1 takes the newest releases"

$(VENV)/.installed: pyproject.toml $(LOCK)
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed, this is " + sys.version.split()[0]) if sys.version_info < (3, 11) else None'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) --require-hashes -r $(LOCK)
	$(PIP) --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed $(DEV_LOCK)
	$(PIP) --require-hashes -r $(DEV_LOCK)
	@touch $@

setup: $(VENV)/.installed
	@deploy/install-nats $(NATS) >/dev/null || $(BIN)/crew-journal broker install --nats-dir $(NATS) >/dev/null
	@$(BIN)/crew-journal model install minilm >/dev/null

run: setup
	@exec $(BIN)/crew-journal up --sample --data-dir "$${CREW_JOURNAL_DATA_DIR:-.crew-journal}"

test: setup $(VENV)/.installed-dev
	$(BIN)/python -m pytest -m "not nightly" --workers $(WORKERS)

nightly: setup $(VENV)/.installed-dev
	$(BIN)/python -m pytest -m "nightly or not nightly" --hypothesis-profile=nightly

bench: setup $(VENV)/.installed-dev
	$(BIN)/python -m bench

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

generate: $(VENV)/.installed-dev
	$(BIN)/python -m crew_journal.services.generate .
	$(BIN)/ruff format --quiet services/client/generated*.py
# Each file is for all systems and for Python 3.11 and newer (markers). uv is used only here and is not a dependency.
lock:
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) uv
	$(COMPILE) --extra dev $(if $(UPGRADE),--upgrade) -o $(DEV_LOCK)
	$(COMPILE) --extra setup --upgrade -c $(DEV_LOCK) -o $(LOCK)

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix --quiet .
	$(BIN)/ruff format --quiet .

clean:
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist *.egg-info
