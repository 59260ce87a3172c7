# The two commands of a newcomer: make demo, make test. Both install what they need first: into .venv, or for another
# PYTHON than the usual one into an environment of that version, such as .venv-3.13.
PYTHON ?= python3
VERSION := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
# What runs from byte code starts in a third of the time, and the tests start many processes.
unexport PYTHONDONTWRITEBYTECODE
VENV := .venv$(if $(filter-out python3,$(PYTHON)),-$(VERSION))
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed-$(VERSION)
TESTED = $(shell $(BIN)/python -c "from conformance.servers import TWIN_VERSIONS; print(*TWIN_VERSIONS)")

# The versions of the whole conformance matrix; a newer patch is a change of its own, not of a day.
MATRIX ?= 2.9.10,2.10.27,2.11.17,2.12.15,2.14.9,2.15.1
CONFORM ?=
COMMA := ,
SPACE := $(subst ,, )
REPORT ?= build/conformance

# How many processes the tests share: they mostly wait for servers.
AT_ONCE ?= 2

CHAOS ?=
CHAOS_REPORT ?= build/chaos
# Of the smoke run: bounded by messages and faults, not by time.
SMOKE := --seed smoke --minutes 0 --faults 5 --messages 3000

# What make stress repeats, and how often.
T ?=
N ?= 30

.PHONY: help install spark demo unit test stress mutants spark-test spark-parts browser-test container-test manifests docs package conform chaos chaos-smoke soak audit lint format \
	types bench figures lock clean

help:
	@echo "make demo    a server, a stream, native republish beside the bridge's, and whether they agree"
	@echo "make unit    the tests that need no server, before each commit"
	@echo "make test    every promise on the oldest and the newest server (fetched once, kept in a cache)"
	@echo "make stress  T='tests/live/test_twin.py -k 2.15.1' N=30: chosen tests, N times beside busy loops and stopped processes"
	@echo "make mutants   whether the tests find every planted defect; M=reload for one area, M=reload/half-applied for one"
	@echo "make spark-test    the data source and the jobs on Spark (needs Java 17 or newer; installs PySpark)"
	@echo "make spark-parts   those of them that start no Java (a minute)"
	@echo "make browser-test    the conformance report's page and the status page, in a headless Chromium that is installed already"
	@echo "make container-test    the Dockerfile's own steps and its entry point, without a container engine (as root, on Linux)"
	@echo "make manifests    the Kubernetes manifests rendered, validated, and held against the program (needs kubectl)"
	@echo "make docs    docs/ as a site, in build/docs; a warning is an error"
	@echo "make package    what a release uploads, into dist/: built, checked, and installed into a fresh environment"
	@echo "make conform the whole catalogue on six server versions, the engine and the bridge; reports are in build/"
	@echo "make chaos   ten minutes of faults, every kind of rule, on a cluster and on one server; reports are in build/chaos"
	@echo "make chaos-smoke  the same, about a minute; make soak: memory over ten million messages"
	@echo "make audit   known vulnerabilities of the locked dependencies, as far as an advisory service answers"
	@echo "make lint    ruff; make types: mypy --strict; make format: rewrite"
	@echo "make bench   republishing and copying beside native, as ratios of one run; BENCH='--quick catch-up' for some"
	@echo "make figures the same, and the pictures of docs/benchmarks.md drawn anew (fifteen minutes; needs Go for the peers)"
	@echo "make lock    renew the locked dependencies; make clean: remove what was installed"
	@echo "PYTHON=python3.13 (or a path) with any of them: that Python, installed into .venv-3.13"

install: $(INSTALLED)

$(INSTALLED): requirements/dev.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "nats-bridge needs Python 3.11 or newer; say make PYTHON=python3.12")'
	test -d $(VENV)/lib/python$(VERSION) || $(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements/dev.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

demo: install
	@$(BIN)/nats-bridge demo

unit: install
	$(BIN)/python -m pytest tests/unit --numprocesses 2 --dist worksteal

test: install
	@$(BIN)/nats-bridge servers fetch $(TESTED) > /dev/null
	$(BIN)/python -m pytest --numprocesses $(AT_ONCE) --dist worksteal

stress: install
	@$(BIN)/python -m tests.stress --times $(N) $(T)

# M=intake, M='reload/* copying/probe-is-stored'; nothing for all of them.
mutants: install
	@$(BIN)/nats-bridge servers fetch $(TESTED) > /dev/null
	$(BIN)/python -m tests.mutants $(M) --table build/mutants.md

spark: install
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements/spark.lock

spark-test: spark
	@$(BIN)/nats-bridge servers fetch $(TESTED) > /dev/null
	$(BIN)/python -m pytest tests/spark --timeout 900

spark-parts: spark
	@$(BIN)/nats-bridge servers fetch $(TESTED) > /dev/null
	$(BIN)/python -m pytest tests/spark -m "not java"

browser-test: install
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements/browser.lock
	$(BIN)/python -m pytest tests/browser

container-test: install
	@$(BIN)/nats-bridge servers fetch 2.10.27 > /dev/null
	$(BIN)/python -m pytest tests/container --timeout 900

manifests: install
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements/kubernetes.lock
	@$(BIN)/nats-bridge servers fetch 2.10.27 > /dev/null
	$(BIN)/python -m tests.k8s.validation
	$(BIN)/python -m pytest tests/k8s

docs: install
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements/docs.lock
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --nitpicky --quiet -d build/doctrees docs build/docs
	@echo build/docs/index.html

package: install
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements/package.lock
	@$(BIN)/nats-bridge servers fetch $(TESTED) > /dev/null
	$(BIN)/python -m pytest tests/package

conform: install
	$(BIN)/nats-bridge conform --versions $(MATRIX) --subjects native,engine --report $(REPORT) --differential 20000 $(CONFORM)
	$(BIN)/nats-bridge conform --versions $(subst $(SPACE),$(COMMA),$(TESTED)) --subjects bridge --report $(REPORT)-bridge $(CONFORM)

chaos: install
	$(BIN)/python -m chaos --minutes 10 --topology cluster --replicas 2 --report $(CHAOS_REPORT)/cluster $(CHAOS)
	$(BIN)/python -m chaos --minutes 10 --topology single --report $(CHAOS_REPORT)/single $(CHAOS)

chaos-smoke: install
	$(BIN)/python -m chaos $(SMOKE) --topology single --report $(CHAOS_REPORT)/smoke $(CHAOS)

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

format: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: spark
	$(BIN)/mypy

bench: install
	$(BIN)/python -m benchmarks $(BENCH)

FIGURES := sizes subjects rules peers
figures: install
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements/benchmarks.lock
	$(BIN)/python -m benchmarks $(FIGURES) --json build/figures.json || test $$? = 1
	$(BIN)/python -m benchmarks.plots build/figures.json docs/figures

lock: install
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links --no-header pyproject.toml -o requirements/run.lock
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links --no-header --group dev pyproject.toml -o requirements/dev.lock
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links --no-header --group dev --group browser pyproject.toml -o requirements/browser.lock
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links --no-header --group dev --group benchmarks pyproject.toml -o requirements/benchmarks.lock
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links --no-header --group dev --group package pyproject.toml -o requirements/package.lock
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links --no-header --extra spark --group dev pyproject.toml -o requirements/spark.lock
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links --no-header --group dev --group kubernetes pyproject.toml -o requirements/kubernetes.lock
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links --no-header --group dev --group docs pyproject.toml -o requirements/docs.lock
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links --no-header --group build -o requirements/build.lock

clean:
	rm -rf .venv .venv-* dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
