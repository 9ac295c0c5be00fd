# Every target sets up first what it needs: `make demo` on a fresh machine is enough.
.DEFAULT_GOAL := help
.PHONY: help setup demo serve test broker browser onspark soak bench docs wheel lint format clean

ready := .venv/.ready
classes := .venv/.classes
site := .venv/.docs
python := .venv/bin/python
# Spark takes JAVA_HOME before PATH; this is the Java that setup saw, wherever it is.
with_java := JAVA_HOME=$$(scripts/find-java) && export JAVA_HOME &&

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(ready): pyproject.toml requirements.lock requirements-build.lock scripts/setup
	@scripts/setup

# Not for `make demo`, which is to begin soon: Spark works without, and starts more slowly.
$(classes): $(ready)
	@echo "setup: archiving Spark's classes, so that it starts faster (half a minute)"
	@$(with_java) $(python) -m ladle.pipeline.classes || echo 'setup: that failed; Spark starts without'
	@touch $@

setup: $(ready) $(classes) ## .venv with the locked dependencies; Java too, if there is none

demo: $(ready) ## the demonstration (DEMO_SECONDS=n to end by itself, LADLE_DATA=dir for the data)
	@$(with_java) .venv/bin/ladle demo

serve: $(ready) ## a server over HTTP, with a console (WAREHOUSE=dir, SERVE_ARGS='--port 8642')
	@$(with_java) .venv/bin/ladle serve $(if $(WAREHOUSE),-w '$(WAREHOUSE)') $(SERVE_ARGS)

# Two processes side by side, each with whole files; the longest files first (tests/conftest.py), in random order otherwise.
# A process that dies ends the run: xdist starts another in its place, but then may wait for it for ever.
side_by_side := -n 2 --dist loadfile --no-loadscope-reorder --max-worker-restart=0

# A test's JVM lives for seconds: it compiles quickly and once, and has no threads of its own that collect garbage.
with_quick_java := $(with_java) SPARK_SUBMIT_OPTS='-XX:TieredStopAtLevel=1 -XX:+UseSerialGC'

# Without PYTEST_ARGS in three runs, each ending with pytest's closing line: what needs no JVM, what does, and answers again
# with residuals on Spark.
test: $(ready) $(classes) broker browser ## all tests but the soak (PYTEST_ARGS='-k window': those alone)
ifeq ($(strip $(PYTEST_ARGS)),)
	@$(with_quick_java) $(python) -m pytest -m 'not soak and not spark' $(side_by_side)
	@$(with_quick_java) $(python) -m pytest -m 'spark and not soak' $(side_by_side)
	@$(MAKE) --no-print-directory onspark
else
	@$(with_quick_java) $(python) -m pytest -m 'not soak' $(PYTEST_ARGS)
endif

broker: ## mosquitto, which tests of MQTT start for themselves, if there is none
	@scripts/install-mosquitto

browser: ## chromium, in which tests look at the console, if there is none
	@scripts/install-chromium

# Where answers are computed in the tests' own process: residuals of others could not be counted.
answers := tests/engine tests/oracle tests/cli/test_commands.py tests/spark/test_answers.py

onspark: $(ready) $(classes) ## the tests that compute answers, again, with every residual over one row on Spark
	@echo 'again with residual_rows_max = 1: residuals on Spark'
	@$(with_quick_java) LADLE_RESIDUAL_ROWS_MAX=1 $(python) -m pytest -m 'not soak' $(side_by_side) $(answers) $(PYTEST_ARGS)

soak: $(ready) $(classes) ## the long runs (SOAK_SECONDS=n)
	@$(with_java) $(python) -m pytest -m soak --timeout=0 $(PYTEST_ARGS)

bench: $(ready) $(classes) ## a benchmark (BENCH_ARGS='epoch --quick'); without arguments, their list
	@$(with_java) $(python) -m benchmarks $(BENCH_ARGS)

$(site): $(ready) requirements-docs.lock
	@echo 'setup: installing what builds the documentation'
	@$(python) -m pip install --quiet --require-hashes --only-binary=:all: -r requirements-docs.lock
	@touch $@

docs: $(site) ## the documentation site, in build/site; a link that leads nowhere is an error
	@NO_MKDOCS_2_WARNING=1 $(python) -m mkdocs build --quiet --strict
	@echo "read it at file://$(CURDIR)/build/site/index.html"

wheel: $(ready) ## the wheel, in dist/; installed into an empty environment, where it runs README's ten lines
	@$(python) scripts/check-wheel

lint: $(ready) ## ruff and mypy
	@$(python) -m ruff check
	@$(python) -m ruff format --check
	@$(python) -m mypy

format: $(ready) ## rewrite the sources as ruff wants them
	@$(python) -m ruff check --fix-only
	@$(python) -m ruff format

clean: ## remove .venv, caches and build products; no data
	rm -rf .venv build dist src/*.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
