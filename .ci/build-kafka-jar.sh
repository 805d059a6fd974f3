#!/usr/bin/env bash
# Builds the storage plugin for Apache Kafka: engine/tierlog/sidecar/jars/tierlog-kafka.jar.
# Usage: build-kafka-jar.sh [--if-possible]. Without Maven (or its artefacts) there is no jar: with --if-possible that is
# one line and no error.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
java=bindings/kafka
out=build/kafka-jar
jar=engine/tierlog/sidecar/jars/tierlog-kafka.jar
if_possible=${1:-}

no_jar() {
  echo "tierlog: no jar for Kafka brokers: $1" >&2
  [ "$if_possible" = --if-possible ] && exit 0
  exit 1
}

command -v mvn >/dev/null || no_jar "Maven is missing; on Debian: apt-get install maven"
JAVA_HOME=$(.ci/java-home.sh) || no_jar "a JDK is missing"
export JAVA_HOME
[ -x "$JAVA_HOME/bin/javac" ] || no_jar "$JAVA_HOME is no JDK; on Debian: apt-get install openjdk-17-jdk-headless"

version=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' engine/tierlog/_version.py)
: "${version:?is not in engine/tierlog/_version.py}"
mkdir -p "$out"
# Two builds at once would put the one's half-written classes into the other's jar. (test-jar.sh takes the lock too.)
exec 9>build/kafka-jar.lock
flock --nonblock 9 || { echo "tierlog: another build of the jar for Kafka runs here; waiting for it" >&2; flock 9; }

# Maven keeps classes whose sources are gone. Offline first: a second run asks no server.
rm -rf "$java/target/classes"
maven=(mvn --quiet --batch-mode --file "$java/pom.xml" "-Drevision=$version" -Dmaven.test.skip=true package)
if ! "${maven[@]}" --offline >"$out/maven.log" 2>&1 && ! "${maven[@]}" >"$out/maven.log" 2>&1; then
  if grep -qE "Could not (transfer|find) artifact|Unknown host|Network is unreachable" "$out/maven.log"; then
    no_jar "Maven's artefacts cannot be fetched: $(grep -m 1 ERROR "$out/maven.log" | cut -c 1-300)"
  fi
  cat "$out/maven.log" >&2
  exit 1
fi
mkdir -p "$(dirname "$jar")"
# Whole or not at all: a broker may be reading the jar of before.
install -m 644 "$java/target/tierlog-kafka.jar" "$jar.new"
mv "$jar.new" "$jar"
