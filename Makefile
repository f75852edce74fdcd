# The targets of the project. `make help` lists them.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# Containers often set this variable. Every process then compiles its imports again, which slows the start of an operator by half.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= python3
# Without uv on PATH, the targets install it into .venv-uv.
UV ?= $(or $(shell command -v uv),.venv-uv/bin/uv)
BIN := .venv/bin
RUN := PATH="$(CURDIR)/$(BIN):$$PATH"
SOURCES := src tests bench build tools roles/*/filter_plugins
PLAYS := roles playbooks molecule src/rolecall/collections

# `make test` and `make test-all` run two targets concurrently, and print the output of each when it ends.
TESTS := $(firstword $(filter test test-all,$(MAKECMDGOALS)))
ifneq ($(TESTS),)
MAKEFLAGS += --jobs=2 --output-sync=target
$(info Running two targets concurrently; the output of each follows when it ends)
endif
# One more than the CPUs of a small machine: tests spend a third of their time waiting.
WORKERS ?= 3
# The integration tests wait for half of their time.
INTEGRATION_WORKERS ?= $(WORKERS)

HISTORIES ?= 1-200 --outage 150

# Versions of ansible-core, each with a Python version. Each has a group in uv.lock, with its version of the package "ansible".
CORES ?= 2.18@3.12 2.19@3.11 2.20@3.12 2.21@3.13 2.21@3.14 2.22@3.13
MATRIX := $(addprefix tests/integration/,test_existing_roles.py test_runner.py test_warm.py test_odd_objects.py test_planned_runs.py test_migrate_guide.py)

IMG ?= localhost/rolecall:dev
# The image of a release. RELEASE="--no-image" omits it.
RELEASED_IMG ?= localhost/rolecall:$(VERSION)
KUBECTL ?= kubectl
# What "make deploy" adds to the CRDs: a directory with a kustomization, and directories of deploy/components.
DEPLOY ?= deploy/operator
COMPONENTS ?=
# "namespaced" is the last one, because it changes what the others add.
COMPONENT_PATHS := $(patsubst %,../deploy/components/%,$(filter-out namespaced,$(COMPONENTS)) $(filter namespaced,$(COMPONENTS)))
APPLY := $(KUBECTL) apply --server-side --force-conflicts

##@ Use

.PHONY: demo
demo: setup ## Start a control plane and the operator, apply every sample, and wait until all are done (KEEP=1 leaves it running)
	$(RUN) rolecall demo $(if $(KEEP),--keep)

.PHONY: setup
setup: .venv/.ready ## Create .venv from uv.lock, and fetch the programs of the control plane
	$(RUN) rolecall cluster binaries

##@ Deploy

.PHONY: image
image: ## Build the operator image IMG with docker, podman, or buildah (TARGET=runner: for your own operators, drop-in: for Operator SDK projects)
	build/image $(IMG) $(TARGET)

.PHONY: install
install: ## Create the CRDs in the cluster of KUBECONFIG, and the permissions of users on their kinds
	$(APPLY) -k deploy/crds
	$(APPLY) -k deploy/users

.PHONY: deploy
deploy: install .deploy ## Run the image IMG in the cluster, with the CRDs and the permissions (COMPONENTS="records monitoring": with components)
	$(APPLY) -k .deploy

.PHONY: undeploy
undeploy: .deploy ## Remove the operator from the cluster; CRDs and objects stay
	$(KUBECTL) delete --ignore-not-found -k .deploy
	$(KUBECTL) delete --ignore-not-found $(addprefix -f ,$(wildcard deploy/components/*/rbac.yaml))

.PHONY: uninstall
uninstall: ## Remove the CRDs and every object of these kinds
	$(KUBECTL) delete --ignore-not-found -k deploy/users
	$(KUBECTL) delete --ignore-not-found -k deploy/crds

# DEPLOY with COMPONENTS. A patch sets the image if IMG is given, whatever registry, tag, or digest it names.
.PHONY: .deploy
.deploy:
	@mkdir -p .deploy
	@printf '%s\n' --- 'resources:' '  - ../$(DEPLOY)' \
	  $(if $(COMPONENT_PATHS),'components:' $(COMPONENT_PATHS:%='  - %')) \
	  $(if $(filter-out file,$(origin IMG)),'patches:' '  - target:' '      kind: Deployment' '      name: rolecall' '    patch: |-' \
	  '      - op: replace' '        path: /spec/template/spec/containers/0/image' '        value: $(IMG)') >.deploy/kustomization.yaml

.PHONY: bundle
bundle: .venv/.ready ## Write the OLM bundle of the samples to deploy/olm, for VERSION (unset: the project's) and image IMG
	$(KUBECTL) kustomize deploy | $(BIN)/rolecall generate bundle --release '$(or $(VERSION),$(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml))' --image '$(IMG)'

##@ Test

.PHONY: test
test: setup processes unit simulation check core ## Before each commit: unit and static tests, simulation, static checks, core integration tests (10 to 15 minutes on two CPUs)

