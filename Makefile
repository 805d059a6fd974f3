# `make help` lists the targets. Everything runs from a bare checkout; a second run is quick (stamp files in .venv).

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
CORE := build/core
SANITIZE := build/sanitize
THREADS := build/threads
FUZZ := build/fuzz
FUZZ_SECONDS ?= 600
PYTEST_ARGUMENTS ?=
CORE_SOURCES := $(wildcard cext/core/*.[ch] cext/core/*/*.[ch] cext/core/include/tierlog/*.h cext/core/sources.txt cext/core/tests/* bindings/c/* CMakeLists.txt)
ROOM_SOURCES := $(wildcard bindings/spark/java/native/*.[ch] bindings/spark/java/native/CMakeLists.txt bindings/spark/java/native/tests/*)
JAVA := bindings/spark/java
JAR := bindings/spark/pyspark_tierlog/jars/tierlog-spark.jar
JAR_SOURCES := $(shell find $(JAVA) -name target -prune -o -type f -print 2>/dev/null) engine/tierlog/_version.py .ci/build-jar.sh
KAFKA_JAVA := bindings/kafka
KAFKA_JAR := engine/tierlog/sidecar/jars/tierlog-kafka.jar
KAFKA_JAR_SOURCES := $(KAFKA_JAVA)/pom.xml $(shell find $(KAFKA_JAVA)/src -type f 2>/dev/null) engine/tierlog/_version.py .ci/build-kafka-jar.sh
NATIVE_SOURCES := $(wildcard cext/*.pyx cext/*.px[di]) $(CORE_SOURCES) setup.py

# Spark's workers and its look-up of data sources take another Python unless they are told. It asks for the machine's
# own name too, which a container may not know.
SPARK_ENV = JAVA_HOME="$$(.ci/java-home.sh)" PYSPARK_PYTHON="$(CURDIR)/$(BIN)/python" PYSPARK_DRIVER_PYTHON="$(CURDIR)/$(BIN)/python" \
	SPARK_LOCAL_IP=127.0.0.1 SPARK_LOCAL_HOSTNAME=localhost

# Tests start hundreds of commands and workers of Spark: each module is compiled once, below build/, whatever is asked for.
PYTEST = env -u PYTHONDONTWRITEBYTECODE PYTHONPYCACHEPREFIX="$(CURDIR)/build/pycache" $(BIN)/python -m pytest

##@ Use

.PHONY: help demo
help: ## list the targets
	@awk 'BEGIN { FS = ":.*## " } \
	  /^##@/ { printf "\n%s\n", substr($$0, 5) } \
	  /^[a-z-]+:.*## / { printf "  make %-17s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: jar-if-possible ## read a tiered bucket that ships with the project through Spark
	@$(SPARK_ENV) $(BIN)/python bindings/spark/demo.py

##@ Check

.PHONY: test test-native test-native-jvm test-java test-python test-builds test-more test-interop test-kills test-crashes simulate simulate-mutants test-spark-minors test-seam-minors test-kafka-minors lint format fuzz fuzz-requests bench bench-local-log bench-micro
test: test-native test-java test-python ## set up everything and pass the tests

test-native: setup $(CORE)/.built $(SANITIZE)/.built $(THREADS)/.built ## the C core by ctest: as it ships, ASan and UBSan, TSan
	@ctest --test-dir $(CORE) --output-on-failure
	@ctest --test-dir $(SANITIZE) --output-on-failure
	@ctest --test-dir $(THREADS) --output-on-failure --tests-regex "test_buffer_pool|test_segment_readers"

test-native-jvm: jar-if-possible ## the jar's native half in a JVM: under -Xcheck:jni, and under ASan and UBSan
	@.ci/test-native-jvm.sh $(BIN)/python $(PYTEST_ARGUMENTS)

test-java: jar-if-possible ## the jars' own tests, by Maven and by Cargo, where these are
	@.ci/test-jar.sh

test-python: jar-if-possible ## pytest, by six workers, since tests wait too (more arguments: PYTEST_ARGUMENTS='-k lineage')
	@$(SPARK_ENV) $(PYTEST) -n 6 --dist loadgroup --durations=20 $(PYTEST_ARGUMENTS)

# Beside the tree's own build, in build/debug and build/static; about two minutes.
test-builds: setup ## the native rooms' tests over the debug build and over one with the codecs linked statically
	@set -e; for kind in debug static; do \
	  echo "the $$kind build"; \
	  env TIERLOG_WERROR=1 TIERLOG_$${kind^^}=1 $(BIN)/python setup.py --quiet build --build-base build/$$kind --build-lib build/$$kind/lib; \
	  PYTHONPATH=build/$$kind/lib $(BIN)/python -m pytest $(PYTEST_ARGUMENTS) tests/native tests/records tests/log; \
	done

test-more: jar-if-possible ## what `make test` leaves out: the other engine or loop, and what only packaging can break
	@$(SPARK_ENV) $(PYTEST) -n 2 --dist loadgroup -m "more and not slow and not interop" $(PYTEST_ARGUMENTS)

test-interop: jar-if-possible $(VENV)/interop/.installed ## the tests that need real servers and clients (S3, Azure, GCS, Kafka), the slow ones, those of test-more
	@$(SPARK_ENV) $(PYTEST) -m "interop or slow or server or more" $(PYTEST_ARGUMENTS)

test-kills: setup ## copies and deletes killed by SIGKILL at every step, five shapes of segments (about five minutes)
	@$(PYTEST) -m "slow or not slow" tests/scenarios/test_killed_copies.py $(PYTEST_ARGUMENTS)

test-crashes: setup ## a log under power cuts at every change, failing disks, twenty kill -9 (more than 500 points)
	@$(PYTEST) -n 2 -m "slow or not slow" tests/scenarios/test_log_crashes.py $(PYTEST_ARGUMENTS)

# One seed exactly, or seeds until it is told to stop, or one fails; the failure's settings are in build/simulation.
SEED ?=
simulate: setup ## a cluster from a seed: SEED=… replays one, without it until told (SIMULATE_ARGUMENTS='--for 600')
	@$(BIN)/python -m tests.simulation $(if $(SEED),--seed $(SEED),--jobs "$$(nproc)") $(SIMULATE_ARGUMENTS)

simulate-mutants: setup ## the planted faults, each caught within 200 seeds (hours)
	@$(BIN)/python -m tests.simulation.mutants --jobs "$$(nproc)" $(SIMULATE_ARGUMENTS)

# One of each minor, but for that which the tree's own environment has and `make test` tests.
SPARK_VERSIONS ?= 4.0.5 4.1.4 4.2.0
test-spark-minors: jar-if-possible ## the Spark tests on other Sparks (SPARK_VERSIONS='4.0.5 …'; half a gigabyte each)
	@$(SPARK_ENV) .ci/test-spark-minors.sh $(BIN)/python "$(SPARK_VERSIONS)" $(PYTEST_ARGUMENTS)

# Those whose Kafka source is there; of the newest Spark there is none.
SEAM_SPARK_VERSIONS ?= 4.0.3 4.1.1 4.2.0
test-seam-minors: jar-if-possible ## the seam of tier and brokers on other Sparks (SEAM_SPARK_VERSIONS='4.0.3 …')
	@for version in $(SEAM_SPARK_VERSIONS); do echo "the seam on Spark $$version"; \
	  TIERLOG_PEER_SPARK=$$version $(SPARK_ENV) $(BIN)/python -m pytest -m interop tests/interop/test_spark_seam.py \
	  $(PYTEST_ARGUMENTS) || exit 1; done

# The newest of each minor, and the oldest at all, which the jar is compiled against.
KAFKA_VERSIONS ?= 3.6.0 3.6.2 3.7.2 3.8.1 3.9.2 4.0.2 4.1.2 4.2.2 4.3.1 4.4.0
test-kafka-minors: setup-jar ## the plugin for Kafka: compiled against other Kafkas, its JUnit tests there (KAFKA_VERSIONS='3.7.2 …')
	@.ci/test-kafka-minors.sh "$(KAFKA_VERSIONS)"

lint: setup ## format, lint, types, imports, stubs, C style
	@$(BIN)/python -m pytest -q tests/test_lint.py tests/test_imports.py tests/test_stubs.py

format: setup ## rewrite the sources as the formatters want them
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	clang-format --style=file:cext/.clang-format -i cext/core/*.[ch] cext/core/*/*.[ch] cext/core/include/*/*.h bindings/spark/java/native/*.[ch] bindings/spark/java/native/*/*.[ch]

fuzz: setup-fuzz ## libFuzzer over every entry point of the core (FUZZ_SECONDS each)
	@cmake -S . -B $(FUZZ) -DCMAKE_C_COMPILER=clang -DTIERLOG_FUZZ=ON >/dev/null
	@cmake --build $(FUZZ) -j"$$(nproc)"
	@.ci/fuzz.sh $(FUZZ) $(FUZZ_SECONDS)

fuzz-requests: setup ## atheris over the reading of Kafka's requests (FUZZ_SECONDS)
	@$(BIN)/python -m pip install --quiet "atheris>=3"
	@mkdir -p $(FUZZ)/corpus/requests
	@$(BIN)/python -m tests.support.request_fuzzer -max_total_time=$(FUZZ_SECONDS) -timeout=20 -rss_limit_mb=2048 \
	  -max_len=4096 -verbosity=0 -artifact_prefix=tests/fuzz_corpus/requests/ $(FUZZ)/corpus/requests tests/fuzz_corpus/requests

BENCHES := spark spark_jobs spark_executors spark_streams replica front storage sidecar kafka_plugin decoders local_log replication manager metadata_table planning fetch micro footprint
bench: setup $(VENV)/.bench ## measure beside peers and write the tables of bench/README.md (three hours; fetches the peers)
	@for suite in $(BENCHES); do $(SPARK_ENV) $(BIN)/python -m bench.$$suite; done
	@$(BIN)/python -m bench.report

bench-local-log: setup $(VENV)/.bench ## the local log beside Kafka's own, and beside bare system calls (about five minutes)
	@$(BIN)/python -m bench.local_log
	@$(BIN)/python -m bench.report

bench-micro: setup $(VENV)/.bench ## one process, no broker and no server: decode, scan, CRC-32C, chunks
	@$(BIN)/python -m bench.micro

##@ Build

.PHONY: setup setup-fuzz setup-jar native jar kafka-jar jar-if-possible debug docs wheel clean
setup: $(VENV)/.native ## system packages, virtual environment, native build
	@.ci/java-home.sh >/dev/null

setup-fuzz: setup
	@.ci/system-packages.sh --fuzz

setup-jar: setup
	@.ci/system-packages.sh --jar

$(VENV)/.packages: .ci/system-packages.sh .ci/find-python.sh .ci/java-home.sh
	@.ci/system-packages.sh
	@mkdir -p $(VENV) && touch $@

$(VENV)/.python: $(VENV)/.packages
	@test -x $(BIN)/python || "$$(.ci/find-python.sh)" -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --upgrade pip
	@touch $@

$(VENV)/.installed: $(VENV)/.python pyproject.toml
	@echo "installing tierlog and its tools into $(VENV)"
	@PYTHONWARNINGS=ignore TIERLOG_WERROR=1 $(BIN)/python -m pip install --quiet --editable '.[all,dev]'
	@touch $@

$(VENV)/.native: $(VENV)/.installed $(NATIVE_SOURCES)
	@if [ -n "$$(find $(NATIVE_SOURCES) -newer $(VENV)/.installed)" ] || ! ls engine/tierlog/_native/*.so >/dev/null 2>&1; then \
	  echo "building the native modules"; \
	  TIERLOG_WERROR=1 $(BIN)/python setup.py --quiet build_ext --inplace; \
	fi
	@touch $@

$(VENV)/.bench: $(VENV)/.installed bench/requirements.txt
	@$(BIN)/python -m pip install --quiet --requirement bench/requirements.txt
	@touch $@

# Servers that no Python package carries. The tests of one that cannot be had are skipped, and say so.
$(VENV)/interop/.installed: | $(VENV)/.installed
	@mkdir -p $(@D)/bin
	@npm install --silent --no-audit --no-fund --prefix $(@D) azurite@3 \
	  || echo "azurite cannot be installed (npm is needed): the az:// tests will be skipped" >&2
	@GOBIN="$(CURDIR)/$(@D)/bin" go install github.com/fsouza/fake-gcs-server@v1.56.1 \
	  || echo "fake-gcs-server cannot be installed (Go 1.25 is needed): the gs:// tests will be skipped" >&2
	@test ! -x $(@D)/bin/fake-gcs-server -o ! -x $(@D)/node_modules/.bin/azurite-blob || touch $@

$(CORE)/.built: $(CORE_SOURCES) $(ROOM_SOURCES)
	@cmake -S . -B $(@D) -DTIERLOG_WERROR=ON >/dev/null
	@cmake --build $(@D) -j"$$(nproc)" >/dev/null
	@touch $@

$(SANITIZE)/.built: $(CORE_SOURCES) $(ROOM_SOURCES)
	@cmake -S . -B $(@D) -DTIERLOG_WERROR=ON -DTIERLOG_SANITIZE=ON >/dev/null
	@cmake --build $(@D) -j"$$(nproc)" >/dev/null
	@touch $@

# What has threads in it.
$(THREADS)/.built: $(CORE_SOURCES)
	@cmake -S . -B $(@D) -DTIERLOG_WERROR=ON -DTIERLOG_SANITIZE=thread >/dev/null
	@cmake --build $(@D) -j"$$(nproc)" --target test_buffer_pool test_segment_readers >/dev/null
	@touch $@

native: setup ## build the native modules in place, warnings are errors

# A jar of before Rust was there is built again.
jar: setup-jar kafka-jar ## Spark's jar: the columnar reader for executors, and Kafka's, into the package (installs Maven and Rust where it may)
	@$(BIN)/python -m zipfile -l $(JAR) 2>/dev/null | grep -q libtierlog_store.so || rm -f $(JAR)
	@$(MAKE) --no-print-directory $(JAR)

kafka-jar: setup-jar $(KAFKA_JAR) ## Kafka's jar: the storage plugin for brokers, into the package

# What this machine can build: Maven is installed where that is allowed, Rust is not (some 400 MB). No Maven, no jar; no
# Rust, no object stores in it. A line says so.
jar-if-possible: setup
	@.ci/system-packages.sh --maven || true
	@if command -v mvn >/dev/null; then $(MAKE) --no-print-directory JAR_MODE=--if-possible $(JAR) $(KAFKA_JAR); \
	  else .ci/build-jar.sh --if-possible; .ci/build-kafka-jar.sh --if-possible; fi

$(JAR): $(JAR_SOURCES) $(CORE_SOURCES)
	@.ci/build-jar.sh $(JAR_MODE)

$(KAFKA_JAR): $(KAFKA_JAR_SOURCES)
	@.ci/build-kafka-jar.sh $(JAR_MODE)

debug: setup ## the same with bounds checks, asserts and UBSan; `make clean native` goes back
	TIERLOG_DEBUG=1 $(BIN)/python setup.py build_ext --inplace --force
	@touch $(VENV)/.native

docs: setup ## write the reference pages anew from the code
	@$(BIN)/python docs/generate.py

wheel: jar-if-possible ## sdist and repaired wheel, and the tests on that wheel outside the checkout
	@$(SPARK_ENV) .ci/test-wheel.sh "$(CURDIR)/$(BIN)/python" $(PYTEST_ARGUMENTS)

clean: ## remove what was built; the virtual environment stays
	rm -rf build dist wheelhouse out $(JAVA)/target $(dir $(JAR)) $(KAFKA_JAVA)/target $(dir $(KAFKA_JAR)) .pytest_cache .mypy_cache .ruff_cache .hypothesis
	rm -f engine/tierlog/_native/*.so $(VENV)/.native
