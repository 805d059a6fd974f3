#!/usr/bin/env bash
# The jar's reader in a JVM that watches it: once under -Xcheck:jni, whose complaints break the answers that the tests
# read, and once with its library built under ASan and UBSan. Usage: test-native-jvm.sh PYTHON [PYTEST ARGUMENTS].
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=$1
shift
jar=bindings/spark/pyspark_tierlog/jars/tierlog-spark.jar
tests=tests/bindings/spark/jar/test_task_reader.py
JAVA_HOME=$(.ci/java-home.sh)
export JAVA_HOME
[ -f "$jar" ] || { echo "tierlog: no jar, so the tests of its native half in a JVM are left out" >&2; exit 0; }

echo "under -Xcheck:jni"
TIERLOG_JVM_OPTIONS=-Xcheck:jni "$python" -m pytest -q "$tests" "$@"

echo "under ASan and UBSan"
out=build/jni-sanitize
cmake -S . -B "$out" -DTIERLOG_JNI=ON -DTIERLOG_SANITIZE=ON -DTIERLOG_WERROR=ON >/dev/null
cmake --build "$out" --target tierlog_jni -j"$(nproc)" >/dev/null
mkdir -p "$out/jar/io/tierlog/native"
install -m 644 "$(find "$out/bindings" -name libtierlog_jni.so -print -quit)" "$out/jar/io/tierlog/native/"
install -m 644 "$jar" "$out/tierlog-spark.jar"
"$JAVA_HOME/bin/jar" --update --file "$out/tierlog-spark.jar" -C "$out/jar" io
# The JVM takes its own SIGSEGVs; what it never frees is not ours.
ASAN_OPTIONS=handle_segv=0:allow_user_segv_handler=1:detect_leaks=0 \
  TIERLOG_JAR="$out/tierlog-spark.jar" TIERLOG_JVM_PRELOAD="$(${CC:-gcc} -print-file-name=libasan.so)" \
  "$python" -m pytest -q "$tests" "$@"
