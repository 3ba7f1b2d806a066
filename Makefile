# Two commands are enough: `make demo` and `make test`. Each sets up what it needs first.
PYTHON ?= python3
RUN := .venv/bin/python
SETUP := $(PYTHON) scripts/setup.py

.DEFAULT_GOAL := help
.PHONY: help setup demo test unit lint format bench soak lock clean

help: ## say what there is
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## set everything up: .venv, Java, jars, test servers
	@$(SETUP) test

demo: ## a small lake on this machine: Spark up, a row written to a table and read back
	@$(SETUP) demo
	@.venv/bin/catchment demo

test: ## every test: unit, contract, model, Spark, real servers
	@$(SETUP) test
	@$(RUN) scripts/tests.py

unit: ## the quick tests: seconds, no Java
	@$(SETUP) unit
	@$(RUN) -m pytest tests/unit

lint: ## style, types, and the walls between rooms
	@$(SETUP) unit
	@$(RUN) -m ruff check
	@$(RUN) -m ruff format --check
	@$(RUN) -m mypy
	@.venv/bin/lint-imports --no-logo

format: ## put the code into shape
	@$(SETUP) unit
	@$(RUN) -m ruff check --fix
	@$(RUN) -m ruff format

bench: ## measurements, side by side
	@$(SETUP) test
	@$(RUN) -m bench

soak: ## the long forms of the proofs
	@$(SETUP) test
	@CATCHMENT_SOAK=1 $(RUN) -m pytest -m soak

COMPILE := .venv/bin/uv pip compile --quiet --universal --generate-hashes --python-version 3.11 \
	--no-emit-index-url --no-emit-find-links --no-annotate --no-header --upgrade

lock: ## choose newer dependencies and lock them
	@$(SETUP) unit
	@$(COMPILE) requirements/tools.in -o requirements/tools.txt
	@$(COMPILE) requirements/go.in -o requirements/go.txt
	@$(COMPILE) --extra spark --extra testing --group dev --constraint requirements/tools.txt pyproject.toml -o requirements/dev.txt
	@$(RUN) scripts/lock_jars.py

clean: ## remove .venv and what tools left behind; the cache of jars stays
	@rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis build dist
	@rm -f src/catchment/spark/logstore.jar
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
