# rolecall: every task of the project is a target here. `make help` lists them.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# Containers often forbid it. Then every process compiles what it imports anew: the start of an operator takes half as long again.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= python3
# A uv on PATH is used as it is; without one, a private one is installed below .venv-uv.
UV ?= $(or $(shell command -v uv),.venv-uv/bin/uv)
BIN := .venv/bin
RUN := PATH="$(CURDIR)/$(BIN):$$PATH"
SOURCES := src tests bench build tools roles/*/filter_plugins
PLAYS := roles playbooks molecule src/rolecall/collections

# Both test commands run two targets at a time. The output of each is kept together and printed when it ends.
TESTS := $(firstword $(filter test test-all,$(MAKECMDGOALS)))
ifneq ($(TESTS),)
MAKEFLAGS += --jobs=2 --output-sync=target
$(info Two targets at a time, the output of each when it ends)
endif
# One more than small machines have processors: a third of the time tests wait, for a process or for a time to pass.
WORKERS ?= 3

HISTORIES ?= 1-200 --outage 150

# Versions of ansible-core, each with a Python for it. The group of uv.lock also has the package "ansible" of the version.
CORES ?= 2.18@3.12 2.19@3.11 2.20@3.12 2.21@3.13 2.21@3.14 2.22@3.13
MATRIX := $(addprefix tests/integration/,test_existing_roles.py test_runner.py test_warm.py test_odd_objects.py test_planned_runs.py)

IMG ?= localhost/rolecall:dev
# The name of a release's image. RELEASE="--no-image" makes a release without one.
RELEASED_IMG ?= localhost/rolecall:$(VERSION)
KUBECTL ?= kubectl
# A folder of deploy/ in its place is a variant: deploy/podcount, deploy/secure-metrics.
DEPLOY ?= deploy

##@ Use

.PHONY: demo
demo: setup ## Start a control plane and the operator, apply every sample, and wait until all are done (KEEP=1 leaves it running)
	$(RUN) rolecall demo $(if $(KEEP),--keep)

.PHONY: setup
setup: .venv/.ready ## Make .venv from uv.lock and get the control plane's binaries
	$(RUN) rolecall cluster binaries

##@ Deploy

.PHONY: image
image: ## Build the operator image IMG with docker, podman, or buildah (TARGET=runner: for your own operators, drop-in: for Operator SDK projects)
	build/image $(IMG) $(TARGET)

.PHONY: install
install: ## Create the CRDs in the cluster of KUBECONFIG
	$(KUBECTL) apply -k deploy/crds

.PHONY: uninstall
uninstall: ## Remove the CRDs and every object of these kinds
	$(KUBECTL) delete --ignore-not-found -k deploy/crds

.PHONY: deploy
deploy: ## Run image IMG in the cluster, with CRDs and permissions (DEPLOY=deploy/podcount: a variant)
	$(KUBECTL) kustomize $(DEPLOY) | sed 's|image: localhost/rolecall:dev$$|image: $(IMG)|' | $(KUBECTL) apply -f -

.PHONY: undeploy
undeploy: ## Remove the operator from the cluster; CRDs and objects stay
	$(KUBECTL) delete --ignore-not-found -k deploy/operator
	$(KUBECTL) delete --ignore-not-found -f deploy/podcount/rbac.yaml -f deploy/secure-metrics/rbac.yaml

.PHONY: bundle
bundle: .venv/.ready ## Write the OLM bundle of deploy/olm from deploy/, for VERSION (unset: the project's) and image IMG
	$(BIN)/python -m tools.bundle $(if $(VERSION),--version '$(VERSION)') --image '$(IMG)'

##@ Test

.PHONY: test
test: setup unit check core ## Before each commit: unit and static tests, static checks, core stories (8 minutes on two CPUs)

.PHONY: test-all
test-all: setup unit check integration parity molecule browser test-release ## Before a merge: all tests that need no cluster; CI adds e2e

.PHONY: check
check: .venv/.ready ## Static checks: ruff, mypy, layers, YAML, Ansible, watches.yaml with its roles and CRDs
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/yamllint --strict .
	$(RUN) ansible-lint --offline $(PLAYS)
	$(RUN) rolecall generate crds --check
	$(RUN) rolecall validate --strict

# The tests of the pure modules. Only these are traced, for tracing doubles their time.
PURE := $(addprefix tests/unit/,roles runner/config runner/runs/test_variables.py)
PURE += $(patsubst %,tests/unit/runner/controller/test_%.py,controller triggers work_queue)
PURE += $(patsubst %,tests/unit/runner/reconcile/test_%.py,own_writes reconciles_after_own_writes status status_writer)

.PHONY: unit
unit: .venv/.ready ## Unit and static tests, with the branch coverage of the pure modules (at least 95 %)
	$(RUN) pytest $(PURE) --numprocesses $(WORKERS) --cov
	$(RUN) pytest tests/unit tests/static --numprocesses $(WORKERS) $(addprefix --ignore=,$(PURE))

# A marker in the test file, not a list of files here: it moves with the file, and can leave out single tests.
.PHONY: core
core: setup ## The core stories: those marked "core" that bear others next to them
	$(RUN) pytest tests/integration -m 'core and not alone' --timeout 1800 --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder

.PHONY: integration
integration: beside alone ## All stories, on the embedded control plane with real Ansible

# The stories that bear others beside them, a file in one process.
.PHONY: beside
beside: setup
	$(RUN) pytest tests/integration -m 'not alone' --timeout 1800 --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder

# The stories that need a processor for themselves: beside them is only what does one thing at a time.
.PHONY: alone
alone: setup | beside $(if $(TESTS),unit check)
	$(RUN) pytest tests/integration -m alone --timeout 1800

.PHONY: parity
parity: setup ## Roles and playbooks of every kind, warm and cold, compared
	$(RUN) pytest tests/parity --timeout 1800 --numprocesses $(WORKERS)

.PHONY: molecule
molecule: setup ## The molecule scenarios: default, local, and cluster on a control plane that takes a cluster's place
	$(RUN) molecule test
	$(RUN) molecule test -s local
	$(RUN) rolecall cluster exec --name molecule-cluster -- molecule test -s cluster

# Debian's name first; Google's and other distributions' after it. BROWSER=PATH names one.
BROWSER ?= $(firstword $(foreach name,chromium chromium-browser google-chrome,$(shell command -v $(name))))

.PHONY: browser
browser: setup | $(if $(TESTS),alone) ## The dashboard in a real Chromium (BROWSER), with screenshots in .pictures
ifeq ($(BROWSER),)
	@echo "There is no Chromium, so the browser tests of the dashboard are skipped: install it (Debian: apt-get install chromium) or name one with BROWSER=PATH"
else
	$(UV) sync --locked --inexact --group browser
	$(RUN) BROWSER='$(BROWSER)' pytest tests/browser --timeout 300
endif

.PHONY: e2e
e2e: setup ## Image and deployment on a real cluster: KUBECONFIG, LOAD (loads images) and RUN_IN (where it can be reached)
	$(RUN) pytest tests/e2e -x --timeout 1800

# The integration tests have a small part of these comparisons.
PROOFS := $(addprefix tests/integration/,test_plan.py test_plan_stories.py test_plan_random.py) tests/plan_proof
ROLES_BY_CHANCE ?= 100

.PHONY: plan-proof
plan-proof: setup ## Compare plans with runs, and crash tests with roles that end early: examples, ROLES_BY_CHANCE roles
	table=$$(mktemp); \
	ROLECALL_PROOF_TABLE=$$table ROLECALL_PLANNED_ROLES=$(ROLES_BY_CHANCE) $(BIN)/pytest $(PROOFS) --timeout 3000 || failed=1; \
	cat $$table; rm $$table; [ -z "$${failed:-}" ]

.PHONY: crashtest
crashtest: setup ## Kill the operator after each write for every sample in turn, and compare the end states
	$(RUN) rolecall cluster exec --name crashtest -- bash -euc 'kubectl apply -k deploy/crds >/dev/null; failed=0; \
	for sample in $(filter-out %/kustomization.yaml,$(wildcard deploy/samples/*.yaml)); do \
	rolecall crashtest -f $$sample || failed=$$?; done; exit $$failed'

.PHONY: test-matrix
test-matrix: setup ## Unit tests, parity and real plays with each ansible-core of CORES whose Python is installed
	failed=; for pair in $(CORES); do \
	  core=$${pair%@*} version=$${pair#*@}; \
	  python=$$($(UV) python find --no-python-downloads $$version 2>/dev/null || { ls ~/.pyenv/versions/$$version.*/bin/python 2>/dev/null || true; } | tail -1); \
	  [ -n "$$python" ] || { echo "Python $$version is not installed, so ansible-core $$core on it is left out"; continue; }; \
	  echo "== ansible-core $$core on $$python"; \
	  UV_PROJECT_ENVIRONMENT=.venv-$$pair $(UV) sync --locked --quiet --group core-$${core/./-} --python $$python; \
	  export PATH="$(CURDIR)/.venv-$$pair/bin:$$PATH"; \
	  rolecall version; \
	  pytest tests/unit tests/static tests/parity --numprocesses $(WORKERS) --timeout 1800 && pytest $(MATRIX) --timeout 1800 || failed="$$failed $$pair"; \
	done; \
	[ -z "$$failed" ] || { echo "Failed with$$failed"; exit 1; }

