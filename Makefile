# The one entry to everything: people and CI call these targets.
#   make build         bin/vtopd and bin/vtopctl
#   make test          unit, property and protocol tests of every package (no root, no network but loopback)
#   make race          the same under the race detector, short
#   make check         format, vet, lint, generated files fresh, go.mod tidy
#   make cluster-test  real processes, real clients, real disks; steps the machine can't run say so
#   make repair-test   the same for seal, repair, drain and healing
#   make chaos         every fault twice, overlapping others and by itself, on two working clusters, from a seed (SEED=…, LIVES=…, FAULTS=a,b); see docs/chaos.md
#   make chaos-long    one cluster after the other, SEED=… MINUTES=… (default 60)
#   make clients       real Kafka clients in six languages; writes docs/clients.md (PARTS="vtop tools franz kfake", the default; apache is one more)
#   make sim           the whole cluster on virtual time, LIVES (1000) lives from SEED (1) on; make sim SEED=… LIVES=1 repeats one (docs/testing.md)
#   make sim-mutants   plants mistakes and wants the simulation to find each
#   make fuzz          every decoder, FUZZTIME each (default 60s)
#   make bench         the figures of docs/performance.md, on this machine
SHELL       := /bin/bash
GO          ?= go
FUZZTIME    ?= 60s
STATICCHECK := $(GO) tool -modfile=tools/go.mod staticcheck

.PHONY: build test race check fmt vet lint generated tidy sim sim-mutants fuzz cluster-test repair-test chaos chaos-long clients bench clean

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

# The overlay takes the chance out of the Go runtime, so that a seed repeats a life exactly; where it does not fit this Go, the
# plain runtime has to do.
sim:
	@overlay=$$($(GO) run ./test/sim/overlay bin/sim) && overlay="-overlay $$overlay" || overlay=; \
	$(GO) test $$overlay -c -o bin/sim/sim.test ./test/sim && cd test/sim && \
	VTOP_SIM_SEED=$(or $(SEED),1) VTOP_SIM_LIVES=$(or $(LIVES),1000) VTOP_SIM_FRESH=1 GOMAXPROCS=1 GOGC=off GOMEMLIMIT=3GiB \
	../../bin/sim/sim.test -test.run '^TestLives$$' -test.timeout 60m -test.v | grep -v '^=== '; exit $${PIPESTATUS[0]}

sim-mutants:
	VTOP_SIM_MUTANTS=all $(GO) test -count=1 -timeout 60m -run AreFound -v ./test/sim/mutants

fuzz:
	./tools/fuzz.sh $(FUZZTIME)

cluster-test: build
	./tools/cluster-test.sh $$($(GO) list -tags cluster ./test/... | grep -vE '/test/(repair|clients|chaos)$$')

repair-test: build
	./tools/cluster-test.sh ./test/repair

CHAOS = VTOP_BIN=$(CURDIR)/bin VTOP_CHAOS_SEED=$(SEED) VTOP_CHAOS_FAULTS=$(FAULTS)

chaos: build
	$(CHAOS) VTOP_CHAOS_LIVES=$(or $(LIVES),2) $(GO) test -tags cluster -count=1 -timeout 90m -v ./test/chaos

chaos-long: build
	$(CHAOS) VTOP_CHAOS_MINUTES=$(or $(MINUTES),60) $(GO) test -tags cluster -count=1 -timeout 0 -v -run '^TestChaos$$' ./test/chaos

clients: build
	./tools/clients.sh $(PARTS)

bench: build
	$(GO) test -tags cluster -count=1 -timeout 30m -run '^$$' -bench . -benchtime 1x ./test/bench/...

clean:
	rm -rf bin
