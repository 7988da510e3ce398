# What each target needs beyond Go, python3 and the network's registries is
# installed by .ci/setup (see CONTRIBUTING).
PREFIX  ?= /usr/local
VERSION ?= 0.1.0
GO      ?= go
SGPATCH_CASES ?= ../shared/cases
LDFLAGS  = -s -w -X main.version=$(VERSION)
STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.8.2
FUZZTIME ?= 30s
CONFORMANCETIME ?= 3m
unexport PYTHONDONTWRITEBYTECODE

.PHONY: build demo test bench bench-fleet wheels releases fuzz torture conformance contrib lint install uninstall cases clean

build:
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/sgpatch ./cmd/patch

demo: build
	$(GO) run ./fixtures/demo -bin bin/sgpatch

test:
	$(GO) test -race -count=1 -timeout 20m ./...

lint:
	@test -z "$$(gofmt -l cmd contrib fixtures patcher patches remote verify)" || { gofmt -l cmd contrib fixtures patcher patches remote verify; exit 1; }
	$(GO) vet ./...
	$(GO) vet -tags faults ./patcher/internal/txn
	$(GO) run $(STATICCHECK) ./...
	$(GO) run $(STATICCHECK) -tags faults ./patcher/internal/txn

# every supported release: apply, behaviour check, verify, revert, compare
wheels: build
	$(GO) run ./fixtures/matrix -bin bin/sgpatch

# the release table of force-custom-ar-pcie, from the published wheels
releases:
	$(GO) run ./fixtures/releases

bench: build
	$(GO) run ./fixtures/bench -bin bin/sgpatch

# 64 hosts on the loopback: this program, clush and Ansible in turn
bench-fleet:
	$(GO) test ./fixtures/fleet -run '^$$' -bench Fleet -benchtime 3x

fuzz:
	./fixtures/fuzz $(FUZZTIME)

# every call of a commit and of its recovery fails, the power goes, the disk is
# full: nothing may be lost. TORTURE=5m is a cut of it.
TORTURE ?= 18m
torture:
	$(GO) run ./fixtures/torture -for $(TORTURE)

# against git apply and patch -F0: on what their own tests apply, and on random diffs
conformance:
	$(GO) run ./fixtures/conformance -for $(CONFORMANCETIME) $(CONFORMANCEFLAGS)

# kustomize builds the examples, and each form is looked at by its own tool; the
# Dockerfiles, scripts and units themselves are run by go test ./contrib
contrib:
	./contrib/lint
	cd contrib/kubernetes/check && $(GO) vet . && $(GO) test -count 1 .

cases: build
	SGPATCH_BIN=$(CURDIR)/bin/sgpatch $(SGPATCH_CASES)/run

install: build
	install -d $(DESTDIR)$(PREFIX)/bin
	install -m 0755 bin/sgpatch $(DESTDIR)$(PREFIX)/bin/sgpatch
	@p=$(DESTDIR)$(PREFIX)/bin/patch; if [ "$$(readlink $$p)" = sgpatch ] || [ ! -e $$p ]; then ln -sf sgpatch $$p; \
	else echo "$$p is not sgpatch and stays; sgpatch is installed under its own name"; fi

uninstall:
	@p=$(DESTDIR)$(PREFIX)/bin/patch; [ "$$(readlink $$p)" != sgpatch ] || rm $$p
	rm -f $(DESTDIR)$(PREFIX)/bin/sgpatch

clean:
	rm -rf bin
