# `make demo` shows REALM pre-training at work, `make test` checks the code. Both make .venv first.
# `make lint` checks style, types, and that documents, pins and names hold together; `make test-all`
# also runs the tests that take minutes. `make interop` runs those of extras. `make parity` compares with
# transformers and `make t5x` tests the adapter for t5x, each in an environment of its own.
# `make docs` builds the documents as a site in build/site.

.PHONY: demo test test-all interop parity t5x lint docs dist clean
.DELETE_ON_ERROR:

SUPPORTED := import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))
PYTHON ?= $(shell for p in python3.12 python3.11 python3.13 python3; do \
  $$p -c '$(SUPPORTED)' >/dev/null 2>&1 && { echo $$p; break; }; done)

# On small virtual machines page faults cost up to half of the time: keep freed memory instead, and
# in one arena, because glibc gives back what the others free.
export MALLOC_ARENA_MAX ?= 1
export MALLOC_MMAP_MAX_ ?= 0
export MALLOC_TRIM_THRESHOLD_ ?= 34359738368
export TF_CPP_MIN_LOG_LEVEL ?= 3

# Tests of the repository itself, which `make lint` runs.
REPOSITORY := $(addprefix tests/,architecture_test.py axis_letters_test.py docs_test.py gin \
  interop_test.py pins_test.py public_names_test.py wheel_test.py)
PYTEST := .venv/bin/python -m pytest -q -n 2 --dist worksteal

INTEROP := beam,faiss,mcp,parquet,xmanager
TESTED := train,serve,documents,gcs,trec,watch

# Thousands of modules are compiled at their first import, not by every process.
unexport PYTHONDONTWRITEBYTECODE

demo: .venv/installed
	.venv/bin/realm demo --gin_file=gin/experiments/demo.gin --workdir=runs/demo

test: .venv/installed
	$(PYTEST) -m 'not slow' $(addprefix --ignore=,$(REPOSITORY))

test-all: .venv/installed
	$(PYTEST) $(addprefix --ignore=,$(REPOSITORY))

lint: .venv/installed
	.venv/bin/ruff check --quiet .
	.venv/bin/ruff format --check --quiet .
	.venv/bin/basedpyright --level error
	$(PYTEST) $(REPOSITORY)

docs: .venv/docs-installed
	NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --quiet --strict

# With REPOSITORY_URL=https://HOST/OWNER/realm_jax the links of the README are absolute.
dist: .venv/release-installed
	rm -rf build/dist
	.venv/bin/python -m build --outdir build/dist .
	.venv/bin/twine check --strict build/dist/*

interop: .venv-interop/installed
	.venv-interop/bin/python -m pytest -q -n 2 --dist worksteal -m interop \
	  $$(grep -rl --include='*_test.py' 'mark.interop' tests)

parity: .venv-parity/installed
	.venv-parity/bin/python -m pytest -q -m parity --timeout=600

t5x: .venv-t5x/installed
	.venv-t5x/bin/python -m pytest -q tests/t5x_adapter

clean:
	rm -rf .venv .venv-interop .venv-parity .venv-t5x build *.egg-info .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

define environment
@test -n '$(PYTHON)' && $(PYTHON) -c '$(SUPPORTED)' 2>/dev/null || { echo 'make: no Python 3.11 to 3.13 found;' \
  'name one with make PYTHON=/path/to/python3.12' >&2; exit 1; }
@$(PYTHON) -m venv $(@D) || { echo 'make: $(PYTHON) cannot make $(@D);' \
  'install its venv module (Debian: python3-venv)' >&2; exit 1; }
@echo 'Installing into $(@D) (about $(1) GB, a few minutes) ...'
endef
PIP = $(@D)/bin/python -m pip install --quiet --no-compile --disable-pip-version-check
# 25.1 is the first pip that knows dependency groups.
INSTALL = $(PIP) 'pip>=25.1,<26' && $(PIP)

.venv/installed: setup.py pyproject.toml constraints.txt
	$(call environment,3)
	@$(INSTALL) --group test --editable '.[$(TESTED)]' --constraint constraints.txt
	@touch $@

.venv/docs-installed: .venv/installed
	@$(INSTALL) --group docs --constraint constraints.txt
	@touch $@

.venv/release-installed: .venv/installed
	@$(INSTALL) --group release --constraint constraints.txt
	@touch $@

# Packages that .venv has are taken from there.
.venv-interop/installed: .venv/installed
	$(call environment,4)
	@for site in $(@D)/lib/python3*/site-packages; do \
	  echo "../../../../.venv/$${site#*/}" > $$site/venv.pth; done
	@$(INSTALL) --group test --group interop \
	  --editable '.[$(TESTED),$(INTEROP)]' --constraint constraints.txt
	@touch $@

# The last transformers with REALM and the older releases that it wants.
.venv-parity/installed: setup.py pyproject.toml constraints.txt
	$(call environment,6)
	@grep -vE '^(huggingface-hub|sentence-transformers|tokenizers|transformers)==' constraints.txt > $(@D)/constraints.txt
	@$(INSTALL) --group test --group parity \
	  --editable '.[$(TESTED)]' --constraint $(@D)/constraints.txt
	@touch $@

# T5X=DIRECTORY installs its checkouts airio, jestimator and t5x instead of downloading them.
.venv-t5x/installed: setup.py pyproject.toml constraints.txt requirements-t5x.txt
	$(call environment,3)
	@$(INSTALL) --group test --editable '.[$(TESTED),t5x]' --constraint constraints.txt
	@$(INSTALL) --no-deps $(if $(T5X),$(patsubst %,'$(T5X)/%',airio jestimator t5x), \
	  --requirement requirements-t5x.txt)
	@touch $@
