# Run "make" for the list of targets.
.DEFAULT_GOAL := help
SHELL := /bin/bash
GOLANGCI := tools/bin/golangci-lint

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## Compile every package
	go build ./...

.PHONY: test
test: ## Unit tests: nothing to install, tests of real services are skipped
	go test ./...

.PHONY: test-all
test-all: ## All tests, with the race detector and real services
	scripts/test

.PHONY: lint
lint: $(GOLANGCI) ## Run the linters
	$(GOLANGCI) run ./...

.PHONY: fmt
fmt: $(GOLANGCI) ## Format the code
	$(GOLANGCI) fmt ./...

.PHONY: fmt-check
fmt-check: $(GOLANGCI) ## Show what "make fmt" would change, and fail if anything
	$(GOLANGCI) fmt --diff ./...

.PHONY: tidy-check
tidy-check: ## Fail if a go.mod or go.sum is not tidy
	go mod tidy -diff
	go -C tools mod tidy -diff
	go -C bench mod tidy -diff

.PHONY: vuln
vuln: ## Look for known vulnerabilities in the dependencies
	go build -C tools -o bin/govulncheck golang.org/x/vuln/cmd/govulncheck
	tools/bin/govulncheck ./...

.PHONY: services-up
services-up: ## Start the real services (prints their addresses)
	@scripts/services up

.PHONY: services-down
services-down: ## End the real services
	scripts/services down

.PHONY: quickstart
quickstart: ## Run the quickstart example
	go run ./examples/quickstart

.PHONY: chaos
chaos: ## Dispatchers on real services while everything fails: make chaos CHAOS="-duration 1m -broker kafka"
	go run ./internal/chaos $(CHAOS)

.PHONY: bench-core
bench-core: ## Benchmarks of the core
	go test -run '^$$' -bench . -benchmem ./core/...

.PHONY: bench
bench: ## Compare with what people use today (first: eval "$$(scripts/services up)")
	go -C bench run . -suite quick

SEEDS ?= 2000
.PHONY: sim
sim: ## Simulate dispatchers under all that goes wrong (SEEDS=2000)
	@dir=$$(mktemp -d) && trap 'rm -r "$$dir"' EXIT && go test -c -o $$dir/sim ./store/postgres/internal/sim && \
		$$dir/sim -test.run '^TestSimulation$$' -test.timeout 0 -sim.seeds $(SEEDS)

.PHONY: ci
ci: ## Everything that is checked before a change lands
	.ci/run

# The linter is built from the versions that tools/go.mod pins. It takes some
# minutes the first time.
$(GOLANGCI): tools/go.mod
	go build -C tools -o bin/golangci-lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	@touch $@