.PHONY: docs
docs: .venv/.ready ## Generate the parts of docs/reference from the code: commands, flags, keys, metrics
	$(BIN)/python -m tools.docs

.PHONY: site
site: .venv/.ready | $(filter .venv-uv/bin/uv,$(UV)) ## Build the documentation as an offline site in .site/html, and check its links
	$(UV) sync --locked --inexact --group site
	$(BIN)/python -m tools.site

.PHONY: format
format: .venv/.ready ## Format the sources
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check --fix $(SOURCES)

##@ Measure

.PHONY: bench
bench: setup ## Measure rolecall and compare it, warm, cold and with kopf (BENCH="--peer PATH" adds a peer's binary)
	$(UV) sync --locked --inexact --group bench
	$(RUN) python bench/run.py $(BENCH)

# Checkouts of the other projects are never part of this repository: see bench/README.md.
DIR ?= ../judges
.PHONY: judges
judges: setup ## Weekly: tests of other projects, whose checkouts are in DIR, directly and through the operator (JUDGES="--judge kubectl")
	$(UV) pip install --quiet --no-deps --require-hashes --python $(BIN)/python --requirement bench/judges/requirements.txt
	$(RUN) python -m bench.judges '$(DIR)' $(JUDGES)

.PHONY: chaos
chaos: setup ## Inject faults and measure how operators recover (CHAOS="--seconds 600 --seed 7", or counts: CHAOS="kills=100")
	$(RUN) python -m tests.chaos $(CHAOS)

