# The commands of the project. `make` alone lists them.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON_DEPS := .deps/python/bin/python3

.PHONY: help demo test bench lint fuzz peers older traces vm deps install release test-packages
# The architecture of a release, and its kinds of packages; empty for this machine's, and for all.
ARCHITECTURE :=
ONLY :=
# The commit whose programs `make older` builds.
COMMIT :=

help:            ## List the commands
	@grep -hE '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | column -t -s "$$(printf '\t')"

deps:            ## Install the Python runtime, ImageMagick, the functions' packages and their inputs
	@scripts/install-python.sh
	@scripts/install-imagemagick.sh || echo "deps: the wand_ functions need ImageMagick and will not run"
	@$(PYTHON_DEPS) scripts/fetch_inputs.py

peers:           ## Install the servers that experiments and tests use (Swift, Keystone, Redis, MinIO, ...), and the larger SDKs
	@scripts/install-swift.sh || echo "peers: without Swift, what compares with it is skipped"
	@scripts/install-keystone.sh || echo "peers: without Keystone its test is skipped"
	@scripts/install-peers.sh || echo "peers: what compares with those that were left out is skipped"
	@scripts/install-sdks.sh

older:           ## Build the programs of an earlier COMMIT outside the clone, for `nigh experiment upgrade --old COMMIT`
	@scripts/install-older.sh "$(COMMIT)"

traces: deps     ## Record the memory traces that data/llc-traces lacks (half an hour of one processor)
	@scripts/install-trace-tools.sh
	@$(PYTHON_DEPS) experiments/llc-traces/record.py

vm:              ## Install QEMU, pqos and the pinned kernels for `nigh llc selftest --vm`
	@scripts/install-vm.sh
	@scripts/install-vm-kernels.sh

demo:            ## Run real functions on one machine and show where their time goes
	@scripts/demo.sh

test:            ## Run every test and lint; needs no set-up beforehand
	@scripts/test.sh

lint:            ## Check format and lints
	@cargo fmt --check
	@cargo clippy --workspace --all-targets -- -D warnings

bench: deps      ## Print the benches: S3 door and invocations, each beside its peer
	@cargo build --release --bins --lib
	@target/release/nigh bench s3
	@target/release/nigh bench invoke

fuzz:            ## Run each fuzz target for a minute (needs a nightly toolchain and cargo-fuzz)
	@scripts/fuzz.sh

release:         ## Make dist/: an archive, a wheel, a Debian package, an OCI image, checksums, SBOM and licences
	@scripts/install-package-tools.sh
	@rm -rf dist
	@packaging/release.py $(if $(ARCHITECTURE),--architecture $(ARCHITECTURE)) $(if $(ONLY),--only $(ONLY))

test-packages:   ## Install each package of dist/ on fresh machines; REBUILD=1 builds the release once more and compares
	@scripts/install-package-tools.sh
	@NIGH_TEST_REBUILD=$(REBUILD) python3 -m unittest discover -v -s tests/packages

install: deps    ## Install nigh and its programs beside each other in ~/.cargo/bin
	@cargo build --release --bins --lib
	@install -D -t "$${CARGO_HOME:-$$HOME/.cargo}/bin" target/release/nigh target/release/nigh-sandbox \
		target/release/nigh-http-adapter target/release/nigh-features target/release/libnigh_native.so \
		target/release/nigh-lab target/release/nigh-peer target/release/nigh-resctrl-guest
	@ln -sfn "$(CURDIR)/$(PYTHON_DEPS)" "$${CARGO_HOME:-$$HOME/.cargo}/bin/nigh-python"
