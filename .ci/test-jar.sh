#!/usr/bin/env bash
# The tests of Spark's jar that need no Spark session: JUnit by Maven, the store client's by Cargo; and those of Kafka's jar.
# What is missing is left out, with a line; what is there must pass.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
java=bindings/spark/java
mkdir -p build
exec 9>build/jar.lock # as build-jar.sh: both write to Maven's target
flock 9

if [ -f bindings/spark/pyspark_tierlog/jars/tierlog-spark.jar ]; then
  JAVA_HOME=$(.ci/java-home.sh)
  export JAVA_HOME
  mvn --quiet --batch-mode --file "$java/pom.xml" "-Dnative.libraries=$PWD/build/jar/native" test
  echo "the jar's JUnit tests passed"
else
  echo "tierlog: no jar, so its JUnit tests are left out" >&2
fi
if [ -f build/jar/native/libtierlog_store.so ]; then
  cargo test --quiet --locked --manifest-path "$java/store/Cargo.toml" --target-dir build/store
else
  echo "tierlog: no Rust, so the tests of the store client are left out" >&2
fi
if [ -f engine/tierlog/sidecar/jars/tierlog-kafka.jar ]; then
  exec 8>build/kafka-jar.lock # as build-kafka-jar.sh
  flock 8
  JAVA_HOME=$(.ci/java-home.sh)
  export JAVA_HOME
  # The jar is compiled against the oldest Kafka; the tests are on the one whose broker they start.
  mvn --quiet --batch-mode --file bindings/kafka/pom.xml -Dkafka.version=4.3.1 "-Dbuild.folder=$PWD/build/kafka-jar/tests" test
  echo "the JUnit tests of the jar for Kafka passed"
else
  echo "tierlog: no jar for Kafka, so its JUnit tests are left out" >&2
fi
