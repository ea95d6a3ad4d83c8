#!/usr/bin/env bash
# Runs the tests that start real processes, package by package. They live on timing of a machine that may be shared, so
# up to three tests of a package that fail are run once more, by themselves; each is named, with how it ended. A test that fails
# twice fails the run, and so does whatever ends without naming a test.
set -uo pipefail
cd "$(dirname "$0")/.."
export VTOP_BIN=${VTOP_BIN:-$PWD/bin}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
status=0
again=()
[ $# -gt 0 ] || mapfile -t pkgs < <(go list -tags cluster ./test/...)
for pkg in "${@:-${pkgs[@]}}"; do
  if go test -tags cluster -count=1 -timeout 40m -v "$pkg" 2>&1 | tee "$log" | grep -E '^(=== RUN|--- |ok|FAIL|panic|\?)|^    --- |_test\.go:' ; [ "${PIPESTATUS[0]}" -eq 0 ]; then
    continue
  fi
  failed=$(grep -E '^--- FAIL: ' "$log" | awk '{print $3}' | sort -u)
  count=$(printf '%s' "$failed" | grep -c .)
  if [ "$count" -eq 0 ] || [ "$count" -gt 3 ] || grep -qE '^panic: ' "$log"; then
    echo "cluster-test: $pkg failed ($count tests named)"
    tail -n 150 "$log"
    status=1
    continue
  fi
  grep -vE '^=== ' "$log" | tail -n 200
  if go test -tags cluster -count=1 -timeout 20m -v -run "^($(echo $failed | tr ' ' '|'))\$" "$pkg" >"$log" 2>&1; then
    again+=("$failed")
  else
    tail -n 200 "$log"
    echo "cluster-test: failed twice in $pkg: $failed"
    status=1
  fi
done
if [ ${#again[@]} -gt 0 ]; then
  echo "cluster-test: FAILED ONCE, passed when run again: ${again[*]}"
fi
[ "$status" -eq 0 ] && echo "ok  cluster-test: every package of ./test passed"
exit $status