.PHONY: test-all
test-all: setup processes unit simulation check integration parity molecule browser test-release ## Before a merge: all tests that need no cluster; CI adds e2e

# Their limits and signals need an idle machine, so these tests run first.
ifneq ($(TESTS),)
unit simulation check core integration-parallel parity molecule test-release: | processes
endif

.PHONY: processes
processes: .venv/.ready ## Tests of processes: the fork server, limits, signals, and the guard, one at a time
	$(RUN) pytest tests/processes

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

# The tests of the pure modules. Coverage is measured only for these, because it doubles their time.
PURE := $(addprefix tests/unit/,roles runner/config runner/runs/test_variables.py runner/runs/test_own_writes.py)
PURE += $(patsubst %,tests/unit/runner/controller/test_%.py,controller triggers work_queue)
PURE += $(patsubst %,tests/unit/runner/reconcile/test_%.py,reconciles_after_own_writes status status_writer)

.PHONY: unit
unit: .venv/.ready ## Unit and static tests, with the branch coverage of the pure modules (at least 95 %)
	$(RUN) pytest $(PURE) --numprocesses $(WORKERS) --cov
	$(RUN) pytest tests/unit tests/static tests/simulation --numprocesses $(WORKERS) $(addprefix --ignore=,$(PURE))

.PHONY: simulation
simulation: .venv/.ready ## Histories of the whole operator in virtual time, for the seeds SEEDS
	$(RUN) python -m tests.simulation --seeds $(or $(SEEDS),1-2000)

.PHONY: simulation-prune
simulation-prune: .venv/.ready ## Histories about prune, for the seeds SEEDS
	$(RUN) python -m tests.simulation --prune --seeds $(or $(SEEDS),1-5000)

# Markers in the test files replace a list here: they move with the files, and can exclude single tests.
.PHONY: core
core: setup ## The integration tests marked "core", except those marked "alone"
	$(RUN) pytest tests/integration -m 'core and not alone' --timeout 1800 --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder

.PHONY: integration
integration: integration-parallel integration-alone ## All integration tests, on the embedded control plane with real Ansible

# Tests of one file run in one process.
.PHONY: integration-parallel
integration-parallel: setup
	$(RUN) pytest tests/integration -m 'not alone and not proof' --timeout 1800 --numprocesses $(INTEGRATION_WORKERS) --dist loadfile --no-loadscope-reorder

# These tests need a CPU for themselves: only a target with one process runs at the same time.
.PHONY: integration-alone
integration-alone: setup | integration-parallel $(if $(TESTS),unit check)
	$(RUN) pytest tests/integration -m alone --timeout 1800

.PHONY: parity
parity: setup ## Compare warm with cold runs of roles and playbooks of every kind
	$(RUN) pytest tests/parity --timeout 1800 --numprocesses $(WORKERS)

.PHONY: molecule
molecule: setup ## The molecule scenarios default, local, and cluster (on an embedded control plane)
	$(RUN) molecule test
	$(RUN) molecule test -s local
	$(RUN) rolecall cluster exec --name molecule-cluster -- molecule test -s cluster

# Debian's name first, then those of other distributions and Google. BROWSER=PATH selects another program.
BROWSER ?= $(firstword $(foreach name,chromium chromium-browser google-chrome,$(shell command -v $(name))))

.PHONY: browser
browser: setup | $(if $(TESTS),integration-alone) ## The dashboard in a real Chromium (BROWSER), with screenshots in .pictures
ifeq ($(BROWSER),)
	@echo "Skipping the browser tests of the dashboard, because Chromium is missing: install it (Debian: apt-get install chromium) or set BROWSER=PATH"
else
	$(UV) sync --locked --inexact --group browser
	$(RUN) BROWSER='$(BROWSER)' pytest tests/browser --timeout 300
endif

.PHONY: e2e
e2e: setup ## Test image and deployment on a real cluster: KUBECONFIG, LOAD (loads images), RUN_IN (a prefix that reaches the API server)
	$(RUN) pytest tests/e2e -x --timeout 1800

# The integration tests contain a short run of these comparisons.
PROOFS := $(addprefix tests/integration/,test_plan.py test_plan_stories.py test_plan_random.py test_crashtest.py test_explore.py) tests/plan_proof
RANDOM_ROLES ?= 100

.PHONY: plan-proof
plan-proof: setup ## Compare plans with runs, crash tests with roles that end early, and explorations with planted faults: examples and RANDOM_ROLES random roles
	table=$$(mktemp); \
	ROLECALL_PROOF_TABLE=$$table ROLECALL_PLANNED_ROLES=$(RANDOM_ROLES) $(BIN)/pytest $(PROOFS) --timeout 3000 || failed=1; \
	cat $$table; rm $$table; [ -z "$${failed:-}" ]

# How long make explore edits each sample.
MINUTES ?= 5

