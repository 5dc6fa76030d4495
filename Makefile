# `make help` lists the targets. Everything they need beyond Go, git and make they
# fetch themselves.

SHELL := /bin/sh
BIN := .bin/standmeet
GOLANGCI_LINT := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
# Two packages at a time, for two cores; the time limit is for each of them.
GOTEST := go test -race -timeout 8m -p 2 $(GOTESTFLAGS)

.DEFAULT_GOAL := help

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## build .bin/standmeet
	@test -x $(BIN) || echo "Building; the first time this takes a minute or two …"
	@go build -buildvcs=false -o $(BIN) ./local

run: build ## start everything on an embedded PostgreSQL; PARTS=gateway,relay,workers chooses
	@exec $(BIN)

gateway relay workers: build
	@test -n "$$DATABASE_URL" || { echo "make $@: set DATABASE_URL (local/.run/run.json of a running \`make run\` has one)" >&2; exit 2; }
	@PARTS=$@ exec $(BIN)
gateway: ## the functions behind the local gateway alone, against DATABASE_URL
relay: ## the relay alone, against DATABASE_URL
workers: ## the workers alone, against DATABASE_URL

test: ## all tests: real PostgreSQL, race detector
	@$(GOTEST) ./...

bench: build ## the benchmark: a table, and local/.run/bench.json
	@exec $(BIN) bench

ops: build ## print every operation's name, route, tool and function
	@exec $(BIN) ops

lint: ## formatting, linters, tidy go.mod
	@go mod tidy -diff >/dev/null || { echo "go.mod: run go mod tidy" >&2; exit 1; }
	@go run $(GOLANGCI_LINT) run ./...

generate: ## rewrite the goldens
	@UPDATE_GOLDEN=1 $(GOTEST) -count=1 -run Golden ./...

verify: ## fail if a golden is stale
	@$(GOTEST) -run Golden ./...

clean: ## remove what was built and the data of `make run`
	@rm -rf "$$(readlink -f local/.run/postgres/data)" local/.run .bin

.PHONY: help build run gateway relay workers test bench ops lint generate verify clean
