#!/usr/bin/env bash
# Compiles the plugin for Kafka against other Kafkas, and runs its JUnit tests on each. Usage: test-kafka-minors.sh VERSIONS
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
JAVA_HOME=$(.ci/java-home.sh)
export JAVA_HOME
for version in $1; do
  echo "the plugin on Kafka $version"
  mvn --quiet --batch-mode --file bindings/kafka/pom.xml "-Dkafka.version=$version" \
    "-Dbuild.folder=$PWD/build/kafka-minors/$version" test
done
