# Everything a newcomer needs: `make test`, `make lint`, `make demo`. Each does its own set-up in .venv and build/.
PYTHON ?= python3
VENV := $(CURDIR)/.venv
PY := $(VENV)/bin/python
BUILD := $(CURDIR)/build
READY := $(VENV)/.ready
C_FILES = $(shell git ls-files 'hook/*.c' 'hook/*.h' 'tests/*.c' 'tests/*.h')
CORES := $(shell getconf _NPROCESSORS_ONLN)
# What is compiled is compiled on all cores, also where nobody asked for it.
JOBS = $(if $(findstring jobserver,$(MAKEFLAGS)),,-j$(CORES))
# The tests start hundreds of Pythons: each would compile again what it imports.
export PYTHONDONTWRITEBYTECODE :=
# What is read and written is UTF-8, whatever the machine's locale is.
export PYTHONUTF8 := 1
# Three workers a core: the tests wait for processes as much as they compute. But at most one for each GiB of
# memory. A file to each at a time, in the order of tests/conftest.py.
WORKERS ?= $(shell $(PYTHON) -c 'import os; gib = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 30; \
  print(max(1, min(3 * $(CORES), 16, gib)))')
PYTEST := $(PY) -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

.PHONY: build panel chart test test-core test-hook test-driver test-server test-panel test-full test-long test-cluster test-seeds flaky faults soak sanitize lint format \
  demo demo-small demo-cluster docs generate clean help rooms promises mutate
.PHONY: bench-handoff bench-overhead bench-swap bench-alloc bench-scheduler bench-policy bench-beside bench-panel bench-notebooks bench-view

help:
	@echo "make build | panel | test | test-core | test-hook | test-driver | test-server | test-panel | test-full | test-long | test-cluster | test-seeds | flaky | faults | soak | sanitize"
	@echo "make lint | format | demo | demo-small | demo-cluster | docs | generate | chart | promises"
	@echo "make rooms | mutate | bench-handoff | bench-overhead | bench-swap | bench-alloc | bench-scheduler | bench-policy | bench-beside | bench-panel | bench-notebooks | bench-view | clean"

# pip needs a new run only when the dependencies changed. The panel is left to `make panel`: most work
# needs neither it nor Node.
$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "This Python is older than 3.10. Name a newer one: make PYTHON=python3.11 ..." >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
	  { echo "Python cannot make a virtual environment. Install it first: apt-get install python3-venv" >&2; exit 1; }
	@# A new pip: the one of Python 3.11 takes three times as long.
	@$(PY) -m pip install --quiet --disable-pip-version-check --upgrade pip
	GPUSHARE_BUILD_PANEL=no $(PY) -m pip install --quiet --no-compile --disable-pip-version-check -e '.[build,test]'
	@touch $@

build: $(READY)
	@$(MAKE) --no-print-directory $(JOBS) -C hook/sim PYTHON=$(PY) BUILD=$(BUILD)
	@$(MAKE) --no-print-directory $(JOBS) -C hook PYTHON=$(PY) BUILD=$(BUILD)
	@mkdir -p jupyter_gpushare/lib/simulated && cp -u --remove-destination $(BUILD)/hook/libgpushare.so jupyter_gpushare/lib/
	@cp -u --remove-destination $(BUILD)/sim/lib*.so.1 hook/sim/builtins.ptx jupyter_gpushare/lib/simulated/

# The JupyterLab panel and the script of the view's page, built where they are out of date. Node comes from PyPI.
panel: $(READY)
	@$(PY) labextension/build.py

# Pytest compiles the tests when it first reads them. Workers that start together would each compile
# all of them: one process does it for all, while the panel is built. A test that cannot be read fails later.
READ := $(BUILD)/tests-read
$(READ): $(READY)
	@mkdir -p $(@D)
	@$(PY) -m pytest --collect-only -qq >$@.log 2>&1 || true
	@mv $@.log $@

