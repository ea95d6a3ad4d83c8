#!/usr/bin/env bash
# Runs every fuzz target of the tree for the given time each (default 60s), one after the other, and stops at
# the first that fails. The inputs found are kept by the go tool in its cache; failures land in testdata/fuzz.
set -euo pipefail
cd "$(dirname "$0")/.."
fuzztime=${1:-60s}
count=0
while IFS=: read -r file target; do
  dir=$(dirname "$file")
  echo "== ./$dir $target ($fuzztime)"
  if ! go test -run '^$' -fuzz "^${target}\$" -fuzztime "$fuzztime" "./$dir" </dev/null; then
    echo "FAILED: ./$dir $target; the input is under ./$dir/testdata/fuzz/$target" >&2
    exit 1
  fi
  count=$((count + 1))
done < <(git ls-files '*_test.go' | xargs grep -Hoh --only-matching -E 'func Fuzz[A-Za-z0-9_]+' --with-filename | sed 's/:func /:/' | sort)
if [ "$count" -eq 0 ]; then
  echo "no fuzz target found" >&2
  exit 1
fi
echo "$count fuzz targets ran $fuzztime each"
