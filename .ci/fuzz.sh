#!/usr/bin/env bash
# Fuzzes every entry point of the core: .ci/fuzz.sh BUILD SECONDS. What is found new stays in BUILD/corpus; a crash is
# written into tests/fuzz_corpus, where ctest replays it from then on, and ends the run with its status.
set -euo pipefail

build=$1
seconds=$2
for target in "$build"/fuzz_*; do
  [[ -x $target && -f $target ]] || continue
  name=$(basename "$target")
  name=${name#fuzz_}
  seeds=tests/fuzz_corpus/$name
  mkdir -p "$build/corpus/$name" "$seeds"
  echo "$name: $seconds s"
  "$target" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 -max_len=4096 -verbosity=0 \
    -artifact_prefix="$seeds/" -print_final_stats=1 "$build/corpus/$name" "$seeds"
done