# Some six minutes on two slow cores, set-up apart; neither Node nor a browser need be there. Pytest leaves
# out by itself what is long, needs a GPU or a cluster (pyproject.toml).
test: $(READY)
	@$(MAKE) --no-print-directory $(JOBS) build panel $(READ)
	$(PYTEST) $(PYTEST_ARGS)

# Parts of it, a minute or two each: while one works on a room.
test-core: build
	$(PYTEST) tests/core tests/simulator tests/reports tests/protocol $(PYTEST_ARGS)

test-hook: build
	$(PYTEST) tests/hook $(PYTEST_ARGS)

test-driver: build
	$(PYTEST) tests/driver $(PYTEST_ARGS)

test-server: build
	$(PYTEST) tests/scheduler tests/server tests/kernel tests/kubelet $(PYTEST_ARGS)

test-panel: $(READY)
	@$(MAKE) --no-print-directory $(JOBS) build panel
	$(PY) labextension/build.py --check
	$(PYTEST) tests/browser tests/view $(PYTEST_ARGS)

$(VENV)/.ready-for-charts: $(READY)
	GPUSHARE_BUILD_PANEL=no $(PY) -m pip install --quiet --no-compile --disable-pip-version-check -e '.[build,charts]'
	@touch $@

# What Helm makes of the chart, for the tests that have no Helm. After a change of the chart.
chart: $(VENV)/.ready-for-charts
	$(PY) -m tests.charts.keep

# What a newcomer should not have to wait for: some twenty minutes on two slow cores. Before an issue is resolved.
FULL ?= full and not long and not gpu and not cluster
test-full: $(READY) $(VENV)/.ready-for-charts
	@$(MAKE) --no-print-directory $(JOBS) build panel $(READ)
	$(PYTEST) -m "$(FULL)" $(PYTEST_ARGS)

# Random runs of minutes of processor time each: after a change of the core's rules, and before a release.
test-long: $(READY)
	@$(MAKE) --no-print-directory $(JOBS) build panel $(READ)
	$(PYTEST) -m "long and not gpu and not cluster" $(PYTEST_ARGS)

# Which tests do not answer the same each time: the suite TIMES times in each company, in random order of
# files. FOLDER cuts it to a part, COMPANY to some of alone, busy and disk, and MARK names other tests. Hours.
TIMES ?= 10
FOLDER ?= tests
COMPANY ?= alone,busy,disk
MARK ?= not full and not gpu and not cluster
flaky: $(READY) $(if $(findstring not full,$(MARK)),,$(VENV)/.ready-for-charts)
	@$(MAKE) --no-print-directory $(JOBS) build panel $(READ)
	$(PY) -m tests.flaky $(FOLDER) --times $(TIMES) --company $(COMPANY) --mark "$(MARK)" --workers $(WORKERS) $(FLAKY_ARGS)

# Random hand-overs with faults for so many seconds; SEED names another first one.
SECONDS ?= 60
faults: build
	$(PY) -m tests.end_to_end.faults --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))

# Six tenants that together hold more than two small devices have, and one fault after the other; the last
# line is JSON. SEED names another first seed, KINDS=all adds faults that nothing withstands yet, SOAK_ARGS has
# more (`--help`).
soak: SECONDS = 600
soak: build
	$(PY) -m tests.soak --seconds $(SECONDS) $(if $(SEED),--seed $(SEED)) $(if $(KINDS),--kinds $(KINDS)) $(SOAK_ARGS)

# With services of the machine itself, such as containers, which have to be installed: a test says what
# is missing, and fails. As root. One after the other: each takes the machine's memory and network.
# Some ten minutes on two busy cores, and as much again the first time, for Kubernetes and images are built.
test-cluster: $(READY) $(VENV)/.ready-for-charts
	@$(MAKE) --no-print-directory $(JOBS) build panel
	$(PY) -m pytest -m cluster tests/cluster $(PYTEST_ARGS)

