#!/usr/bin/env bash
# Makes the Go code of every .proto in the tree beside it, with plugins pinned by go.mod.
#   tools/generate.sh           writes the generated files
#   tools/generate.sh --check   writes nothing; fails if a committed file differs from what would be made
set -euo pipefail
cd "$(dirname "$0")/.."
if ! command -v protoc >/dev/null; then
  echo "protoc is needed: apt-get install protobuf-compiler" >&2
  exit 1
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
go build -o "$work/bin/protoc-gen-go" google.golang.org/protobuf/cmd/protoc-gen-go
go build -o "$work/bin/protoc-gen-connect-go" connectrpc.com/connect/cmd/protoc-gen-connect-go
mkdir "$work/out"
stale=0
while read -r proto; do
  plugins=(--go_out="$work/out" --go_opt=paths=source_relative)
  if grep -q '^service ' "$proto"; then
    plugins+=(--connect-go_out="$work/out" --connect-go_opt=paths=source_relative,simple=false)
  fi
  PATH="$work/bin:$PATH" protoc -I . "${plugins[@]}" "$proto"
done < <(git ls-files '*.proto')
while read -r made; do
  rel=${made#"$work/out/"}
  if [ "${1:-}" = --check ]; then
    if ! cmp -s "$made" "$rel"; then
      echo "$rel is not what its .proto makes: run tools/generate.sh and commit" >&2
      stale=1
    fi
  else
    mkdir -p "$(dirname "$rel")"
    cp "$made" "$rel"
  fi
done < <(find "$work/out" -type f | sort)
exit $stale
