# The same few commands for a developer and for CI. Everything is set up on first use: the virtual environment .venv,
# what pyproject.toml names, and the Rust core in release mode. Stamp files keep later runs quick.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory
export PATH := $(PATH):$(HOME)/.cargo/bin
# Tests start thousands of processes. Without bytecode each compiles all that it imports: for vLLM, half a minute.
unexport PYTHONDONTWRITEBYTECODE
# Recipes and tests take what cargo has built from native/target.
unexport CARGO_TARGET_DIR

VENV := .venv
PYTHON := $(VENV)/bin/python
DEPENDENCIES := $(VENV)/.stamp-dependencies
NATIVE := $(VENV)/.stamp-native
NATIVE_SOURCES := $(shell find native/*/src -type f) $(wildcard native/*.toml native/*/Cargo.toml native/Cargo.lock)

# A wait that runs out of patience may be the fault of a busy machine: it is tried once more, and the closing line counts
# it. Whatever else fails has failed, and so has a wait of a test that kills. CI has other ones: see .ci/run.
RERUNS ?= --reruns 1 --only-rerun "waited in vain" --only-rerun TimeoutExpired --only-rerun ReadTimeout

# Two processes for each core, since many tests wait for servers; each has its own share, and takes from the
# others when that is done.
PYTEST := $(PYTHON) -m pytest --numprocesses $$((2 * $$(nproc))) --dist worksteal --durations=20 $(RERUNS)

# The first Python on the PATH that is new enough.
FIND_PYTHON = for p in python3 python3.14 python3.13 python3.12 python3.11 python3.10; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null && { command -v "$$p"; break; }; done || true

# $(call require,COMMAND,DEBIAN PACKAGE,WHAT FOR): installs it where that is possible, else says what is missing. A person
# at a terminal is asked first.
define require
command -v $(1) >/dev/null || { \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && { \
		echo "missing: $(1), for $(3). apt-get install $(2) would install it." >&2; \
		[ ! -t 0 ] || { read -r -p "Install it now? [y/N] " answer && [[ "$$answer" = [yY]* ]]; }; }; then \
		flock /var/lib/apt bash -c "apt-get install -qq -y $(2) || { apt-get update -qq && apt-get install -qq -y $(2); }" \
			</dev/null >/dev/null; \
	else \
		echo "missing: $(1), for $(3). Install it (on Debian: sudo apt-get install $(2)) and run make again." >&2; exit 1; \
	fi; }
endef

# A header, which no `command -v` finds.
spdlog = [ -f /usr/include/spdlog/spdlog.h ] || $(call require,spdlog.h,libspdlog-dev,spdlog beside our library)

# By topic; what is typed daily has two # in `make help`, the rest three.
include make/real.mk make/lengthy.mk make/bench.mk make/release.mk

.DEFAULT_GOAL := help
# Every target whose name is a word: none of them is a file.
.PHONY: $(shell sed -nE 's/^([a-z][a-z0-9-]*):.*/\1/p' $(MAKEFILE_LIST))

##@ Every day
help: ## Show this list; `make help-all` shows each target
help-all: ### Show each target
help help-all:
	@awk -F ':.* ##+ ' '/^##@ / { print "\n" substr($$0, 5) } \
		/^[a-z0-9-]+:.* $(if $(filter help,$@),##,###?) / { printf "  make %-20s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: build ## Show what logging costs, then the main job: an arrival trace, records, health, books (a minute)
	@($(call require,wrk,wrk,the cost of logging by turns; without it that is not measured)) || true
	$(PYTHON) -m loadtests.compare.demo

quick: build ## Run what needs no server: Rust, ring and slots under loom, Python
	@echo "Rust tests and loom models, then Python; cargo compiles first what has changed, and prints nothing meanwhile"
	@$(MAKE) -j2 test-rust test-loom
	$(PYTEST) -m "not servers and not real"

