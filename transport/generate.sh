#!/bin/sh
# Generates transport/peerpb from its .proto files. Needs protoc (Debian: protobuf-compiler); the plugins are
# built from the versions in go.mod into a temporary directory.
set -eu
cd "$(dirname "$0")/.."
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
go build -o "$bin/" google.golang.org/protobuf/cmd/protoc-gen-go connectrpc.com/connect/cmd/protoc-gen-connect-go
for proto in peer repair stream; do
	connect=
	if grep -q '^service ' "transport/peerpb/$proto.proto"; then
		connect='--connect-go_out=. --connect-go_opt=paths=source_relative,simple'
	fi
	# shellcheck disable=SC2086 # two words, or none
	PATH="$bin:$PATH" protoc -I . --go_out=. --go_opt=paths=source_relative $connect "transport/peerpb/$proto.proto"
done