# The random tests with new examples, round after round: after a change of what they test, and before a
# release. The other targets take the same examples each time.
ROUNDS ?= 5
test-seeds: build
	@for round in $$(seq $(ROUNDS)); do echo "round $$round of $(ROUNDS)"; \
	  GPUSHARE_FRESH_SEEDS=1 $(PYTEST) -m "(hypothesis or seeded) and not gpu" $(PYTEST_ARGS) || exit 1; done

# Random hand-overs under the sanitizers, a thousand with each: after a change of the hook or of the
# simulated driver, and before a release. Half an hour on two slow cores.
SANITIZED_STEPS ?= 1000
sanitize: build
	GPUSHARE_CHAOS_STEPS=$(SANITIZED_STEPS) $(PY) -m pytest -n $(CORES) tests/end_to_end/test_random_handovers.py \
	  -k under_a_sanitizer $(PYTEST_ARGS)

$(VENV)/.ready-for-lint: $(READY)
	GPUSHARE_BUILD_PANEL=no $(PY) -m pip install --quiet --no-compile --disable-pip-version-check -e '.[build,lint]'
	@touch $@

lint: $(VENV)/.ready-for-lint
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/clang-format --dry-run --Werror $(C_FILES)
	$(PY) -m jupyter_gpushare.protocol.generate --check
	$(PY) -m jupyter_gpushare.kubelet.api.generate --check
	$(PY) docs/generate_settings.py --check
	$(PY) labextension/build.py --check

# The documentation site, in build/site. What Sphinx warns of is an error.
$(VENV)/.ready-for-docs: $(READY)
	GPUSHARE_BUILD_PANEL=no $(PY) -m pip install --quiet --no-compile --disable-pip-version-check -e '.[docs]'
	@touch $@

docs: $(VENV)/.ready-for-docs
	$(PY) -m sphinx -q -E -a -W --keep-going -c docs -d $(BUILD)/site-cache . $(BUILD)/site

format: $(VENV)/.ready-for-lint
	$(VENV)/bin/ruff check --fix --quiet . || true
	$(VENV)/bin/ruff format .
	$(VENV)/bin/clang-format -i $(C_FILES)

generate: $(READY)
	$(PY) -m jupyter_gpushare.protocol.generate
	@# Its compiler comes with `make lint`: most changes need no new messages of kubelets.
	@if $(PY) -c 'import grpc_tools' 2>/dev/null; then $(PY) -m jupyter_gpushare.kubelet.api.generate; fi
	$(PY) docs/generate_settings.py
	$(PY) docs/generate_states.py

# With a real JupyterHub, whose proxy npm puts into build/node. KEEP=1 leaves the hub up, for a look at
# it with a browser.
demo: build $(if $(filter-out 0,$(KEEP)),panel)
	KEEP=$(KEEP) $(PY) -m tests.demo $(DEMO_ARGS)

# The same without a hub: a scheduler and four kernels.
demo-small: build
	$(PY) -m tests.demo.small $(DEMO_ARGS)

# Six users on two nodes of a real Slurm, with a scheduler and a simulated GPU on each. As root; it says
# what is missing.
demo-cluster: build
	$(PY) -m tests.demo.cluster $(DEMO_ARGS)

# What the software promises, with the tests that hold it.
promises: $(READY)
	@$(PY) -m tests.promises

# Which room needs which, each arrow that leads up, the circles, and the figures that
# tests/test_architecture.py holds.
rooms: build
	@$(PY) -m tests.rooms

# Breaks each rule of who goes next in a copy of the project, and sees that a test fails.
mutate: build
	@$(PY) -m tests.mutate $(MUTATE_ARGS)

bench-panel bench-view: panel
bench-handoff bench-overhead bench-swap bench-alloc bench-scheduler bench-policy bench-beside bench-panel bench-notebooks bench-view: bench-%: build
	$(PY) -m tests.bench.bench_$* $(BENCH_ARGS)

clean:
	rm -rf $(BUILD) jupyter_gpushare/lib
