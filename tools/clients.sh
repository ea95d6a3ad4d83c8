#!/usr/bin/env bash
# Runs real Kafka clients against vtop, and then the same against other servers of the protocol, and writes
# docs/clients.md from what came out. Arguments choose parts; default is all: vtop (all clients), tools (Kafka's own
# command-line tools), franz (franz-go's own tests), and the same clients against kfake and apache. What the clients
# need is fetched once into VTOP_CLIENTS_CACHE, by default a directory under the user's cache; a runtime that is
# missing is named in the table.
set -uo pipefail
cd "$(dirname "$0")/.."
export VTOP_BIN=${VTOP_BIN:-$PWD/bin}
[ $# -gt 0 ] || set -- vtop tools franz kfake apache
export VTOP_CLIENTS_OUT=${VTOP_CLIENTS_OUT:-$PWD/bin/clients}
export VTOP_CLIENTS_DOC=$PWD/docs/clients.md
log=$(mktemp)
trap 'rm -f "$log"' EXIT
(cd test/clients/programs/go && go vet ./...) || exit 1
status=0
for part in "$@"; do
  case $part in
    tools) run=TestTools_Vtop ;;
    franz) run=TestFranzGo_OwnTests ;;
    *) run=TestClients_${part^} ;;
  esac
  if ! go test -tags cluster -count=1 -timeout 60m -v -run "^$run\$" ./test/clients >"$log" 2>&1; then
    status=1
  fi
  grep -E '^ *--- |_test\.go:|^(ok|FAIL|panic)' "$log"
done
# Without VTOP_CLIENTS and VTOP_FEATURES, which choose some, the page is written.
if [ -z "${VTOP_CLIENTS:-}${VTOP_FEATURES:-}" ]; then
  go test -tags cluster -count=1 -v -run '^TestDocument$' ./test/clients || status=1
fi
exit $status
