##@ What is released

# The listener without Python is built for it.
STATIC_TARGET := $(shell uname -m)-unknown-linux-musl
# `make check-macos` builds for it.
MACOS_TARGET := aarch64-apple-darwin

# Versions of Python that have wheels of their own, beside the one for all: a request costs less there.
PYTHONS := 3.11 3.12 3.13 3.14

listener: toolchain ## Build dist/inference-logging-listener: static, needs neither Python nor a C library
	@$(call require,musl-gcc,musl-tools,compiling zstd for a static program)
	@[ -d "$$(rustc --print sysroot)/lib/rustlib/$(STATIC_TARGET)" ] || rustup target add $(STATIC_TARGET) || { \
		echo "missing: Rust's target $(STATIC_TARGET). Install it: rustup target add $(STATIC_TARGET)" >&2; exit 1; }
	@echo "building the listener without Python, static, for $(STATIC_TARGET)"
	cd native && env -u MAKEFLAGS -u MFLAGS CC_$(subst -,_,$(STATIC_TARGET))=musl-gcc \
		cargo build --quiet --release --package inference_logging_program --target $(STATIC_TARGET)
	@mkdir -p dist
	cp native/target/$(STATIC_TARGET)/release/inference-logging-listener dist/

c: toolchain ## Build the C library into dist/c: shared and static, header, files for pkg-config and CMake
	cd native && env -u MAKEFLAGS -u MFLAGS cargo build --quiet --release --package inference_logging_c
	native/c/install native/target/release dist/c

onnx-example: c $(DEPENDENCIES) ### Build and run the C++ example with a real ONNX Runtime; the first time 50 MB are downloaded
	@$(call require,go,golang,the header of ONNX Runtime)
	@$(call require,cmake,cmake,building the example)
	@$(call require,g++,g++,building the example)
	@$(PYTHON) tools/programs/install.py onnxruntime
	cmake -S examples/cpp_onnx_pipeline -B build/onnx_pipeline \
		"-DCMAKE_PREFIX_PATH=$(abspath dist/c);$(abspath .tools/onnxruntime)" >/dev/null
	cmake --build build/onnx_pipeline
	$(PYTHON) examples/cpp_onnx_pipeline/model.py build/onnx_pipeline/digits.onnx
	INFERENCE_LOGGING_DIRECTORY=build/onnx_pipeline/logs build/onnx_pipeline/pipeline build/onnx_pipeline/digits.onnx
	@echo "the records are in build/onnx_pipeline/logs"

# Faces of other languages are no crates for others.
crates: toolchain ### Package the crates for publishing, and build each from its package
	cd native && env -u MAKEFLAGS -u MFLAGS cargo package --quiet --workspace --exclude inference_logging_c \
		--exclude inference_logging_listener --exclude inference_logging_program --exclude inference_logging_proxy \
		--exclude inference_logging_native

header: toolchain ### Write native/c/include/inferlog.h anew
	cd native && env -u MAKEFLAGS -u MFLAGS UPDATE_HEADER=1 cargo test --quiet --package inference_logging_c

