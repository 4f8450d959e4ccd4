# `make demo` and `make test` do everything from a bare Python 3.11: virtual environment, packages, services.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
BIN = $(VENV)/bin
ARGS ?=
SOAK_SECONDS ?= 300
# What the package cache holds is taken without asking the index; only when something is missing is it asked.
INSTALL = $(BIN)/uv pip install --quiet --python $(BIN)/python --requirement requirements.txt --no-deps --editable .
# An index that only pip is configured for is asked by pip.
INSTALL_BY_PIP = { $(BIN)/python -m pip install --quiet --requirement requirements.txt && \
	$(BIN)/python -m pip install --quiet --no-deps --editable . ; }
# Spark starts many Python processes; without cached byte code each would compile all that it imports.
export PYTHONDONTWRITEBYTECODE =

.PHONY: help setup demo test soak dbt unit check format lock docs clean

help:  ## Show the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'

$(VENV)/.installed: requirements.txt pyproject.toml
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; set PYTHON=/path/to/python3.11" >&2; exit 2; }
	@test -x $(BIN)/python || "$(PYTHON)" -m venv $(VENV)
	@echo "Installing packages into $(VENV) ..." >&2
	@$(BIN)/python -m pip install --quiet 'uv>=0.9,<1' >&2
	@$(INSTALL) --offline 2>/dev/null || $(INSTALL) 2>/dev/null || $(INSTALL_BY_PIP) >&2
	@touch $@

setup: $(VENV)/.installed  ## Make the virtual environment

demo: setup  ## Run the main job on the flights of New York; ARGS="--json" or ARGS="--serve"
	@$(BIN)/pgtrickle demo $(ARGS)

test: setup  ## Run all tests
	@$(BIN)/python -m pytest $(ARGS)

soak: setup  ## Everything at once with random kills; SOAK_SECONDS=1800 for the long run
	@$(BIN)/python -m pytest -m "nightly or not nightly" tests/e2e/test_soak.py --soak-seconds $(SOAK_SECONDS) $(ARGS)

dbt: setup  ## Install the extra "dbt" too, and run the example of dbt models and stream tables in one lake
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --editable '.[dbt]' || $(BIN)/python -m pip install --quiet --editable '.[dbt]'
	@$(BIN)/python -m pytest -m "nightly or not nightly" tests/e2e/test_medallion.py $(ARGS)

unit: setup  ## Run the tests that need neither a JVM nor a database
	@$(BIN)/python -m pytest tests/unit $(ARGS)

check: setup  ## Lint, format, types, import rules, generated pages
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports
	$(BIN)/python docs/generate.py --check

format: setup  ## Format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: setup  ## Write the generated pages of docs/
	$(BIN)/python docs/generate.py

lock: setup  ## Write requirements.txt from pyproject.toml
	@{ echo '# All versions that the project is tested with. Made by `make lock` from pyproject.toml.'; \
	   $(BIN)/uv pip compile pyproject.toml --group dev --no-emit-index-url --no-annotate --no-header --quiet; } > requirements.new
	@mv requirements.new requirements.txt

clean:  ## Remove the virtual environment and caches
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .ruff_cache .hypothesis
