# The one entry to everything: people and CI call these targets.
#   make build         bin/vtopd and bin/vtopctl
#   make test          unit, property and protocol tests of every package (no root, no network but loopback)
#   make race          the same under the race detector, short
#   make check         format, vet, lint, generated files fresh, go.mod tidy
#   make cluster-test  real processes, real clients, real disks; steps the machine can't run say so
#   make repair-test   the same for seal, repair, drain and healing
#   make clients       real Kafka clients in six languages; writes docs/clients.md (PARTS="vtop tools" leaves out the rest)
#   make fuzz          every decoder, FUZZTIME each (default 60s)
#   make bench         the figures of docs/performance.md, on this machine
SHELL       := /bin/bash
GO          ?= go
FUZZTIME    ?= 60s
STATICCHECK := $(GO) tool -modfile=tools/go.mod staticcheck

.PHONY: build test race check fmt vet lint generated tidy fuzz cluster-test repair-test clients bench clean

build:
	$(GO) build -o bin/vtopd ./cmd/vtopd
	$(GO) build -o bin/vtopctl ./cmd/vtopctl

test:
	$(GO) test -timeout 20m ./...

race:
	$(GO) test -race -short -timeout 30m ./...

check: fmt vet lint generated tidy

fmt:
	@out=$$(gofmt -l $$(git ls-files '*.go')); if [ -n "$$out" ]; then echo "gofmt needed:"; echo "$$out"; exit 1; fi

vet:
	$(GO) vet ./...
	$(GO) vet -tags cluster ./test/...

lint:
	$(STATICCHECK) ./...
	$(STATICCHECK) -tags cluster ./test/...

generated:
	./tools/generate.sh --check

tidy:
	$(GO) mod tidy -diff

fuzz:
	./tools/fuzz.sh $(FUZZTIME)

cluster-test: build
	./tools/cluster-test.sh $$($(GO) list -tags cluster ./test/... | grep -vE '/test/(repair|clients)$$')

repair-test: build
	./tools/cluster-test.sh ./test/repair

clients: build
	./tools/clients.sh $(PARTS)

bench: build
	$(GO) test -tags cluster -count=1 -timeout 30m -run '^$$' -bench . -benchtime 1x ./test/bench/...

clean:
	rm -rf bin
