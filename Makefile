# The book's commands. `make` alone lists them.
PYTHON ?= python3
DATA ?= generated
BIN := .venv/bin
PIP = $(BIN)/python -m pip install -q --disable-pip-version-check --no-deps
READY := .venv/.ready
AUDIT := pip-audit@2.10.1 --strict --disable-pip --require-hashes --vulnerability-service osv
TWO := --numprocesses 2 --dist loadfile
# Prints how long a target took, also when it failed
TIMED = @start=$$(date +%s); trap 'echo "== make $@: $$(($$(date +%s) - start)) s"' EXIT; set -e;

ifeq ($(filter $(DATA),generated FashionMNIST),)
$(error DATA is $(DATA), but there are only DATA=generated and DATA=FashionMNIST)
endif
export COMPARE # make book COMPARE=no: whatever the chapters print
export D2L_MGPU_SOURCE := $(if $(filter generated,$(DATA)),generated,real)

# Systems set LANGUAGE for their own messages; only what was typed after `make` counts.
ONE := $(if $(filter command line,$(origin LANGUAGE)),--language $(LANGUAGE))

.PHONY: gluon help book serve cards pdf notebooks locales sync format bench lock audit tag clean \
  test test-site test-slow test-faults portability

help: ## list the commands
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' Makefile | expand -t 20

book: $(READY) ## execute the chapters, write the site, compare with notebooks/ (COMPARE=no: do not)
	$(BIN)/python -m book.site html

serve: $(READY) ## serve the site, rebuild what changes (LANGUAGE=vi: that one only)
	@$(BIN)/python -m book.serve $(ONE)

cards: $(READY) ## draw the pictures of the site: cards for sharing, icons
	$(BIN)/python -m book.sharing.cards

pdf: $(READY) ## build the site and print it, one PDF a language (needs Chromium)
	$(BIN)/python -m book.site pdf

notebooks: $(READY) ## write notebooks/ from the chapters
	D2L_MGPU_SOURCE=generated $(BIN)/python -m book.site notebooks

locales: $(READY) ## bring the catalogues in locales/ up to the English text
	$(BIN)/python -m book.site locales

sync: $(READY) ## copy the package's functions into the chapters' saved cells
	$(BIN)/python -m book.sync

format: $(READY) ## let ruff format and fix the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

test: $(READY) ## lint, types, units, proofs, catalogues, notebooks (minutes, needs no built site)
	$(TIMED) $(BIN)/ruff check .; $(BIN)/ruff format --check .; $(BIN)/mypy d2l_mgpu book; \
	  $(BIN)/python -m pytest $(TWO)

test-site: $(READY) ## look at the built site in Chromium: languages, axe, keyboard, search, PDF
	$(TIMED) $(BIN)/python -m pytest $(TWO) -m site

test-slow: $(READY) ## several machines, kills, real images, MXNet, all notebooks (ONLY=test files)
	$(TIMED) $(BIN)/python -m pytest $(TWO) -m "slow and not faults" $(ONLY); \
	  $(if $(ONLY),,$(BIN)/python -m pytest --nbval $(TWO) notebooks/en)

test-faults: $(READY) ## kill a training run 20 times, launch 50 times
	$(TIMED) $(BIN)/python -m pytest -s -m faults

portability: $(READY) ## execute notebooks as other CPUs would, and under load (CHAPTERS="index fast")
	$(TIMED) $(BIN)/python -m book.portability $(CHAPTERS)

bench: $(READY) ## measure what the book says about speed (ROWS="ring buckets": only that)
	$(BIN)/python -m benchmarks $(ROWS)

book serve cards pdf notebooks locales test test-slow portability: gluon

gluon: $(READY)
	@$(BIN)/python -m book.execution.mxnet_kernel

lock: $(READY) ## lock what requirements*.txt ask for, with hashes (UPGRADE=yes: the newest)
	$(BIN)/python -m book.lock $(if $(UPGRADE),--upgrade)
	@$(MAKE) --no-print-directory $(READY)

audit: $(READY) ## ask the database of known vulnerabilities about what is locked (needs its server)
	for lock in requirements*.lock; do $(BIN)/uv tool run $(AUDIT) -r $$lock || exit 1; done

tag: ## tag the version that notebooks install (publish.yml does it)
	@$(PYTHON) -m book.release

clean: ## remove what was built, but not the environment
	rm -rf _build

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' || { \
	  echo "The book needs Python 3.11 to 3.14. Type: make PYTHON=python3.13 $(MAKECMDGOALS)"; exit 1; }
	$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear .venv
	$(PIP) --require-hashes -r requirements.lock
	$(PIP) --no-build-isolation -e .
	touch $@
