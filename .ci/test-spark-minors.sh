#!/usr/bin/env bash
# The Spark tests, through Python workers and through the jar, on other versions of Spark: a virtual environment each, which
# has its own PySpark and everything else of the tree's. All of them run; the last lines say how each ended.
# Usage: test-spark-minors.sh PYTHON-WITH-DEV-EXTRAS "VERSION…" [PYTEST-ARGUMENT...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=$1
read -ra versions <<<"$2"
shift 2
packages=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')

told=()
failed=0
for version in "${versions[@]}"; do
  venv=$PWD/build/spark/$version
  if ! [ -f "$venv/.installed" ]; then
    echo "installing PySpark $version (half a gigabyte) into $venv"
    "$python" -m venv --clear "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "pyspark==$version"
    # Behind its own packages, so that its PySpark and py4j win; with the .pth files there, which name the tree.
    echo "import site; site.addsitedir('$packages')" \
      >"$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/tree.pth"
    touch "$venv/.installed"
  fi
  found=$("$venv/bin/python" -c 'import pyspark, tierlog; print(pyspark.__version__)')
  [ "$found" = "$version" ] || { echo "$venv has PySpark $found" >&2; exit 1; }
  echo "the Spark tests on $version"
  log=build/spark/$version.log
  if env -u SPARK_HOME PYSPARK_PYTHON="$venv/bin/python" PYSPARK_DRIVER_PYTHON="$venv/bin/python" \
    "$venv/bin/python" -m pytest -m "not slow and not interop" tests/bindings/spark "$@" 2>&1 | tee "$log"; then
    told+=("$version passed: $(tail -n 1 "$log")")
  else
    told+=("$version FAILED: $(tail -n 1 "$log")")
    failed=1
  fi
done
printf '%s\n' "" "${told[@]}"
exit "$failed"
