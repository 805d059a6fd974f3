#!/usr/bin/env bash
# Builds sdist and wheel, repairs the wheel so that it carries its libraries, and passes the tests on what ships: from a
# fresh environment, outside the checkout. Usage: test-wheel.sh PYTHON-WITH-DEV-EXTRAS [PYTEST-ARGUMENT...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=$1
shift
rm -rf dist wheelhouse build/wheel
.ci/newer-zstd.sh "$python" build/zstd
export PKG_CONFIG_PATH="$PWD/build/zstd${PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH}"
# With Maven there the wheel has Spark's jar and Kafka's. Crates that are compiled already are not compiled again.
if command -v mvn >/dev/null; then
  export TIERLOG_JAR=build TIERLOG_KAFKA_JAR=build CARGO_TARGET_DIR="$PWD/build/store"
else
  echo "tierlog: this wheel has no jar for Spark and Kafka, and is none to release: Maven is missing" >&2
fi
# The wheel is built from the sdist, so a file that the sdist lacks is noticed.
"$python" -m build --outdir dist .
"$python" -m auditwheel show dist/*.whl
# auditwheel does not look into the jar, whose libraries need glibc 2.34 (Rust's linker on this system, libstdc++): the
# wheel's name promises no more.
PATH="$(dirname "$python"):$PATH" "$python" -m auditwheel repair --plat "manylinux_2_34_$(uname -m)" --only-plat \
  --wheel-dir wheelhouse dist/*.whl
.ci/check-jar-glibc.sh wheelhouse/*.whl

away=$(mktemp -d)
trap 'rm -rf "$away"' EXIT
"$python" -m venv "$away/venv"
wheel=$(ls "$PWD"/wheelhouse/*.whl)
"$away/venv/bin/pip" install --quiet "$wheel[all,dev]"
# The sdist's own tests, those of the benches' harness among them.
mkdir "$away/sdist"
tar -xzf dist/*.tar.gz -C "$away/sdist" --strip-components=1
mv "$away/sdist/tests" "$away/sdist/bench" "$away/sdist/pyproject.toml" "$away"
rm -r "$away/sdist"
cd "$away"
export TIERLOG_FIXTURES="${TIERLOG_FIXTURES:-$OLDPWD/../shared/fixtures}"
export PYSPARK_PYTHON="$away/venv/bin/python" PYSPARK_DRIVER_PYTHON="$away/venv/bin/python"
"$away/venv/bin/python" -c 'import tierlog, pyspark_tierlog; print("testing", tierlog.__file__)'
if [ -n "${TIERLOG_JAR:-}" ]; then
  "$away/venv/bin/python" -c 'import pyspark_tierlog; print("with", pyspark_tierlog.jar_path())'
fi
"$away/venv/bin/python" -c 'from tierlog._native.codecs import library_version as v; print("libzstd", v(4)); assert v(4) == "1.5.7"'
"$away/venv/bin/python" -m pytest -n 2 --dist loadgroup -m "not slow and not interop" "$@"
