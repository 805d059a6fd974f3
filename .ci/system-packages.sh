#!/usr/bin/env bash
# Sees to the system packages of the build: and of the fuzzers with --fuzz, of Spark's jar with --maven, of all that the jar
# can hold with --jar. Looks for what is needed rather than for package names, so that a machine that has it from
# elsewhere is left alone. Installs what is missing with apt-get where that is allowed; else prints the one command to
# run, and fails.
set -uo pipefail

missing=()
need() { # PACKAGE COMMAND...: the package is missing when the command fails
  local package=$1
  shift
  "$@" >/dev/null 2>&1 || missing+=("$package")
}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

look() {
  missing=()
  need build-essential sh -c 'command -v cc && command -v c++ && command -v make'
  need pkg-config command -v pkg-config
  need cmake command -v cmake
  need libzstd-dev pkg-config --exists libzstd
  need liblz4-dev pkg-config --exists liblz4
  need libsnappy-dev pkg-config --exists snappy
  need libdeflate-dev pkg-config --exists libdeflate
  need openjdk-17-jdk-headless "$here/java-home.sh"
  "$here/find-python.sh" >/dev/null 2>&1 || missing+=(python3-dev python3-venv)
  for group in "$@"; do
    case $group in
      --fuzz)
        need clang command -v clang
        need libclang-rt-14-dev sh -c 'test -n "$(ls "$(clang -print-resource-dir)"/lib/*/libclang_rt.fuzzer*.a 2>/dev/null)"'
        need llvm-14 sh -c 'command -v llvm-symbolizer || command -v llvm-symbolizer-14'
        ;;
      --maven) need maven command -v mvn ;;
      --jar)
        need maven command -v mvn
        need cargo-web sh -c 'command -v cargo && command -v rustc'
        ;;
      *)
        echo "usage: $0 [--fuzz] [--maven] [--jar]" >&2
        exit 2
        ;;
    esac
  done
}

look "$@"
[ ${#missing[@]} -eq 0 ] && exit 0

command="apt-get install -y --no-install-recommends ${missing[*]}"
if ! command -v apt-get >/dev/null; then
  echo "tierlog: this machine lacks (Debian's names): ${missing[*]}" >&2
  exit 1
fi
if [ "$(id -u)" -eq 0 ]; then
  as_root=()
elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
  as_root=(sudo -n)
else
  echo "tierlog: system packages are missing; run: sudo apt-get update && sudo $command" >&2
  exit 1
fi
echo "tierlog: installing ${missing[*]}" >&2
{
  "${as_root[@]}" apt-get update -q &&
    # Another apt-get (a machine that is being set up runs several) is waited for, five minutes at most.
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive $command -o DPkg::Lock::Timeout=300
} </dev/null >&2 || {
  echo "tierlog: apt-get failed; run: apt-get update && $command" >&2
  exit 1
}
look "$@"
[ ${#missing[@]} -eq 0 ] || {
  echo "tierlog: still missing after apt-get: ${missing[*]}" >&2
  exit 1
}
