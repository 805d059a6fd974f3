#!/usr/bin/env bash
# auditwheel does not look into jars: fails where a library of the jar in a wheel needs a newer glibc than the wheel's own
# name promises. Usage: check-jar-glibc.sh WHEEL
set -euo pipefail
wheel=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m zipfile -e "$wheel" "$folder"
jar=$folder/pyspark_tierlog/jars/tierlog-spark.jar
if [ ! -f "$jar" ]; then
  echo "tierlog: this wheel has no jar" >&2
  exit 0
fi
python3 -m zipfile -e "$jar" "$folder/jar"
promised=$(basename "$wheel" | grep -oE 'manylinux_2_[0-9]+' | sed 's/manylinux_2_/2./' | sort -V | head -n 1)
for library in "$folder"/jar/io/tierlog/native/*.so; do
  needed=$(objdump -T "$library" | grep -oE 'GLIBC_[0-9.]+' | sed 's/GLIBC_//' | sort -V | tail -n 1)
  echo "$(basename "$library"): glibc $needed, the wheel promises ${promised:-nothing}"
  if [ "$(printf '%s\n%s\n' "$needed" "${promised:-0}" | sort -V | tail -n 1)" != "${promised:-0}" ]; then
    echo "tierlog: $(basename "$library") needs a newer glibc than $(basename "$wheel") promises" >&2
    exit 1
  fi
done
