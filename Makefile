# The same few commands for a developer and for CI. Everything is set up on first use: the virtual environment .venv,
# what pyproject.toml names, and the Rust core in release mode. Stamp files keep later runs quick.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory
export PATH := $(PATH):$(HOME)/.cargo/bin

VENV := .venv
PYTHON := $(VENV)/bin/python
DEPENDENCIES := $(VENV)/.stamp-dependencies
NATIVE := $(VENV)/.stamp-native
NATIVE_SOURCES := $(shell find native/*/src -type f) $(wildcard native/*.toml native/*/Cargo.toml native/Cargo.lock)

# Of the listener without Python.
STATIC_TARGET := $(shell uname -m)-unknown-linux-musl
# Of the C library for small machines.
EMBEDDED_TARGETS := x86_64-unknown-linux-musl aarch64-unknown-linux-musl armv7-unknown-linux-musleabihf
# Of `make check-macos`.
MACOS_TARGET := aarch64-apple-darwin
# The checkout with the portable core in it.
PORTABLE := build/portable
# Where maturin looks for what a wheel holds beside the package.
WHEEL_DATA := inference_logging._native.data

# A real vLLM, in an environment of its own: its packages are many and pinned.
VLLM := .venv-vllm
VLLM_INSTALLED := $(VLLM)/.stamp-installed
VLLM_PACKAGE := $(VLLM)/.stamp-package
VLLM_SETUP := $(wildcard tests/integrations/vllm/*)

# A real Triton: of its package only the server's binaries are used.
TRITON := .venv-triton
TRITON_INSTALLED := $(TRITON)/.stamp-installed
TRITON_PACKAGE := $(TRITON)/.stamp-package
# A real Parsl: what it needs is not to be mixed with what the tests need. The package is imported from the checkout.
PARSL := .venv-parsl
PARSL_INSTALLED := $(PARSL)/.stamp-installed
# A real Phoenix, which is asked for the spans that were shipped to it.
PHOENIX := .venv-phoenix
PHOENIX_INSTALLED := $(PHOENIX)/.stamp-installed
# Real inference servers that build their own applications, each in an environment of its own; the package is imported
# from the checkout.
RECIPES := .venv-recipes
RECIPES_INSTALLED := $(patsubst %,$(RECIPES)/%/.stamp-installed,bentoml kserve litellm litserve ray)
# ClickHouse's engine in a process of Python, which is asked for the records that were shipped to it.
CLICKHOUSE := .venv-clickhouse
CLICKHOUSE_INSTALLED := $(CLICKHOUSE)/.stamp-installed
# Load generators that read exports: beside vLLM's packages, which they share.
EXPORT := .venv-export
EXPORT_INSTALLED := $(EXPORT)/.stamp-installed
EXPORT_SETUP := $(wildcard tests/integrations/export/*.txt tests/integrations/export/mooncake_reader/*.* \
	tests/integrations/export/mooncake_reader/src/*)
PACKAGE_SOURCES := pyproject.toml $(shell find inference_logging -name '*.py')

# Programs of others that tests drive, as tests/tools/pins.yaml has them: those of one part; `make tools` gets all.
CLUSTER_TOOLS := helm crds etcd kube-apiserver kube-controller-manager kube-scheduler kubectl kwok ray-crds kserve-crds lws-crds inferencepool-crds
SHIPPING_TOOLS := otelcol otelgateway kafka fluent loki versitygw opensearch
# Built from a checkout, which no registry has: its folder.
ifdef FLUENT_BIT_SOURCE
SHIPPING_TOOLS += fluent-bit
endif

# A wait that runs out of patience may be the fault of a busy machine: it is tried once more, and the closing line counts
# it. Whatever else fails has failed, and so has a wait of a test that kills. CI has other ones: see .ci/run.
RERUNS ?= --reruns 1 --only-rerun "waited in vain" --only-rerun TimeoutExpired --only-rerun ReadTimeout

# Two processes for each core, since many tests wait for servers; each has its own share, and takes from the
# others when that is done.
PYTEST := $(PYTHON) -m pytest --numprocesses $$((2 * $$(nproc))) --dist worksteal --durations=20 $(RERUNS)

# Of the benchmarks: --quick, --json FILE; of `make bench` and `make bench-turns` also --keep.
BENCH_OPTIONS :=

# Versions of Python that have wheels of their own, beside the one for all: a request costs less there.
PYTHONS := 3.11 3.12 3.13 3.14

# In native/fuzz; the inputs in its corpus.tar.zst are run by every `make test`.
FUZZ_TARGETS := queue_file record extract redact
FUZZ_SECONDS := 600

# The first Python on the PATH that is new enough.
FIND_PYTHON = for p in python3 python3.14 python3.13 python3.12 python3.11 python3.10; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null && { command -v "$$p"; break; }; done || true

# $(call require,COMMAND,DEBIAN PACKAGE,WHAT FOR): installs it where that is possible, else says what is missing.
define require
command -v $(1) >/dev/null || { \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		{ apt-get install -qq -y $(2) || { apt-get update -qq && apt-get install -qq -y $(2); }; } </dev/null >/dev/null; \
	else \
		echo "missing: $(1), for $(3). Install it (on Debian: sudo apt-get install $(2)) and run make again." >&2; exit 1; \
	fi; }
endef

# A header, which no `command -v` finds.
spdlog = [ -f /usr/include/spdlog/spdlog.h ] || $(call require,spdlog.h,libspdlog-dev,spdlog beside our library)

RSYSLOG := rsyslog rsyslog-relp rsyslog-gnutls rsyslog-openssl
# Where systemd runs, the package of rsyslog starts a service that takes the machine's log: that is not for a test to do.
define journals
if [ -d /run/systemd/system ] && ! [ -x /usr/sbin/rsyslogd ]; then \
	echo "missing: rsyslog; its tests are skipped. Install it (on Debian: sudo apt-get install $(RSYSLOG))." >&2; \
else \
	($(call require,/usr/sbin/rsyslogd,$(RSYSLOG),the tests with rsyslog; without it they are skipped)) || true; \
fi; \
($(call require,/lib/systemd/systemd-journal-remote,systemd-journal-remote,the tests with a remote journal; without it they are skipped)) || true
endef

# $(call install_tools,NAMES): what exists stays; a missing one is reported, and fails the step after the others.
define install_tools
($(call require,go,golang,building what is written in Go)) || true; \
($(call require,mvn,maven,the jars of Kafka and OpenSearch)) || true; \
($(call require,npm,npm,the Fluent forward server)) || true; \
$(PYTHON) tests/tools/install.py $(1)
endef

.DEFAULT_GOAL := help
# Every target whose name is a word: none of them is a file.
.PHONY: $(shell sed -nE 's/^([a-z][a-z-]*):.*/\1/p' $(firstword $(MAKEFILE_LIST)))

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

build: $(NATIVE) ## Set up .venv and build the Rust core in release mode

listener: toolchain ## Build dist/inference-logging-listener: static, needs neither Python nor a C library
	@$(call require,musl-gcc,musl-tools,compiling zstd for a static program)
	@[ -d "$$(rustc --print sysroot)/lib/rustlib/$(STATIC_TARGET)" ] || rustup target add $(STATIC_TARGET) || { \
		echo "missing: Rust's target $(STATIC_TARGET). Install it: rustup target add $(STATIC_TARGET)" >&2; exit 1; }
	cd native && env -u MAKEFLAGS -u MFLAGS CC_$(subst -,_,$(STATIC_TARGET))=musl-gcc \
		cargo build --quiet --release --package inference_logging_program --target $(STATIC_TARGET)
	@mkdir -p dist
	cp native/target/$(STATIC_TARGET)/release/inference-logging-listener dist/

# By the names that images have for processors.
WEBHOOK_TARGETS := amd64:x86_64-unknown-linux-musl arm64:aarch64-unknown-linux-musl
webhook: toolchain $(VENV)/.stamp-wheels ## Build the program of the webhook into dist/webhook, static, for x86-64 and arm64
	@rm -rf dist/webhook
	@for each in $(WEBHOOK_TARGETS); do target=$${each#*:}; \
		[ -d "$$(rustc --print sysroot)/lib/rustlib/$$target" ] || rustup target add $$target || exit 1; \
		(cd native && env -u MAKEFLAGS -u MFLAGS PATH="$(abspath $(VENV))/bin:$$PATH" cargo-zigbuild zigbuild --quiet \
			--release --locked --package inference_logging_webhook --target $$target) || exit 1; \
		install -D -t dist/webhook/$${each%:*} native/target/$$target/release/inference-logging-webhook || exit 1; \
	done
	@wc -c dist/webhook/*/*

c: toolchain ## Build the C library into dist/c: shared and static, header, files for pkg-config and CMake
	cd native && env -u MAKEFLAGS -u MFLAGS cargo build --quiet --release --package inference_logging_c
	native/c/install native/target/release dist/c

c-embedded: toolchain $(VENV)/.stamp-embedded ## Build the C library without a listener into dist/c-embedded, for three processors (four minutes)
	@for target in $(EMBEDDED_TARGETS); do \
		PYTHON="$(abspath $(PYTHON))" native/c/embedded $$target dist/c-embedded/$$target || exit 1; \
	done
	@wc -c dist/c-embedded/*/lib/libinferlog.so.1

onnx-example: c $(DEPENDENCIES) ## Build and run the C++ example with a real ONNX Runtime; the first time 50 MB are downloaded
	@$(call require,go,golang,the header of ONNX Runtime)
	@$(call require,cmake,cmake,building the example)
	@$(call require,g++,g++,building the example)
	@$(PYTHON) tests/tools/install.py onnxruntime
	cmake -S examples/cpp_onnx_pipeline -B build/onnx_pipeline \
		"-DCMAKE_PREFIX_PATH=$(abspath dist/c);$(abspath .tools/onnxruntime)" >/dev/null
	cmake --build build/onnx_pipeline
	$(PYTHON) examples/cpp_onnx_pipeline/model.py build/onnx_pipeline/digits.onnx
	INFERENCE_LOGGING_DIRECTORY=build/onnx_pipeline/logs build/onnx_pipeline/pipeline build/onnx_pipeline/digits.onnx
	@echo "the records are in build/onnx_pipeline/logs"

# Faces of other languages are no crates for others.
crates: toolchain ## Package the crates for publishing, and build each from its package
	cd native && env -u MAKEFLAGS -u MFLAGS cargo package --quiet --workspace --exclude inference_logging_c \
		--exclude inference_logging_listener --exclude inference_logging_program --exclude inference_logging_proxy \
		--exclude inference_logging_webhook --exclude inference_logging_native

header: toolchain ## Write native/c/include/inferlog.h anew
	cd native && env -u MAKEFLAGS -u MFLAGS UPDATE_HEADER=1 cargo test --quiet --package inference_logging_c

# Only while the wheel is built: each later build, also one for development, would take the program along.
wheel: listener $(DEPENDENCIES) ## Build the wheel into dist/, with the static listener in it
	@rm -f dist/*.whl; trap 'rm -rf $(WHEEL_DATA)' EXIT; \
	install -D dist/inference-logging-listener $(WHEEL_DATA)/scripts/inference-logging-listener; \
	$(VENV)/bin/maturin build --release --quiet --interpreter $(abspath $(PYTHON)) --out dist

wheels: toolchain $(VENV)/.stamp-wheels ## Build the wheels for Linux on x86-64 and arm64, glibc and musl, and the sdist into dist/wheels; only those of TARGET, for PYTHONS
	rm -rf dist/wheels
	$(PYTHON) release/wheels.py --out dist/wheels $(if $(TARGET),--target $(TARGET) --no-sdist) \
		$(foreach version,$(PYTHONS),--python $(version))
	$(PYTHON) release/wheels.py --check dist/wheels

sizes: toolchain $(VENV)/.stamp-wheels ## Print what the bytes of a wheel are: by folder, section and crate (builds one, x86-64 and glibc or TARGET)
	@rm -rf build/sizes
	CARGO_PROFILE_RELEASE_STRIP=none $(PYTHON) release/wheels.py --out build/sizes --no-sdist \
		--target $(or $(TARGET),x86_64-unknown-linux-gnu)
	$(PYTHON) release/sizes.py build/sizes/*.whl

# For development; there is no Mac to run it on.
check-macos: toolchain $(VENV)/.stamp-wheels ## Compile the core for macOS on arm64 and link it with zig: the program, and a wheel into build/macos
	@[ -d "$$(rustc --print sysroot)/lib/rustlib/$(MACOS_TARGET)" ] || rustup target add $(MACOS_TARGET)
	cd native && env -u MAKEFLAGS -u MFLAGS PATH="$(abspath $(VENV))/bin:$$PATH" cargo-zigbuild zigbuild --quiet \
		--target $(MACOS_TARGET) --package inference_logging_program
	env -u MAKEFLAGS -u MFLAGS PATH="$(abspath $(VENV))/bin:$$PATH" maturin build --quiet --zig --target $(MACOS_TARGET) \
		--interpreter 3.11 --profile dev --out build/macos

sdist: toolchain $(VENV)/.stamp-wheels ## Build the sdist into dist/wheels
	$(PYTHON) release/wheels.py --out dist/wheels --only-sdist

wheels-reproduced: toolchain $(VENV)/.stamp-wheels ## Build the wheel of TARGET and the sdist of the last commit twice, in two folders, and compare the bytes
	$(PYTHON) release/reproduced.py $(if $(TARGET),--target $(TARGET))

sbom: $(VENV)/.stamp-audit ## Write the bills of materials into dist/sbom: Python packages, and the crates in the wheels of dist/wheels
	rm -rf dist/sbom
	$(PYTHON) release/sbom.py --wheels dist/wheels

test-sdist: sdist ## Build a wheel from the sdist with the network closed, and import it
	$(PYTHON) release/offline.py dist/wheels/*.tar.gz

test-wheels: $(DEPENDENCIES) ## Run the quick tests on the wheels as they are installed, in each Python that is here
	$(PYTHON) release/installed.py dist/wheels

test-roots: $(DEPENDENCIES) ## Install a wheel into a fresh Debian as docs/install.md says, and log a request there (needs root; three minutes)
	@$(call require,debootstrap,debootstrap,making the root)
	$(PYTHON) release/roots.py dist/wheels

# CPython for musl is built from Debian's sources, unless PYTHON_MUSL is a folder with one (bin, lib and so on).
test-musl: $(DEPENDENCIES) ## Install the wheel for musl into a root without glibc, log a request, run the quick tests there (needs root)
	@$(call require,/bin/busybox,busybox-static,the programs of the root)
	@$(call require,/bin/bash-static,bash-static,the shell of the examples)
	@$(call require,musl-gcc,musl-tools,building CPython)
	@$(call require,dpkg-source,dpkg-dev,unpacking the sources of CPython)
	@$(call require,tclsh,tcl,the sources of SQLite)
	$(PYTHON) release/musl.py dist/wheels $(if $(PYTHON_MUSL),--python $(abspath $(PYTHON_MUSL)))

test-arm64: $(DEPENDENCIES) ## Run the quick tests of the arm64 wheel under KERNEL=FILE, with pages of 64 KiB for example, in QEMU (hours)
	@$(call require,debootstrap,debootstrap,making the root)
	@$(call require,qemu-system-aarch64,qemu-system-arm,the processor)
	$(PYTHON) release/arm64.py dist/wheels $(KERNEL)

vendor: $(PYTHON) ## Fetch the front-end libraries of the pages anew, as vendor.json has them (needs npm)
	@$(call require,npm,npm,fetching the libraries)
	$(PYTHON) release/vendor.py

locks: $(PYTHON) ## Write release/locks anew where pyproject.toml asks for it; with UPGRADE=1 the newest versions
	$(PYTHON) release/locks.py $(if $(UPGRADE),--upgrade)

# In CI, for a commit that has the tag.
release-check: $(DEPENDENCIES)
	$(PYTHON) release/version.py $(VERSION) --check

release: lint ## Write VERSION=1.2.3 and the changelog's entries, commit and tag; pushing the tag publishes
	$(PYTHON) release/version.py $(VERSION)

quick: build ## Run what needs no server: Rust, ring and slots under loom, Python
	@$(MAKE) -j2 test-rust test-loom
	$(PYTEST) -m "not servers and not real"

test: $(DEPENDENCIES) ## Run all tests but those of other people's servers
	@($(call require,wrk,wrk,the tests that drive a server with it; without it they are skipped)) || true
	@($(call require,promtool,prometheus,the test of the metrics' form; without it that one is skipped)) || true
	@($(call require,chromium,chromium,the tests that look at the report; without it they are skipped)) || true
	@($(spdlog)) || true
	@# The release build is one thread for most of its time, so the Rust tests run beside it.
	@$(MAKE) -j2 test-rust $(NATIVE)
	@$(MAKE) -j2 test-loom test-python

# Without MAKEFLAGS: cargo would look for the job server of a make that did not start it as one of its own.
# The listener's program is what tests of the commands run.
test-rust: toolchain
	cd native && env -u MAKEFLAGS -u MFLAGS cargo test --quiet
	cd native && env -u MAKEFLAGS -u MFLAGS cargo build --quiet --package inference_logging_program --package inference_logging_c

# A copy of the checkout, so that the package has the portable core there and keeps its own here.
test-portable: build ## Run the tests of `make quick`, and those that kill, with the half of the core that macOS has
	cd native && env -u MAKEFLAGS -u MFLAGS cargo test --quiet --features inferlog-queue/portable
	cd native && env -u MAKEFLAGS -u MFLAGS PYO3_PYTHON="$(abspath $(PYTHON))" cargo build --quiet --features inferlog-queue/portable \
		--package inferlog-queue --package inference_logging_native --package inference_logging_program --package inference_logging_c
	@rm -rf $(PORTABLE) && mkdir -p $(PORTABLE)
	@git ls-files -z ':!native' | xargs -0 cp --no-dereference --parents --target-directory=$(PORTABLE)
	@ln -s ../../native $(PORTABLE)/native && ln -s ../../$(VENV) $(PORTABLE)/$(VENV)
	@cp native/target/debug/lib_native.so $(PORTABLE)/inference_logging/_native.abi3.so
	cd $(PORTABLE) && CORE_PLATFORM=portable PYTHONPATH="$$PWD" $(PYTEST) -m "not real and (not servers or kills)"

test-loom: toolchain
	cd native/ring && env -u MAKEFLAGS -u MFLAGS RUSTFLAGS="--cfg loom" nice -n 10 cargo test --quiet --release --test loom --target-dir ../target/loom

test-python: $(NATIVE)
	$(PYTEST) -m "not real"

# The tools are compiled beside vLLM's tests, which need none of them.
test-real: build ## Run the tests with the wheel, vLLM, Triton, Parsl, Kubernetes, a broker, a collector, object storage and ClickHouse
	@($(call require,promtool,prometheus,the tests of alerts and dashboard; without it they are skipped)) || true
	@($(call require,chromium,chromium,drawing the dashboard; without it that is not tested)) || true
	@($(call require,cmake,cmake,the test with ONNX Runtime; without it that is skipped)) || true
	@($(call require,buildah,buildah,the tests of the image; without it they are skipped)) || true
	@$(journals)
	@$(MAKE) -j2 real-tools real-servers
	$(PYTEST) -m "real and not (vllm or embedded or export or images or recipes or tsan)"

real-tools:
	@nice -n 10 $(MAKE) tools || echo "the tests with the tools that are missing are skipped" >&2

real-servers:
	@$(MAKE) wheel || echo "the tests of the wheel and of the static listener are skipped" >&2
	@$(MAKE) triton || echo "the tests with a real Triton are skipped" >&2
	@$(MAKE) parsl || echo "the tests with a real Parsl are skipped" >&2
	@$(MAKE) clickhouse || echo "the tests with ClickHouse's engine are skipped" >&2
	@$(MAKE) vllm || echo "the tests with a real vLLM are skipped" >&2
	$(PYTHON) -m pytest $(RERUNS) -m "vllm and not lengthy" --durations=20

test-vllm: vllm ## Run the tests with a real vLLM on the CPU; the first time 3 GB are downloaded (about ten minutes)
	$(PYTHON) -m pytest $(RERUNS) -m vllm

test-export: export-readers ## Run the tests with AIPerf, GuideLLM, vLLM's bench and Dynamo's reader; the first time 3 GB are downloaded
	@($(call require,chromium,chromium,looking at the time line; without it that is not tested)) || true
	$(PYTHON) -m pytest $(RERUNS) -m export

test-triton: triton ## Run the tests with a real Triton on the CPU; the first time 100 MB are downloaded
	$(PYTHON) -m pytest $(RERUNS) -m triton

test-parsl: parsl ## Run the tests with a real Parsl; the first time 15 MB are downloaded
	$(PYTHON) -m pytest $(RERUNS) -m parsl

test-phoenix: phoenix ## Run the tests with a real Phoenix; the first time 300 MB are downloaded
	$(PYTHON) -m pytest $(RERUNS) -m phoenix

test-clickhouse: clickhouse build ## Run the tests with ClickHouse's embedded engine; the first time 250 MB are downloaded
	$(PYTHON) -m pytest -m clickhouse

test-recipes: recipes ## Run LitServe, BentoML, Ray Serve, KServe and LiteLLM's proxy by `inference-logging run`, and kill them (not in CI; four minutes)
	$(PYTHON) -m pytest -m recipes

test-c: build c-embedded ## Run the tests of the C library on other processors and under ThreadSanitizer (needs nightly Rust; six minutes)
	@($(call require,qemu-arm-static,qemu-user-static,programs of other processors; without it their tests are skipped)) || true
	$(PYTEST) -m "embedded or tsan"

test-cluster: build ## Run the tests with a real Kubernetes API, which is compiled the first time (about ten minutes)
	@$(call install_tools,$(CLUSTER_TOOLS))
	$(PYTHON) -m pytest $(RERUNS) -m cluster

# With the wheels of `make wheels`, else with this machine's alone.
test-images: build ## Build the images without a registry, on a Debian that is set up the first time, and start them (needs root; two minutes)
	@$(call require,buildah,buildah,building the images)
	@$(call require,mmdebstrap,mmdebstrap,the Debian that they are built on)
	@[ -n "$(wildcard dist/wheels/*.whl dist/*.whl)" ] || $(MAKE) wheel
	@[ -n "$(wildcard dist/webhook)" ] || $(MAKE) webhook
	$(PYTHON) -m pytest $(RERUNS) -m images tests/test_images.py

test-shipping: build ## Run the tests with real collectors, Loki, Kafka and OpenSearch, rsyslog and journals (half an hour with set-up); with Fluent Bit from the checkout FLUENT_BIT_SOURCE
	@($(call require,javac,default-jdk-headless,the tests with OpenSearch; without it they are skipped)) || true
	@$(call install_tools,$(SHIPPING_TOOLS))
	@$(journals)
	$(PYTHON) -m pytest $(RERUNS) -m shipping

test-fleet: build clickhouse ## Ship to a real object storage, ClickHouse's engine and OpenSearch while shippers and all are killed, at length; print what arrived
	@$(call install_tools,versitygw opensearch)
	FLEET_HOSTS=$${FLEET_HOSTS:-3} FLEET_RECORDS=$${FLEET_RECORDS:-20000} FLEET_KILLS=$${FLEET_KILLS:-5} \
		$(PYTHON) -m pytest tests/shipping/test_fleet.py --timeout=1700 -o faulthandler_timeout=1800

simulate-fleet: build clickhouse ## Let 1 to 1,000 pods ship to a real Kafka and to ClickHouse's engine while brokers, a zone and all pods die; write docs/fleet-simulation.md (not in CI; half an hour, 10 GB of memory)
	@$(call install_tools,kafka)
	PYTHONPATH="$(CURDIR)" $(PYTHON) loadtests/fleet_simulation.py --page

test-hostile: build ## Run the tests with hostile clients at length: more examples, a million chunks (about half an hour)
	HYPOTHESIS_EXAMPLES=20000 HOSTILE_CHUNKS=1000000 FOREIGN_TESTS=all \
		$(PYTHON) -m pytest --timeout=0 tests/foreign tests/test_hostile_*.py tests/test_asgi_behaviour.py

crash: build ## Kill processes under load at length, 2,200 of them; set CRASH_SEED to repeat a run 
	CRASH_KILLS=$${CRASH_KILLS:-200} $(PYTHON) -m pytest tests/crash --timeout=1700 -o faulthandler_timeout=1800

fuzz: fuzz-unpack ## Fuzz what reads bytes that others wrote, FUZZ_SECONDS each (needs nightly Rust and cargo-fuzz)
	cd native && for target in $(FUZZ_TARGETS); do \
		mkdir -p fuzz/found/$$target && cargo +nightly fuzz run $$target fuzz/found/$$target fuzz/corpus/$$target -- \
			-max_total_time=$(FUZZ_SECONDS) -max_len=4096 -timeout=25; \
	done
	@echo "what was found is in native/fuzz/found; make fuzz-corpus puts it into the archive"

# An input with a name in words stays whatever it reaches. Put the input of a fixed fault into native/fuzz/found/TARGET so.
fuzz-corpus: fuzz-unpack ## Put what was found into the fuzz targets' archive, and drop what reaches nothing of its own
	cd native/fuzz && rm -rf target/least && mkdir -p found && cp -r found/. corpus
	cd native && for target in $(FUZZ_TARGETS); do \
		mkdir -p fuzz/target/least/$$target && \
		find fuzz/corpus/$$target -type f -regextype egrep ! -regex '.*/[0-9a-f]{16,}' \
			-exec mv -t fuzz/target/least/$$target {} + && \
		cargo +nightly fuzz run $$target fuzz/target/least/$$target fuzz/corpus/$$target -- -set_cover_merge=1; \
	done
	cd native/fuzz && tar --create --format=ustar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner \
		--mode=u=rwX,go=rX --transform='s,/\([0-9a-f]\{16\}\)[0-9a-f]*$$,/\1,' --directory=target/least \
		$(sort $(FUZZ_TARGETS)) | zstd -19 --quiet --force -o corpus.tar.zst

fuzz-unpack: toolchain
	@cargo fuzz --version >/dev/null 2>&1 || { echo "missing: cargo-fuzz. Install it: cargo install cargo-fuzz" >&2; exit 1; }
	@$(call require,zstd,zstd,the archive of the fuzz targets)
	cd native/fuzz && rm -rf corpus && mkdir corpus && tar --extract --zstd --file=corpus.tar.zst --directory=corpus

docs: $(VENV)/.stamp-docs ## Build the documentation into build/site; a broken link fails it
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict --quiet
	@echo "the pages are in build/site; index.html is the first"

# Of the commit that has the tag: `make release-docs VERSION=1.2.3`, then push the branch.
release-docs: $(VENV)/.stamp-docs
	NO_MKDOCS_2_WARNING=1 PATH="$(abspath $(VENV)/bin):$$PATH" mike --quiet deploy --update-aliases $(VERSION) latest
	PATH="$(abspath $(VENV)/bin):$$PATH" mike --quiet set-default latest

map: $(DEPENDENCIES) ## Draw the modules of the core into native/README.md
	$(PYTHON) native/map.py

lint: build $(VENV)/.stamp-audit ## Run all linters and type checkers: Python, stub, Rust, and what of `make audit` can be done here
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

# Known vulnerabilities grow without a commit, so CI does it each week.
audit: build $(VENV)/.stamp-audit ## Licences, duplicates, sources and known vulnerabilities of crates and packages (needs the network)
	@$(PYTHON) tests/tools/install.py cargo-deny
	$(PYTHON) release/audit.py --complete

check: lint test ## Run lint, then test

demo: build ## Show what logging costs by turns, then the main job: an arrival trace, records, health, books (about a minute)
	@($(call require,wrk,wrk,the cost of logging by turns; without it that is not measured)) || true
	$(PYTHON) loadtests/demo.py

screenshots: build ## Take pictures of each page of `view`, light, dark and on a phone, into docs/images (needs chromium)
	PYTHONPATH="$(CURDIR)" $(PYTHON) loadtests/screenshots.py --out docs/images

bench-view-live: build ## Measure the frames of the live list of `view` under 2,000 records a second (needs chromium)
	PYTHONPATH="$(CURDIR)" $(PYTHON) loadtests/bench_view_live.py

bench: build ## Measure emit, listener, middleware and server, as ratios in one interleaved run
	@$(call require,wrk,wrk,the load on a real server)
	$(PYTHON) loadtests/bench.py $(BENCH_OPTIONS)

bench-peers: build ## Measure what ways of logging cost here, ours and other libraries, into build/bench-peers (20 minutes)
	$(VENV)/bin/inference-logging bench --out build/bench-peers

bench-growth: build ## Measure how the cost grows with processes, record size, streams and threads, into build/bench-growth (3 minutes)
	$(VENV)/bin/inference-logging bench growth --out build/bench-growth

results: ## Measure what the pages quote, keep it in loadtests/results and write it into README.md, docs/figures.md and docs/comparison.md (two hours, on a quiet machine)
	$(MAKE) bench bench-turns BENCH_OPTIONS=--keep
	$(MAKE) bench BENCH_OPTIONS="identity --json build/bench-identity.json"
	$(MAKE) bench-peers bench-growth
	$(MAKE) bench-ab BENCH_OPTIONS="--json build/bench-ab.json"
	$(MAKE) bench-parsl BENCH_OPTIONS="--json build/bench-parsl.json"
	$(MAKE) bench-triton BENCH_OPTIONS="--json build/bench-triton.json"
	$(MAKE) bench-vllm BENCH_OPTIONS="modes --json build/bench-vllm.json"
	$(PYTHON) loadtests/results.py --keep peers build/bench-peers/result.json --keep growth build/bench-growth/growth.json \
		--keep ab build/bench-ab.json --keep parsl build/bench-parsl.json --keep triton build/bench-triton.json \
		--keep vllm build/bench-vllm.json --keep identity build/bench-identity.json \
		--update docs/figures.md --update docs/comparison.md --update README.md

# The distribution's interpreter, where there is one of the same minor version: unlike most others it is built with PGO,
# and that is what production runs.
bench-turns: build ## Measure what the middleware costs by turns in one process, to ±0.3 % (about ten minutes)
	@$(call require,wrk,wrk,the load on a real server)
	@version=$$($(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])'); \
	python=/usr/bin/python$$version; packages=$(abspath $(VENV))/lib/python$$version/site-packages; \
	[ -x "$$python" ] && PYTHONPATH="$(CURDIR):$$packages" "$$python" -c 'import fastapi, inference_logging, uvloop' \
		2>/dev/null || python=$(PYTHON); \
	PYTHONPATH="$(CURDIR):$$packages" "$$python" loadtests/bench_turns.py $(BENCH_OPTIONS)

bench-ab: build ## Whether `inference-logging ab` finds a known cost of 0 % and of 5 % (two minutes)
	@$(call require,wrk,wrk,the load on a real server)
	PYTHONPATH="$(CURDIR)" $(PYTHON) loadtests/bench_ab.py $(BENCH_OPTIONS)

bench-instructions: build ## Count what the request path executes; fails above +2 % of the noted bounds (about a minute)
	@$(call require,cc,gcc libc6-dev,the marks between which valgrind counts)
	@$(call require,valgrind,valgrind,counting instructions)
	$(PYTHON) loadtests/bench_instructions.py $(BENCH_OPTIONS)

bench-vllm: vllm ## Measure what logging costs a real vLLM, beside its own logging (about 45 minutes, 15 GB of memory)
	$(PYTHON) loadtests/bench_vllm.py $(BENCH_OPTIONS)

bench-triton: triton ## Measure what logging costs a real Triton, beside its own logger and Python's (about ten minutes)
	@($(call require,wrk,wrk,the load)) || true
	$(PYTHON) loadtests/bench_triton.py $(BENCH_OPTIONS)

bench-parsl: parsl ## Measure what logging costs a task of Parsl, beside its own files (about five minutes)
	$(PYTHON) loadtests/bench_parsl.py $(BENCH_OPTIONS)

bench-native: build c listener ## Measure calls from C++ beside spdlog, write(2) and QUILL=DIRECTORY, and the proxy beside nginx (ten minutes)
	@$(call require,g++,g++,the program that is measured)
	@$(spdlog)
	@($(call require,nginx,nginx-light,comparing the proxy)) || true
	@($(call require,wrk,wrk,the load on the proxy)) || true
	$(PYTHON) loadtests/bench_native.py
	$(PYTHON) loadtests/bench_proxy.py

dashboard-pictures: build ## Draw every panel of Grafana's dashboard from a real load, into build/dashboard and docs/images (nine minutes)
	@$(call require,prometheus,prometheus,asking what the panels ask)
	@$(call require,chromium,chromium,drawing)
	$(PYTHON) -m tests.chart.pictures build/dashboard --sheet docs/images/dashboard.png

bench-view: build ## Measure the index of segments over 2 GB that it makes: first rows, filters, memory, and query (three minutes)
	PYTHONPATH="$(CURDIR)" $(PYTHON) loadtests/bench_view.py $(BENCH_OPTIONS)

tools: $(DEPENDENCIES) ## Get the programs of others that the tests drive, into .tools (the first time about fifteen minutes)
	@$(call install_tools,--all)

triton: $(TRITON_PACKAGE) ## Set up .venv-triton: Triton for the CPU, its clients and this package as a wheel

export-readers: $(EXPORT_INSTALLED) build ## Set up .venv-export: load generators that read exports, beside .venv-vllm

parsl: $(PARSL_INSTALLED) build ## Set up .venv-parsl: Parsl, and what this package needs

phoenix: $(PHOENIX_INSTALLED) build ## Set up .venv-phoenix: Phoenix

recipes: $(RECIPES_INSTALLED) build ## Set up .venv-recipes: inference servers that build their own applications (2 GB, ten minutes)

clickhouse: $(CLICKHOUSE_INSTALLED) ## Set up .venv-clickhouse: ClickHouse's embedded engine

vllm: $(VLLM_PACKAGE) ## Set up .venv-vllm: vLLM for the CPU, a tiny model and this package as a wheel

clean: ## Remove what was built and written; .venv, .venv-clickhouse, .venv-export, .venv-parsl, .venv-phoenix, .venv-recipes, .venv-triton, .venv-vllm and .tools stay
	rm -rf native/target dist build out $(WHEEL_DATA) inference_logging/_native*.so $(NATIVE)
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find inference_logging tests examples loadtests -name __pycache__ -prune -exec rm -rf {} +

toolchain:
	@$(call require,cc,gcc libc6-dev,linking the Rust core)
	@command -v cargo >/dev/null || { \
		echo "missing: cargo, for building the Rust core. Install Rust (rustup or your distribution's package)." >&2; exit 1; }

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
	$(PYTHON) release/locks.py --install dev
	@touch $@

# What only some targets need comes into the same environment.
$(VENV)/.stamp-%: release/locks/%.txt $(DEPENDENCIES)
	$(PYTHON) release/locks.py --install $*
	@touch $@

# maturin asks for the run-time dependencies of pyproject.toml, which the lock has.
$(NATIVE): $(NATIVE_SOURCES) pyproject.toml $(DEPENDENCIES) | toolchain
	PIP_QUIET=1 VIRTUAL_ENV="$(abspath $(VENV))" $(VENV)/bin/maturin develop --release --quiet
	@touch $@

$(TRITON_INSTALLED): tests/integrations/triton/install.py release/locks/triton.txt | $(PYTHON)
	@echo "installing Triton into $(TRITON): about 350 MB"
	@$(PYTHON) tests/integrations/triton/install.py $(TRITON)
	@touch $@

$(TRITON_PACKAGE): $(TRITON_INSTALLED) $(NATIVE) $(PACKAGE_SOURCES)
	rm -rf $(TRITON)/wheel
	$(VENV)/bin/maturin build --release --quiet --interpreter $(abspath $(PYTHON)) --out $(TRITON)/wheel
	@if [ -f $(TRITON)/bin/pip ]; then \
		$(TRITON)/bin/pip install --quiet --disable-pip-version-check --force-reinstall --no-deps $(TRITON)/wheel/*.whl && \
		$(TRITON)/bin/pip install --quiet --disable-pip-version-check $(TRITON)/wheel/*.whl; fi
	@touch $@

$(PARSL_INSTALLED): release/locks/parsl.txt | $(PYTHON)
	@echo "installing Parsl into $(PARSL): about 80 MB"
	@$(PYTHON) -m venv --clear $(PARSL)
	@$(PYTHON) release/locks.py --install parsl --python $(PARSL)/bin/python
	@touch $@

$(PHOENIX_INSTALLED): release/locks/phoenix.txt | $(PYTHON)
	@echo "installing Phoenix into $(PHOENIX): about 300 MB"
	@$(PYTHON) -m venv --clear $(PHOENIX)
	@$(PYTHON) release/locks.py --install phoenix --python $(PHOENIX)/bin/python
	@touch $@

$(RECIPES)/%/.stamp-installed: tests/integrations/recipes/%.txt tests/integrations/recipes/ours.txt | $(PYTHON)
	@echo "installing $* into $(RECIPES)/$*"
	@$(PYTHON) -m venv --clear $(RECIPES)/$*
	@$(RECIPES)/$*/bin/pip install --quiet --disable-pip-version-check --requirement $<
	@touch $@

$(CLICKHOUSE_INSTALLED): release/locks/clickhouse.txt | $(PYTHON)
	@echo "installing ClickHouse's engine into $(CLICKHOUSE): about 250 MB"
	@$(PYTHON) -m venv --clear $(CLICKHOUSE)
	@$(PYTHON) release/locks.py --install clickhouse --python $(CLICKHOUSE)/bin/python
	@touch $@

$(EXPORT_INSTALLED): $(EXPORT_SETUP) $(VLLM_INSTALLED) | toolchain
	@echo "installing load generators into $(EXPORT): about 350 MB"
	@rm -rf $(EXPORT)/packages
	@$(VLLM)/bin/uv --system-certs pip install --quiet --python $(VLLM)/bin/python --target $(EXPORT)/packages --no-deps \
		--requirement tests/integrations/export/requirements.txt
	@env -u MAKEFLAGS -u MFLAGS cargo build --quiet --locked --target-dir $(EXPORT)/mooncake_reader \
		--manifest-path tests/integrations/export/mooncake_reader/Cargo.toml
	@touch $@

# numactl brings libnuma1, which vLLM's CPU kernels load.
$(VLLM_INSTALLED): $(VLLM_SETUP) | $(PYTHON)
	@$(PYTHON) -c 'import ctypes; ctypes.CDLL("libnuma.so.1")' 2>/dev/null || ($(call require,numactl,numactl,vLLM)) || true
	@echo "installing vLLM into $(VLLM): about 3 GB"
	@$(PYTHON) tests/integrations/vllm/install.py $(VLLM)
	@touch $@

# As users have it: a wheel, so that its entry points are found. --no-deps: the lock has all that it needs.
$(VLLM_PACKAGE): $(VLLM_INSTALLED) $(NATIVE) $(PACKAGE_SOURCES)
	rm -rf $(VLLM)/wheel
	$(VENV)/bin/maturin build --release --quiet --interpreter $(abspath $(PYTHON)) --out $(VLLM)/wheel
	$(VLLM)/bin/uv pip install --quiet --python $(VLLM)/bin/python --no-deps --reinstall $(VLLM)/wheel/*.whl
	@touch $@
