# Two commands set up everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
DEMO   := $(VENV)/.demo
DEV    := $(VENV)/.dev
MODELS ?= .models
EXTRA  ?= vision
# What developers need; the workflow adds `trackers` once, whose packages are large.
EXTRAS ?= all,dev
# `make test VERSIONS=oldest` installs the lower bounds of pyproject.toml instead of the newest versions.
VERSIONS ?= newest
UV     := $(BIN)/python -m uv pip install -q --python $(BIN)/python --resolution lowest-direct
INSTALL := $(if $(filter oldest,$(VERSIONS)),$(BIN)/python -m pip install -q uv && $(UV),$(BIN)/python -m pip install -q)

.PHONY: demo test test-anywhere fuzz lint bench docs dist installed models clean

demo: $(DEMO)
	$(BIN)/unsmooth demo

test: $(DEV)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

# The numerical tests as other machines would run them: slow; see tests/anywhere.py.
test-anywhere: $(DEV)
	$(BIN)/python tests/anywhere.py

# Damaged files, odd tensors and command lines for some minutes, from a seed; see tests/fuzz and docs/robustness.md.
fuzz: $(DEV)
	cd tests && OMP_NUM_THREADS=1 $(abspath $(BIN))/python -m fuzz --minutes $(or $(MINUTES),10) --seed $(or $(SEED),0)

lint: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/check-jsonschema -q --builtin-schema vendor.github-workflows .github/workflows/*.yml

bench: $(DEV)
	$(BIN)/python -m benchmarks

# The documentation site, in site/; a warning is an error.
docs: $(DEV)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

# What is published: an sdist and a wheel in dist/, checked; with TAG=v0.2.0 only if that is the version.
dist: $(DEV)
	$(BIN)/python -c "import unsmooth; assert '$(TAG)' in ('', f'v{unsmooth.__version__}'), unsmooth.__version__"
	rm -rf dist
	$(BIN)/python -m pip install -q build twine
	$(BIN)/python -m build -q
	$(BIN)/twine check --strict dist/*

# The wheel in dist/ with one extra (EXTRA=lean, vision, text or all), in an environment of its own with mypy: does it
# measure, and do its types reach a user's program?
installed:
	rm -rf build/$(EXTRA)
	$(PYTHON) -m venv build/$(EXTRA)
	build/$(EXTRA)/bin/python -m pip install -q "$$(ls $(CURDIR)/dist/*.whl)$(if $(filter lean,$(EXTRA)),,[$(EXTRA)])" mypy
	cd build/$(EXTRA) && bin/python $(CURDIR)/tests/installed.py $(EXTRA)

# Real pretrained models for the tests marked `real` (about 1.1 GB); see CONTRIBUTING.
models: $(DEV)
	test ! -f ../shared/tools/get_models.py || $(BIN)/python ../shared/tools/get_models.py $(MODELS)

# Installed once; again only when the project's dependencies change. The demo needs one extra, developers need all.
$(DEMO): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(INSTALL) -e ".[vision]"
	touch $@

$(DEV): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(INSTALL) -e ".[$(EXTRAS)]"
	touch $(DEMO) $@

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache
