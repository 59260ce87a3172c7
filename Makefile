# The two commands of a newcomer: make demo, make test. Both install what they need first: into .venv, or for another
# PYTHON than the usual one into an environment of that version, such as .venv-3.13.
PYTHON ?= python3
VERSION := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
# What runs from byte code starts in a third of the time, and the tests start many processes.
unexport PYTHONDONTWRITEBYTECODE
VENV := .venv$(if $(filter-out python3,$(PYTHON)),-$(VERSION))
BIN := $(VENV)/bin
# What is installed, by its lock file: dev is what install, unit and test need; spark what Spark needs, too; tests the rest.
UV := $(VENV)/.uv-$(VERSION)
INSTALLED := $(VENV)/.installed-$(VERSION)
SPARK := $(VENV)/.spark-$(VERSION)
TESTS := $(VENV)/.tests-$(VERSION)
COMPILED := $(VENV)/.compiled-$(VERSION)
# Both are from the one table of versions, transforms/nats_transforms/tested_versions.py: where the sidecar is tested, and the whole matrix.
TESTED = $(shell $(BIN)/python -c "from nats_transforms.tested_versions import *; print(*LIVE_VERSIONS)")
MATRIX ?= $(shell $(BIN)/python -c "from nats_transforms.tested_versions import *; print(*TESTED_VERSIONS, sep=',')")
# The distributions, each in its folder.
PACKAGES := transforms bridge conformance pipeline
CONFORM ?=
COMMA := ,
SPACE := $(subst ,, )
REPORT ?= build/conformance

# How many processes the tests share: they often wait for servers.
AT_ONCE ?= 6

CHAOS ?=
CHAOS_REPORT ?= build/chaos
# Of the smoke run: bounded by messages and faults, not by time.
SMOKE := --seed smoke --minutes 0 --faults 5 --messages 3000

# Of make simulate.
SEEDS ?= 200
FIRST ?= 1
SEED ?=
KEEP ?=
TURN ?= 0
MINUTES ?= 1
SHRINK ?= 100

# What make stress repeats, and how often.
T ?=
N ?= 30

.PHONY: help install spark demo unit test test-all versions-test follow stress mutants twins simulate spark-test spark-parts browser-test container-test manifests docs package release conform conform-native conform-bridge chaos chaos-smoke \
	soak audit lint format types bench figures lock clean

help:
	@echo "make demo    a server, a stream, native republish next to the sidecar's, and whether they agree"
	@echo "make unit    the tests that need no server, before each commit"
	@echo "make test    every promise on the oldest and the newest server (fetched once, kept in a cache)"
	@echo "make test-all  everything, in three lanes, as CI does: every test on every version, and all targets below down to audit"
	@echo "             (needs what they need: Java, Chromium and its driver, kubectl, podman, root)"
	@echo "make versions-test  all unit and live tests, on every version"
	@echo "make follow  what nats-server versions newer than the table change, and whether the engine follows; the report is in build/follow"
	@echo "             (FOLLOW='--versions 2.16.0' for some, FOLLOW='--from 2.15.1' as if the table ended there; needs Go)"
	@echo "make stress  T='tests/live/republish/test_twin.py -k 2.15.1' N=30: chosen tests, N times next to busy loops and stopped processes"
	@echo "make mutants   whether tests find changes of pure modules; M=nats_transforms.subject for one module"
	@echo "make simulate  SEEDS=200: the sidecar in virtual time with a simulated server and drawn faults; SEED=7 for one again"
	@echo "make twins   200,000 messages in random streams with all that servers of 2.10 to 2.15 store: native next to the bridge"
	@echo "make spark-test    the data source and the jobs on Spark (needs Java 17 or newer; installs PySpark)"
	@echo "make spark-parts   those of them that start no Java (a minute)"
	@echo "make browser-test    the conformance report's page and the status page, in a headless Chromium that is installed already"
	@echo "make container-test    the image, built and run by podman (as root, on Linux); ARCH=arm64 emulates"
	@echo "make manifests    the Kubernetes manifests and the chart rendered, validated, and held against the program (needs kubectl; helm, where it is not Linux on x86-64)"
	@echo "make docs    docs/ as a site, in build/docs; a warning is an error"
	@echo "make package    what a release uploads, into dist/: built, checked, and installed into a fresh environment"
	@echo "make release V=0.2.0    that version in all its places, make package, and a tag; nothing is pushed"
	@echo "make conform the whole catalogue on six server versions, the engine, the bridge, and servers that copy through it; reports are in build/"
	@echo "             (make conform-native conform-bridge: one half of it)"
	@echo "make chaos   ten minutes of faults, every kind of rule, on a cluster and on one server; reports are in build/chaos"
	@echo "make chaos-smoke  the same, about a minute; make soak: memory over ten million messages"
	@echo "make audit   known vulnerabilities of the locked dependencies, where an advisory service answers"
	@echo "make lint    ruff, the import contracts, and the rules of docs/style.md; make types: mypy --strict; make format: rewrite"
	@echo "make bench   republishing and copying against native, as ratios of one run; BENCH='--quick catch-up' for some"
	@echo "make figures the same, and the pictures of docs/benchmarks.md drawn again (fifteen minutes; needs Go for the peers)"
	@echo "make lock    renew the locked dependencies; make clean: remove what was installed"
	@echo "PYTHON=python3.13 (or a path) with any of them: that Python, installed into .venv-3.13"

install: $(INSTALLED)

# uv installs in a fraction of pip's time, and links what its cache holds. It reads none of pip's settings; of those an
# index is handed on, and certificates are the system's. A lock file has all dependencies: asked for those of a package
# that comes as source only (PySpark), uv would build it each time.
UV_INSTALL = UV_DEFAULT_INDEX="$${UV_DEFAULT_INDEX:-$${PIP_INDEX_URL:-$$($(BIN)/python -m pip config get global.index-url 2> /dev/null)}}" \
	UV_NATIVE_TLS=true $(BIN)/uv pip install --quiet --no-deps --python $(BIN)/python

$(UV): requirements/uv.lock
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "nats-bridge needs Python 3.11 or newer; say make PYTHON=python3.12")'
	test -d $(VENV)/lib/python$(VERSION) || $(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements/uv.lock
	@touch $@

$(INSTALLED): $(UV) requirements/dev.lock $(PACKAGES:%=%/pyproject.toml)
	$(UV_INSTALL) --require-hashes -r requirements/dev.lock
	$(UV_INSTALL) --no-build-isolation $(addprefix --editable ./,$(PACKAGES))
	@touch $@

$(SPARK): $(INSTALLED) requirements/spark.lock
	$(UV_INSTALL) --require-hashes -r requirements/spark.lock
	@touch $@

$(TESTS): $(INSTALLED) requirements/tests.lock
	$(UV_INSTALL) --require-hashes -r requirements/tests.lock
	@touch $@

# Before all processes of the tests compile the same modules at the same time, one does. The tests report its errors.
$(COMPILED): $(INSTALLED)
	@$(BIN)/python -m pytest tests/live tests/unit --collect-only --quiet > /dev/null || true
	@touch $@

demo: install
	@$(BIN)/nats-bridge demo

unit: install
	$(BIN)/python -m pytest tests/unit --numprocesses 2 --dist worksteal

# Spark in tests ends before Java's second compiler pays: it took half of Java's seconds.
spark-test: export SPARK_SUBMIT_OPTS := -XX:TieredStopAtLevel=1 -XX:+UseSerialGC
spark-test: export SPARK_LAUNCHER_OPTS = $(SPARK_SUBMIT_OPTS)

test: $(COMPILED)
	@$(BIN)/nats-bridge servers fetch $(TESTED) > /dev/null
	$(BIN)/python -m pytest tests/live tests/unit --numprocesses $(AT_ONCE) --dist worksteal

# One lane from the first on, one from the last on. What is installed is installed before: the steps share it.
STEPS := spark-test versions-test chaos-smoke demo docs manifests types audit package browser-test container-test \
	conform-native conform-bridge
test-all: $(INSTALLED) $(SPARK) $(TESTS)
	@$(MAKE) --no-print-directory lint
	@$(BIN)/nats-bridge servers fetch $(subst $(COMMA),$(SPACE),$(MATRIX)) > /dev/null
	@MAKE="$(MAKE)" .ci/lanes $(STEPS)

versions-test: $(COMPILED)
	@$(BIN)/nats-bridge servers fetch $(TESTED) > /dev/null
	$(BIN)/python -m pytest --all --numprocesses $(AT_ONCE) --dist worksteal

# FOLLOW='--from 2.15.1 --versions 2.15.3' compares these two, whatever the table says.
follow: install
	$(BIN)/python -m tests.follow $(FOLLOW)

stress: install
	@$(BIN)/python -m tests.stress --times $(N) $(T)

mutants: $(TESTS)
	@$(BIN)/nats-bridge servers fetch $(TESTED) > /dev/null
	$(BIN)/python .ci/mutants $(M)

# FIRST=1000 for other seeds than the first ones; KEEP=3,7 for some faults of a seed; SHRINK=0 to remove none from a failing one.
simulate: install
	$(BIN)/python -m tests.simulation $(if $(SEED),--seed $(SEED) --turn $(TURN),--seeds $(SEEDS) --first $(FIRST)) \
		$(if $(KEEP),--keep $(KEEP)) --minutes $(MINUTES) --shrink $(SHRINK)

# TWINS='--messages 8000 --versions 2.15.1 --seed 7' for a part, or the same again.
twins: install
	@$(BIN)/nats-bridge servers fetch $(subst $(COMMA),$(SPACE),$(MATRIX)) > /dev/null
	$(BIN)/python -m tests.twins $(TWINS)

spark: $(SPARK)

# Each of the two processes with a Java of its own, and whole modules: they share what they have started.
spark-test: spark
	@$(BIN)/nats-bridge servers fetch $(TESTED) > /dev/null
	$(BIN)/python -m pytest tests/spark --all --timeout 900 --numprocesses 2 --dist loadscope

spark-parts: spark
	@$(BIN)/nats-bridge servers fetch $(TESTED) > /dev/null
	$(BIN)/python -m pytest tests/spark --all -m "not java" --numprocesses 2 --dist worksteal

browser-test: $(TESTS)
	$(BIN)/python -m pytest tests/browser

container-test: install
	@$(BIN)/nats-bridge servers fetch 2.10.27 > /dev/null
	$(BIN)/python -m pytest tests/container --timeout 3600 $(addprefix --architecture=,$(ARCH))

manifests: $(TESTS)
	@$(BIN)/nats-bridge servers fetch 2.10.27 > /dev/null
	$(BIN)/python -m tests.k8s.validation
	$(BIN)/python -m pytest tests/k8s

docs: $(TESTS)
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --nitpicky --quiet -d build/doctrees docs build/docs
	@echo build/docs/index.html

# dist/ and a tag; nothing is pushed.
release:
	@.ci/release $(V)

package: $(TESTS)
	@$(BIN)/nats-bridge servers fetch $(TESTED) > /dev/null
	$(BIN)/python -m pytest tests/package --timeout 900

conform: conform-native conform-bridge

conform-native: install
	$(BIN)/nats-conform run --versions $(MATRIX) --subjects native,engine --report $(REPORT) $(CONFORM)
	$(BIN)/python -m tests.differential --versions $(MATRIX) --comparisons 4000

conform-bridge: install
	$(BIN)/nats-conform run --versions $(subst $(SPACE),$(COMMA),$(TESTED)) --subjects bridge --report $(REPORT)-bridge $(CONFORM)

chaos: install
	$(BIN)/python -m tests.chaos --minutes 10 --topology cluster --replicas 2 --report $(CHAOS_REPORT)/cluster $(CHAOS)
	$(BIN)/python -m tests.chaos --minutes 10 --topology single --report $(CHAOS_REPORT)/single $(CHAOS)

chaos-smoke: install
	$(BIN)/python -m tests.chaos $(SMOKE) --topology single --report $(CHAOS_REPORT)/smoke $(CHAOS)

soak: install
	$(BIN)/python -m benchmarks soak $(SOAK)

# In a place of its own: what audits must not be among what is audited.
audit: install
	test -x $(VENV)/audit/bin/python || $(PYTHON) -m venv $(VENV)/audit
	$(VENV)/audit/bin/python -m pip install --quiet pip-audit
	$(VENV)/audit/bin/python .ci/audit

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo --no-cache
	$(BIN)/python -m pytest --quiet tests/unit/docs/test_style.py tests/unit/docs/test_docstrings.py

format: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: spark $(TESTS)
	$(BIN)/mypy

bench: install
	$(BIN)/python -m benchmarks $(BENCH)

FIGURES := sizes subjects rules peers distance replicated
figures: spark
	$(BIN)/python -m benchmarks $(FIGURES) --json build/figures.json || test $$? = 1
	$(BIN)/python -m benchmarks.plots build/figures.json docs/figures

# One after the other, each with the versions of the one before: what is in several is the same in all.
COMPILE = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links --no-header \
	$(addprefix --no-emit-package ,nats-transforms nats-bridge nats-conformance nats-bridge-spark)
ALL = $(PACKAGES:%=%/pyproject.toml)
GROUP = $(addprefix --group pyproject.toml:,$(1))
lock: install
	$(COMPILE) $(ALL) $(call GROUP,dev figures tables) -o requirements/spark.lock
	cp requirements/spark.lock requirements/tests.lock
	$(COMPILE) $(filter-out pipeline/%,$(ALL)) $(call GROUP,dev browser docs kubernetes mutants package) -o requirements/tests.lock
	cp requirements/spark.lock requirements/dev.lock
	$(COMPILE) $(filter-out pipeline/%,$(ALL)) $(call GROUP,dev) -o requirements/dev.lock
	cp requirements/spark.lock requirements/run.lock
	$(COMPILE) $(filter-out pipeline/%,$(ALL)) -o requirements/run.lock
	cp requirements/tests.lock requirements/build.lock
	$(COMPILE) $(call GROUP,build) -o requirements/build.lock
	$(COMPILE) $(call GROUP,install) -o requirements/uv.lock

clean:
	rm -rf .venv .venv-* dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
