#!/usr/bin/env bash
# Runs real Kafka clients against vtop, and then the same against another server of the protocol, and writes
# docs/clients.md from what came out (VTOP_CLIENTS_DOC names another file). Arguments choose parts: vtop (all clients),
# tools (Kafka's own command-line tools), franz (franz-go's own tests), kfake (all clients against franz-go's fake
# broker), which are the default; and apache (all clients against Apache Kafka), which takes more memory and time. What
# the clients need is fetched once into VTOP_CLIENTS_CACHE, by default a directory under the user's cache; a runtime that
# is missing is named in the table, and with VTOP_CLIENTS_STRICT=1 fails the run.
set -uo pipefail
cd "$(dirname "$0")/.."
export VTOP_BIN=${VTOP_BIN:-$PWD/bin}
[ $# -gt 0 ] || set -- vtop tools franz kfake
export VTOP_CLIENTS_OUT=${VTOP_CLIENTS_OUT:-$PWD/bin/clients}
export VTOP_CLIENTS_DOC=${VTOP_CLIENTS_DOC:-$PWD/docs/clients.md}
mkdir -p "$VTOP_CLIENTS_OUT"
(cd test/clients/programs/go && go vet ./...) || exit 1
# Built once: the parts run the same, whatever happens to the tree meanwhile.
go test -c -tags cluster -o "$VTOP_CLIENTS_OUT/clients.test" ./test/clients || exit 1
run() { # TIMEOUT TEST
  (cd test/clients && "$VTOP_CLIENTS_OUT/clients.test" -test.v -test.parallel 16 -test.timeout "$1" -test.run "^$2\$" 2>&1) | tee "$VTOP_CLIENTS_OUT/$2.log" |
    grep --line-buffered -E '^ *--- |_test\.go:|^(PASS|FAIL|panic)'
  return "${PIPESTATUS[0]}"
}
status=0
for part in "$@"; do
  case $part in
    tools) test=TestTools_Vtop ;;
    franz) test=TestFranzGo_OwnTests ;;
    vtop | kfake | apache) test=TestClients_${part^} ;;
    *) echo "clients: no part $part: want vtop, tools, franz, kfake or apache" >&2; exit 2 ;;
  esac
  began=$SECONDS
  if ! run 60m "$test"; then
    status=1
    grep -vE '^=== |^ *--- (PASS|SKIP)' "$VTOP_CLIENTS_OUT/$test.log" | tail -n 80
  fi
  echo "clients: $part took $((SECONDS - began)) s"
done
# Without VTOP_CLIENTS and VTOP_FEATURES, which choose some, the page is written.
if [ -z "${VTOP_CLIENTS:-}${VTOP_FEATURES:-}" ]; then
  run 1m TestDocument || status=1
fi
exit $status
