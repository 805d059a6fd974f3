#!/usr/bin/env bash
# Prints a Python (3.11 or newer) that can make virtual environments and compile extensions; $PYTHON comes first.
set -uo pipefail

resolve() {
  "$1" - 2>/dev/null <<'PYTHON'
import ensurepip, pathlib, sys, sysconfig, venv
header = pathlib.Path(sysconfig.get_paths()["include"]) / "Python.h"
if sys.version_info < (3, 11) or not header.is_file():
    sys.exit(1)
print(sys.executable)
PYTHON
}

for name in "${PYTHON:-}" python3 python3.13 python3.12 python3.11 /usr/bin/python3; do
  if [ -n "$name" ] && resolve "$name"; then
    exit 0
  fi
done
echo "tierlog: Python 3.11 or newer with headers and venv is needed; on Debian: apt-get install python3-dev python3-venv" >&2
exit 1