wheel: listener $(DEPENDENCIES) ## Build this machine's two wheels into dist/: the package, and the static listener
	@echo "building the wheels of the package with its core and of the listener (some minutes the first time)"
	@rm -f dist/*.whl
	env -u MAKEFLAGS -u MFLAGS $(VENV)/bin/maturin build --release --quiet --interpreter $(abspath $(PYTHON)) --out dist
	env -u MAKEFLAGS -u MFLAGS CC_$(subst -,_,$(STATIC_TARGET))=musl-gcc $(VENV)/bin/maturin build --release --quiet \
		--manifest-path native/program/Cargo.toml --target $(STATIC_TARGET) \
		--compatibility manylinux_2_17 musllinux_1_2 --out dist
	@echo "built $$(echo dist/*.whl)"

wheels: toolchain $(VENV)/.stamp-wheels ### Build the wheels for Linux on x86-64 and arm64, glibc and musl, and the sdist into dist/wheels; only those of TARGET, for PYTHONS
	rm -rf dist/wheels
	$(PYTHON) release/wheels.py --out dist/wheels $(if $(TARGET),--target $(TARGET) --no-sdist) \
		$(foreach version,$(PYTHONS),--python $(version))
	$(PYTHON) release/wheels.py --check dist/wheels

sizes: toolchain $(VENV)/.stamp-wheels ### Print what the bytes of the wheels are: by folder, section and crate (builds them, x86-64 and glibc or TARGET)
	@rm -rf build/sizes
	CARGO_PROFILE_RELEASE_STRIP=none $(PYTHON) release/wheels.py --out build/sizes --no-sdist \
		--target $(or $(TARGET),x86_64-unknown-linux-gnu)
	$(PYTHON) release/sizes.py build/sizes/*.whl

# For development; there is no Mac to run it on.
check-macos: toolchain $(VENV)/.stamp-wheels ### Compile the core for macOS on arm64 and link it with zig: the program, and a wheel into build/macos
	@[ -d "$$(rustc --print sysroot)/lib/rustlib/$(MACOS_TARGET)" ] || rustup target add $(MACOS_TARGET)
	cd native && env -u MAKEFLAGS -u MFLAGS PATH="$(abspath $(VENV))/bin:$$PATH" cargo-zigbuild zigbuild --quiet \
		--target $(MACOS_TARGET) --package inference_logging_program
	env -u MAKEFLAGS -u MFLAGS PATH="$(abspath $(VENV))/bin:$$PATH" maturin build --quiet --zig --target $(MACOS_TARGET) \
		--interpreter 3.11 --profile dev --out build/macos

sdist: toolchain $(VENV)/.stamp-wheels ### Build the sdist into dist/wheels
	$(PYTHON) release/wheels.py --out dist/wheels --only-sdist

wheels-reproduced: toolchain $(VENV)/.stamp-wheels ### Build the wheel of TARGET and the sdist of the last commit twice, in two folders, and compare the bytes
	$(PYTHON) release/reproduced.py $(if $(TARGET),--target $(TARGET))

sbom: $(VENV)/.stamp-audit ### Write the bills of materials into dist/sbom: Python packages, and the crates in the wheels of dist/wheels
	rm -rf dist/sbom
	$(PYTHON) release/sbom.py --wheels dist/wheels

test-sdist: sdist ### Build a wheel from the sdist with the network closed, and import it
	$(PYTHON) release/offline.py dist/wheels/*.tar.gz

test-wheel: wheel ### Run the tests of this machine's wheels, and of images that are made of them
	@($(call require,buildah,buildah,the tests of the image; without it they are skipped)) || true
	$(PYTHON) -m pytest $(RERUNS) -m "wheel and not images"

test-wheels: $(DEPENDENCIES) ### Run the quick tests on the wheels as they are installed, in each Python that is here
	$(PYTHON) release/installed.py dist/wheels

test-roots: $(DEPENDENCIES) ### Install a wheel into a fresh Debian as docs/install.md says, and log a request there (needs root; three minutes)
	@$(call require,debootstrap,debootstrap,making the root)
	$(PYTHON) release/roots.py dist/wheels

# CPython for musl is built from Debian's sources, unless PYTHON_MUSL is a folder with one (bin, lib and so on).
test-musl: $(DEPENDENCIES) ### Install the wheel for musl into a root without glibc, log a request, run the quick tests there (needs root)
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

vendor: $(PYTHON) ### Fetch the front-end libraries of the pages anew, as vendor.json has them (needs npm)
	@$(call require,npm,npm,fetching the libraries)
	$(PYTHON) release/vendor.py

locks: $(PYTHON) ### Write release/locks anew where pyproject.toml asks for it; with UPGRADE=1 the newest versions
	$(PYTHON) release/locks.py $(if $(UPGRADE),--upgrade)

# In CI, for a commit that has the tag.
release-check: $(DEPENDENCIES)
	$(PYTHON) release/version.py $(VERSION) --check

release: lint ### Write VERSION=1.2.3 and the changelog's entries, commit and tag; pushing the tag publishes
	$(PYTHON) release/version.py $(VERSION)

# The images that the chart asks for, and the stages of Dockerfile.
IMAGES := inferlog-listener=listener inferlog=tools
# Or podman.
ENGINE := docker
# What goes before the names, with its slash.
REGISTRY :=

images: ## Build the images that the chart names; REGISTRY=registry.example/ goes before their names
	@$(call require,$(ENGINE),docker.io,building the images)
	$(MAKE) wheels TARGET=$(shell uname -m)-unknown-linux-gnu
	@version="$$(sed -n 's/^version = "\(.*\)"/\1/p' native/Cargo.toml | head -1)"; for image in $(IMAGES); do \
		$(ENGINE) build --target "$${image#*=}" --tag "$(REGISTRY)$${image%%=*}:$$version" .; done

# With the wheels of `make wheels`, else with this machine's alone.
test-images: build ### Build the images without a registry, on a Debian that is set up the first time, and start them (needs root; two minutes)
	@$(call require,buildah,buildah,building the images)
	@$(call require,mmdebstrap,mmdebstrap,the Debian that they are built on)
	@[ -n "$(wildcard dist/wheels/*.whl dist/*.whl)" ] || $(MAKE) wheel
	$(PYTHON) -m pytest $(RERUNS) -m images tests/project/test_images.py

# Run on the commit that has the tag: `make release-docs VERSION=1.2.3`, then push the branch.
release-docs: $(VENV)/.stamp-docs
	NO_MKDOCS_2_WARNING=1 PATH="$(abspath $(VENV)/bin):$$PATH" mike --quiet deploy --update-aliases $(VERSION) latest
	PATH="$(abspath $(VENV)/bin):$$PATH" mike --quiet set-default latest

map: $(DEPENDENCIES) ### Draw the modules of the core into native/README.md
	$(PYTHON) native/map.py

# Known vulnerabilities grow without a commit, so CI does it each week.
audit: build $(VENV)/.stamp-audit ### Licences, duplicates, sources and known vulnerabilities of crates and packages (needs the network)
	@$(PYTHON) tools/programs/install.py cargo-deny
	$(PYTHON) release/audit.py --complete
