#!/usr/bin/env bash
# exports.sh COMPILER LIBRARY INCLUDE: a program that includes tierlog.h alone names every symbol that the shared library
# exports, and every function that a header marks with TL_API is one of them.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
nm -D --defined-only "$2" | awk '$2 == "T" { sub(/@.*/, "", $3); print $3 }' | sort >"$work/exported"
grep -hoE '^TL_API .*' "$3"/tierlog/*.h | grep -oE 'tl_[a-z0-9_]+\(' | tr -d '(' | sort >"$work/declared"
[ "$(wc -l <"$work/exported")" -gt 100 ]
diff "$work/declared" "$work/exported"
{
  echo '#include <tierlog/tierlog.h>'
  echo 'typedef void (*any_function)(void);'
  echo 'any_function functions[] = {'
  sed 's/.*/    (any_function)&,/' "$work/exported"
  echo '};'
  echo 'int main(void) { return functions[0] == 0; }'
} >"$work/program.c"
"$1" -std=c11 -Wall -Wextra -Werror -Wno-cast-function-type -I"$3" "$work/program.c" "$2" \
  -Wl,-rpath,"$(dirname "$2")" -o "$work/program"
"$work/program"
