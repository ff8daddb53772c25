# Targets: build man install test test-fast dogfood fuzz demo bench guarantees guest clean. What each needs is in CONTRIBUTING.md.

GO      ?= go
PREFIX  ?= /usr/local
MODULE  := github.com/caisson-dev/caisson

# Two builds of one commit are the same bytes: no paths, no clock, no host name.
export CGO_ENABLED := 0
VERSION := $(shell git describe --tags --match 'v[0-9]*' --dirty 2>/dev/null | sed 's/^v//')
COMMIT  := $(shell c=$$(git rev-parse HEAD 2>/dev/null) && { git diff --quiet HEAD -- 2>/dev/null || c=$$c-dirty; echo $$c; })
BUILD   := $(GO) build -trimpath -buildvcs=false
WORKER  := internal/workerbin/bin/caisson-worker
STAMP    = -X $(MODULE)/internal/version.version=$(VERSION) -X $(MODULE)/internal/version.commit=$(COMMIT)

.PHONY: build worker man install test test-fast dogfood fuzz demo bench guarantees guest clean

build: worker
	$(BUILD) -ldflags "-s -w $(STAMP) -X $(MODULE)/internal/workerbin.digest=$$( (sha256sum $(WORKER) || shasum -a 256 $(WORKER)) 2>/dev/null | cut -d' ' -f1)" -o bin/caisson ./cmd/caisson

# The worker carries no stamp: the same source gives the same worker in every version.
worker:
	GOOS=linux $(BUILD) -ldflags "-s -w" -o $(WORKER) ./cmd/caisson-worker

# One page per command, from the texts of --help; dated by the commit.
man:
	$(GO) run ./internal/door/cli/manpages -out bin/man/man1 -version "$(VERSION)" -epoch "$$(git log -1 --format=%ct 2>/dev/null || echo 0)"

install: build man
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/share/man/man1
	install -m 0755 bin/caisson $(DESTDIR)$(PREFIX)/bin/caisson
	install -m 0644 bin/man/man1/caisson*.1 $(DESTDIR)$(PREFIX)/share/man/man1/

test:
	bash scripts/test.sh all

test-fast: worker
	bash scripts/test.sh fast

# The short tests inside a boundary of our own; see CONTRIBUTING.md.
dogfood: build
	bash scripts/dogfood.sh

# FUZZTIME=5m for longer, FUZZ=PATTERN for some of them.
fuzz:
	bash scripts/fuzz.sh '$(FUZZ)'

demo:
	bash scripts/demo.sh

bench: build
	$(GO) run ./bench -caisson bin/caisson -out docs/BENCHMARKS.md

# Attacks every backend here, as root with private engines, and writes docs/GUARANTEES.md and docs/comparison.md.
guarantees: build
	CAISSON_GUARANTEES=write CAISSON_TEST_BIN=$(CURDIR)/bin/caisson $(GO) test ./test/guarantees -run Render -count 1 -v -timeout 30m

# Other kernels, in QEMU: root, a mirror of packages, about half an hour. GUEST=--quick, or the name of a system, for less.
guest: build
	bash scripts/guest.sh --write $(GUEST)

clean:
	rm -rf bin $(WORKER)
