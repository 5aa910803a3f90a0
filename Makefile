PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: setup native demo test lint bench mutants clean

setup: native

# Installs once; again only when the dependencies change.
$(READY): pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[all,dev]'
	touch $@

# Compiles the native libraries whose sources have changed; without a compiler it says so, and goes on.
native: $(READY)
	$(BIN)/python hatch_build.py

demo: setup
	$(BIN)/torch-boc demo

# Each core runs whole files of tests, in the order of the folders; four processes need 8 GB of memory.
test: lint
	$(BIN)/python -m pytest --numprocesses logical --maxprocesses 4 --dist loadfile --no-loadscope-reorder

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: setup
	$(BIN)/python -m benchmarks.probe
	$(BIN)/python -m benchmarks.gradient
	$(BIN)/python -m benchmarks.paths
	$(BIN)/python -m benchmarks.metric
	$(BIN)/python -m benchmarks.callback
	$(BIN)/python -m benchmarks.predictor
	$(BIN)/python -m benchmarks.fleet
	$(BIN)/python -m benchmarks.evaluation
	$(BIN)/python -m benchmarks.conformal
	$(BIN)/python -m benchmarks.tokens
	$(BIN)/python -m benchmarks.decisions
	$(BIN)/python -m benchmarks.scores
	$(BIN)/python -m benchmarks.recipes.band

# How many small faults in the package do the tests find? Under 30 minutes on 2 idle cores.
mutants: setup
	$(BIN)/python -m benchmarks.mutants

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis torch_boc/kernels/cpu/lib