.PHONY: histories
histories: setup ## Random histories of changes and wrong responses of the API server (HISTORIES="1-200 --outage 150")
	$(RUN) python -m tests.chaos.histories $(HISTORIES)

##@ Release

.PHONY: test-release
test-release: setup | $(filter .venv-uv/bin/uv,$(UV)) ## Make a release in a clone, install its wheel with pipx, and start a project with it
	$(BIN)/pytest tests/release --timeout 900

.PHONY: wheel
wheel: | $(filter .venv-uv/bin/uv,$(UV)) ## Build the package into dist, for pip and pipx
	$(UV) build --wheel --out-dir dist

.PHONY: release
release: .venv/.ready ## Build wheel, image, bundle, changelog, SBOM, licenses, and checksums of VERSION in dist/VERSION, without publishing
	$(BIN)/python -m tools.release --version '$(VERSION)' --image '$(RELEASED_IMG)' --uv '$(UV)' $(RELEASE)

##@ Maintain

.PHONY: clean
clean: ## Remove the files that the targets created in this directory (not the cached binaries)
	rm -rf .venv .venv-uv .venv-2.* .coverage .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .ansible .pictures .site

.PHONY: help
help: ## List the targets
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z0-9-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.venv/.ready: pyproject.toml uv.lock | $(filter .venv-uv/bin/uv,$(UV))
	@echo "Installing the locked dependencies into .venv" >&2
	$(UV) sync --locked --python $(PYTHON)
	@touch $@

.venv-uv/bin/uv:
	@echo "Installing uv into .venv-uv" >&2
	$(PYTHON) -m venv .venv-uv
	.venv-uv/bin/pip install --quiet --disable-pip-version-check --require-hashes --requirement build/tools.txt