.PHONY: explore
explore: setup ## Edit the spec of every sample in many ways, and compare each end state with that of a new object
	$(RUN) rolecall cluster exec --name explore -- bash -euc 'kubectl apply -k deploy/crds >/dev/null; failed=0; \
	for sample in $(filter-out %/kustomization.yaml,$(wildcard deploy/samples/*.yaml)); do \
	rolecall explore -f $$sample --minutes $(MINUTES) || failed=$$?; done; exit $$failed'

.PHONY: crashtest
crashtest: setup ## Kill the operator after each write of every sample, and compare the end states
	$(RUN) rolecall cluster exec --name crashtest -- bash -euc 'kubectl apply -k deploy/crds >/dev/null; failed=0; \
	for sample in $(filter-out %/kustomization.yaml,$(wildcard deploy/samples/*.yaml)); do \
	rolecall crashtest -f $$sample || failed=$$?; done; exit $$failed'

.PHONY: test-matrix
test-matrix: setup ## Unit tests, parity, and real plays with each ansible-core of CORES whose Python is installed
	failed=; for pair in $(CORES); do \
	  core=$${pair%@*} version=$${pair#*@}; \
	  python=$$($(UV) python find --no-python-downloads $$version 2>/dev/null || { ls ~/.pyenv/versions/$$version.*/bin/python 2>/dev/null || true; } | tail -1); \
	  [ -n "$$python" ] || { echo "Skipping ansible-core $$core: Python $$version is not installed"; continue; }; \
	  echo "== ansible-core $$core on $$python"; \
	  UV_PROJECT_ENVIRONMENT=.venv-$$pair $(UV) sync --locked --quiet --group core-$${core/./-} --python $$python; \
	  export PATH="$(CURDIR)/.venv-$$pair/bin:$$PATH"; \
	  rolecall version; \
	  pytest tests/unit tests/static tests/parity --numprocesses $(WORKERS) --timeout 1800 && pytest tests/processes $(MATRIX) --timeout 1800 || failed="$$failed $$pair"; \
	done; \
	[ -z "$$failed" ] || { echo "Failed with$$failed"; exit 1; }

# The checkouts of the other projects are outside this repository: see bench/README.md.
DIR ?= ../judges
KUBERNETES_VERSIONS ?= 1.31 1.32 1.33 1.34 1.35 1.36 1.37

.PHONY: kubernetes-matrix
kubernetes-matrix: setup ## The samples, the core integration tests, and kubernetes.core's targets (its checkout in DIR) with each version of Kubernetes
	[ ! -d '$(DIR)' ] || $(UV) pip install --quiet --no-deps --require-hashes --python $(BIN)/python --requirement bench/judges/requirements.txt
	failed=; for version in $(KUBERNETES_VERSIONS); do \
	  export ROLECALL_KUBERNETES_VERSION=$$version PATH="$(CURDIR)/$(BIN):$$PATH"; \
	  echo "== Kubernetes $$version"; \
	  rolecall cluster binaries && rolecall demo --name matrix && \
	  pytest tests/integration -m 'core and not alone' --timeout 1800 --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder && \
	  { [ ! -d '$(DIR)' ] || python -m bench.judges '$(DIR)' --judge kubernetes.core $(JUDGES); } || failed="$$failed $$version"; \
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
bench: setup ## Measure rolecall, and compare warm runs, cold runs, and kopf (BENCH="--peer PATH" adds another ansible-operator)
	$(UV) sync --locked --inexact --group bench
	$(RUN) python bench/run.py $(BENCH)

.PHONY: judges
judges: setup ## Weekly: tests of other projects, from their checkouts in DIR, directly and through the operator (JUDGES="--judge kubectl")
	$(UV) pip install --quiet --no-deps --require-hashes --python $(BIN)/python --requirement bench/judges/requirements.txt
	$(RUN) python -m bench.judges '$(DIR)' $(JUDGES)

.PHONY: chaos
chaos: setup ## Inject faults and measure how operators recover (CHAOS="--seconds 600 --seed 7", or counts: CHAOS="kills=100")
	$(RUN) python -m tests.chaos $(CHAOS)

.PHONY: histories
histories: setup ## Random histories of changes and invalid responses of the API server (HISTORIES="1-200 --outage 150")
	$(RUN) python -m tests.chaos.histories $(HISTORIES)
	$(RUN) python -m tests.chaos.prune_histories
	$(RUN) python -m tests.chaos.prune_keeps

##@ Release

.PHONY: test-release
test-release: setup | $(filter .venv-uv/bin/uv,$(UV)) ## Make a release in a clone, install its wheel with pipx, and create a project with it
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
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z0-9-]+:.*## / {printf "  %-17s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.venv/.ready: pyproject.toml uv.lock | $(filter .venv-uv/bin/uv,$(UV))
	@echo "Installing the locked dependencies into .venv" >&2
	$(UV) sync --locked --python $(PYTHON)
	@touch $@

.venv-uv/bin/uv:
	@echo "Installing uv into .venv-uv" >&2
	$(PYTHON) -m venv .venv-uv
	.venv-uv/bin/pip install --quiet --disable-pip-version-check --require-hashes --requirement build/tools.txt
