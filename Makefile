# Every target sets up .venv by itself; nothing else is needed on a machine with python3 and make.
PYTHON ?= python3
BIN := .venv/bin
# Tests start many processes, which need not compile everything anew.
export PYTHONDONTWRITEBYTECODE =

.PHONY: demo services test test-all test-pythons check docs format bench clean

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[demo,test,check]"
	touch .venv/ready

demo: .venv/ready ## from a schema and questions to tables with error bars, and a report
	$(BIN)/psephos demo build/demo

check: .venv/ready ## format, lint, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# The kernel's own tests come first and have to reach every branch of it; then come all others.
KERNEL := tests/kernel tests/contracts/test_scores.py src/psephos/kernel
define run_tests
	CI=$(1) OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 $(2) --cov=psephos.kernel $(KERNEL)
	CI=$(1) OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 $(2) $(KERNEL:%=--ignore=%)
endef

test: check ## checks, then all fast tests and every example in the docs
	$(call run_tests,true,-m "not slow")

.venv/spark: .venv/ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[spark]"
	touch .venv/spark

test-all: check .venv/spark ## slow suites too
	$(call run_tests,thorough)

docs: .venv/docs ## the documentation site, build/docs/index.html; no warning, no broken link
	$(BIN)/sphinx-build -q -W --keep-going -b html -c docs . build/docs
	$(BIN)/python docs/site/links.py build/docs

.venv/docs: .venv/ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[docs]"
	touch .venv/docs

services: ## what slow tests of databases need: Postgres and a Java for Spark, by apt, as root
	apt-get install -y postgresql openjdk-17-jre-headless

test-pythons: ## the fast tests on every Python from 3.11 to 3.13 that can be found here
	@for version in 3.11 3.12 3.13; do \
	  if python$$version -c "import venv" 2>/dev/null; then \
	    echo "Python $$version" && \
	    python$$version -m venv .venv-$$version && \
	    .venv-$$version/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[demo,test]" && \
	    CI=true OPENBLAS_NUM_THREADS=1 .venv-$$version/bin/python -m pytest -n 2 -m "not slow" || exit 1; \
	  else echo "Python $$version is not installed; skipped"; fi; \
	done

bench: .venv/ready ## the measured claims, each beside its reference
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m benchmarks.kron
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m benchmarks.growth
	$(BIN)/python -m benchmarks.memory
	$(BIN)/python -m benchmarks.noise
	$(BIN)/python -m benchmarks.ledger
	$(BIN)/python -m benchmarks.counting
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m benchmarks.engines
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m benchmarks.selection
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m benchmarks.gaussian
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m benchmarks.reconstruct
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m benchmarks.fits
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m benchmarks.predicted
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m benchmarks.many_attributes
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m benchmarks.figures
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m benchmarks.planning
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m benchmarks.releases
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m benchmarks.formats
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m benchmarks.estimates
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m benchmarks.levels
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m benchmarks.groups
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m benchmarks.plans
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m benchmarks.data_dependent
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m benchmarks.scale
	$(BIN)/python -m benchmarks.walk

format: .venv/ready
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv .venv-3.* build .pytest_cache .mypy_cache .ruff_cache .hypothesis
