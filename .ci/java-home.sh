#!/usr/bin/env bash
# Prints the home of a Java that Spark 4 can use (17 or newer); fails where there is none.
set -uo pipefail

good() { # HOME
  [ -x "$1/bin/java" ] || return 1
  local version
  version=$("$1/bin/java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1)
  [ "${version:-0}" -ge 17 ]
}

for home in \
  "${JAVA_HOME:-}" \
  "$(java=$(command -v java) && dirname "$(dirname "$(readlink -f "$java")")")" \
  /usr/lib/jvm/java-17-* /usr/lib/jvm/java-21-* /usr/lib/jvm/*; do
  if [ -n "$home" ] && good "$home"; then
    echo "$home"
    exit 0
  fi
done
echo "tierlog: Spark needs a JDK 17; on Debian: apt-get install openjdk-17-jdk-headless" >&2
exit 1
