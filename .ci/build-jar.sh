#!/usr/bin/env bash
# Builds Spark's jar with the shared libraries in it: bindings/spark/pyspark_tierlog/jars/tierlog-spark.jar.
# Usage: build-jar.sh [--if-possible]. What can be had is built and must build. Without cargo (or crates) the jar lacks the
# client of object stores, and says so when asked for one. Without Maven (or its artefacts) there is no jar: with
# --if-possible that is one line and no error.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
java=bindings/spark/java
out=build/jar
crates=${CARGO_TARGET_DIR:-build/store}
jar=bindings/spark/pyspark_tierlog/jars/tierlog-spark.jar
if_possible=${1:-}

no_jar() {
  echo "tierlog: no jar, so Spark takes the Python path: $1" >&2
  [ "$if_possible" = --if-possible ] && exit 0
  exit 1
}

no_store() {
  echo "tierlog: the jar reads local files only, object stores take the Python path: $1" >&2
}

command -v mvn >/dev/null || no_jar "Maven is missing; on Debian: apt-get install maven"
command -v cmake >/dev/null || no_jar "cmake is missing; on Debian: apt-get install cmake"
command -v pkg-config >/dev/null || no_jar "pkg-config is missing; on Debian: apt-get install pkg-config"
JAVA_HOME=$(.ci/java-home.sh) || no_jar "a JDK is missing"
export JAVA_HOME
[ -f "$JAVA_HOME/include/jni.h" ] || no_jar "$JAVA_HOME is no JDK; on Debian: apt-get install openjdk-17-jdk-headless"

version=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' engine/tierlog/_version.py)
: "${version:?is not in engine/tierlog/_version.py}"
mkdir -p "$out/native"
# Two builds at once would put the one's half-written classes into the other's jar. (test-jar.sh takes the lock too.)
exec 9>build/jar.lock
flock --nonblock 9 || { echo "tierlog: another build of the jar runs here; waiting for it" >&2; flock 9; }

# A libzstd of newer-zstd.sh is named as a file.
zstd=$(pkg-config --libs libzstd | xargs)
[[ $zstd == *.a ]] && archive="-DTIERLOG_ARCHIVE_zstd=$zstd" || archive=-UTIERLOG_ARCHIVE_zstd
cmake -S . -B build/jni -DTIERLOG_JNI=ON -DBUILD_TESTING=OFF -DTIERLOG_WERROR="${TIERLOG_WERROR:-OFF}" "$archive" >/dev/null
cmake --build build/jni --target tierlog_jni -j"$(nproc)" >/dev/null
library=$(find build/jni -name libtierlog_jni.so -print -quit)
install -m 644 "$library" "$out/native/"
# Debug information would be most of the jar.
strip --strip-unneeded "$out/native/libtierlog_jni.so"

# The oldest Rust is that of Cargo.toml; `cargo fetch` needs no compiler, and fails where there is no network.
oldest=$(sed -n 's/^rust-version = "\([0-9.]*\)".*/\1/p' "$java/store/Cargo.toml")
rust=$(rustc --version 2>/dev/null | sed 's/^rustc \([0-9.]*\).*/\1/') || rust=
rm -f "$out/native/libtierlog_store.so"
if ! command -v cargo >/dev/null || [ -z "$rust" ]; then
  no_store "Rust is missing; on Debian: apt-get install cargo-web"
elif [ "$(printf '%s\n%s\n' "$oldest" "$rust" | sort -V | head -n 1)" != "$oldest" ]; then
  no_store "Rust $oldest or newer is needed, $rust is there; on Debian: apt-get install cargo-web"
elif ! cargo fetch --quiet --locked --manifest-path "$java/store/Cargo.toml" 2>"$out/cargo.log"; then
  no_store "its crates cannot be fetched: $(tail -n 1 "$out/cargo.log")"
else
  cargo build --quiet --release --locked --manifest-path "$java/store/Cargo.toml" --target-dir "$crates"
  install -m 644 "$crates/release/libtierlog_store.so" "$out/native/"
fi

# Maven keeps resources that are gone.
rm -rf "$java/target/classes/io/tierlog/native"
# Offline first: a second run asks no server.
maven=(mvn --quiet --batch-mode --file "$java/pom.xml" "-Drevision=$version" "-Dnative.libraries=$PWD/$out/native"
  -Dmaven.test.skip=true package)
if ! "${maven[@]}" --offline >"$out/maven.log" 2>&1 && ! "${maven[@]}" >"$out/maven.log" 2>&1; then
  if grep -qE "Could not (transfer|find) artifact|Unknown host|Network is unreachable" "$out/maven.log"; then
    no_jar "Maven's artefacts cannot be fetched: $(grep -m 1 ERROR "$out/maven.log" | cut -c 1-300)"
  fi
  cat "$out/maven.log" >&2
  exit 1
fi
mkdir -p "$(dirname "$jar")"
# Whole or not at all: Spark may be reading the jar of before.
install -m 644 "$java/target/tierlog-spark.jar" "$jar.new"
mv "$jar.new" "$jar"