test: $(DEPENDENCIES) ## Run all tests but those with third-party servers
	@($(call require,wrk,wrk,the tests that drive a server with it; without it they are skipped)) || true
	@($(call require,promtool,prometheus,the test of the metrics' form; without it that one is skipped)) || true
	@($(call require,chromium,chromium,the tests that look at the report; without it they are skipped)) || true
	@($(spdlog)) || true
	@# The release build is one thread for most of its time, so the Rust tests run beside it.
	@$(MAKE) -j2 test-rust $(NATIVE)
	@$(MAKE) -j2 test-loom test-python

# Without MAKEFLAGS: cargo would look for the job server of a make that did not start it as one of its own.
# Tests run the listener's program and the C library. With one test beside them cargo gives both the features of `cargo
# test`; without one it compiles anew what they share.
test-rust: toolchain
	cd native && env -u MAKEFLAGS -u MFLAGS cargo test --quiet
	cd native && env -u MAKEFLAGS -u MFLAGS cargo build --quiet --lib --bins --test loom

test-loom: toolchain
	cd native/ring && env -u MAKEFLAGS -u MFLAGS RUSTFLAGS="--cfg loom" nice -n 10 cargo test --quiet --profile loom --test loom --target-dir ../target/loom

test-python: $(NATIVE)
	$(PYTEST) -m "not real"

lint: build $(VENV)/.stamp-audit ## Run all linters and type checkers
	$(PYTHON) -m ruff check
	$(PYTHON) -m ruff format --check
	$(PYTHON) release/vendor.py --check
	$(PYTHON) -m mypy
	$(PYTHON) -m mypy.stubtest inference_logging._native
	cd native && cargo fmt --all --check
	cd native && PYO3_PYTHON="$(abspath $(PYTHON))" cargo clippy --quiet --workspace --all-targets -- -D warnings
	@# What reads objects in place is compiled for one version of Python only, which need not be here.
	cd native && for version in $(PYTHONS); do \
		PYO3_CROSS=1 PYO3_CROSS_PYTHON_VERSION=$$version cargo clippy --quiet --package inference_logging_native \
			--no-default-features -- -D warnings || exit 1; done
	$(PYTHON) release/audit.py

check: lint test ## Run lint, then test

dependencies: $(DEPENDENCIES) ### Set up .venv

build: $(NATIVE) ## Set up .venv and build the Rust core in release mode

docs: $(VENV)/.stamp-docs ## Build the documentation into build/site; a broken link fails it
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict --quiet
	@echo "the pages are in build/site; index.html is the first"

clean: ## Remove what was built and written; .venv, .venv-NAME and .tools stay
	rm -rf native/target dist build out inference_logging/_native*.so $(NATIVE)
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find inference_logging tests examples loadtests tools -name __pycache__ -prune -exec rm -rf {} +

toolchain:
	@$(call require,cc,gcc libc6-dev,linking the Rust core)
	@needed=$$(sed -n 's/^rust-version = "\(.*\)"/\1/p' native/Cargo.toml); found=$$( (cargo --version || :) 2>/dev/null | cut -d' ' -f2); \
	[ "$$(printf '%s\n' "$$needed" "$${found:-0}" | sort -V | head -1)" = "$$needed" ] || { \
		echo "missing: cargo $$needed or newer, for building the Rust core$${found:+ (found: $$found)}. Install Rust with rustup." >&2; \
		exit 1; }

$(PYTHON):
	@python=$$($(FIND_PYTHON)); \
	if [ -z "$$python" ]; then \
		echo "missing: Python 3.10 or newer. Install it (on Debian: sudo apt-get install python3 python3-venv)." >&2; exit 1; \
	fi; \
	"$$python" -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "missing: the venv module of $$python (on Debian: sudo apt-get install python3-venv)." >&2; exit 1; }; \
	echo "creating $(VENV) with $$python"; \
	"$$python" -m venv $(VENV)

$(DEPENDENCIES): release/locks/dev.txt | $(PYTHON)
	@echo "installing the Python packages of release/locks/dev.txt into $(VENV)"
	$(PYTHON) release/locks.py --install dev
	@touch $@

# What only some targets need comes into the same environment.
$(VENV)/.stamp-%: release/locks/%.txt $(DEPENDENCIES)
	$(PYTHON) release/locks.py --install $*
	@touch $@

# maturin asks for the run-time dependencies of pyproject.toml, which the lock has.
$(NATIVE): $(NATIVE_SOURCES) pyproject.toml $(DEPENDENCIES) | toolchain
	@echo "compiling the Rust core in release mode: about 4 minutes on two cores the first time"
	PIP_QUIET=1 VIRTUAL_ENV="$(abspath $(VENV))" $(VENV)/bin/maturin develop --release
	@touch $@
