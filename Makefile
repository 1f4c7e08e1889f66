PYTHON ?= $(shell command -v python3.11 || command -v python3)
WORKERS ?= 2
BIN := .venv/bin
INSTALLED := .venv/installed

export OMP_NUM_THREADS = 1

.DEFAULT_GOAL := help
.PHONY: help install demo test extended thorough golden lint types imports docs web web-check clean

help:            ## list what can be made
	@grep -E '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 12

install: $(INSTALLED)  ## create .venv with the pinned development environment

$(INSTALLED): requirements/dev.txt pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements/dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $@

demo: $(INSTALLED)  ## check the tutorial examples and show what is wrong with them
	@echo '$$ pullback check examples/tutorial/as_published.py'
	@$(BIN)/pullback check examples/tutorial/as_published.py || test $$? -eq 1

test: $(INSTALLED)  ## run the tests
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile -m "not slow and not extended"

extended: $(INSTALLED)  ## run the tests with many processes, compilers and browsers too
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile -m "extended and not slow"

thorough: $(INSTALLED)  ## run all tests, the slow ones too
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile

golden: $(INSTALLED)  ## write the table of what the battery says about every mutant
	$(BIN)/python scripts/golden.py

lint: $(INSTALLED)  ## ruff: rules and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(INSTALLED)  ## pyright
	$(BIN)/pyright

imports: $(INSTALLED)  ## the layers: imports go downward only
	$(BIN)/lint-imports

docs: $(INSTALLED)  ## build the documentation, warnings are errors
	$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/html

web:             ## build the report page from web/ with the locked npm packages (needs Node 20.19 or newer)
	cd web && npm ci && npm run build

web-check:       ## build the page in a fresh folder and compare it with the committed one; skipped where npm is not to be had
	$(PYTHON) scripts/check_web.py

clean:           ## remove what was built, but not .venv
	rm -rf build dist docs/_build docs/reference/generated .pytest_cache .ruff_cache .import_linter_cache
