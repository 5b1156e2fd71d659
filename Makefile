# Two commands do everything on a fresh machine: `make demo` and `make test`. Both set up first.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
# More than there are CPUs: most tests wait half of their time, for a lease or a delay, and use none meanwhile.
WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) '*' 2 + 1)

.PHONY: setup demo demo-approval test test-long crash-matrix lint bench-step rolling-restart hard-ends docs clean

setup: $(STAMP)

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $(STAMP)

lint: setup
	$(BIN)/ruff check plaita tests benchmarks examples
	$(BIN)/ruff format --check plaita tests benchmarks examples
	$(BIN)/lint-imports
	$(BIN)/mypy

test: lint
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not long"

test-long: setup
	PLAITA_TEST_COLD=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

crash-matrix: setup
	$(BIN)/python tests/faults/crash_matrix.py

demo: setup
	$(BIN)/python examples/demo/run.py

demo-approval: setup
	$(BIN)/python examples/approval/run.py

bench-step: setup
	$(BIN)/python benchmarks/bench_step.py

rolling-restart: setup
	$(BIN)/python benchmarks/rolling_restart.py

hard-ends: setup
	$(BIN)/python benchmarks/hard_ends.py

docs: setup
	$(BIN)/python -m plaita.policy.print_tables > docs/state-machines.md
	$(BIN)/python -m plaita.runtime_config.print_reference > docs/configuration.md

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .import_linter_cache build dist
