##@ Tests at length

# The checkout with the portable core in it.
PORTABLE := build/portable

# The C library for small machines is built for these.
EMBEDDED_TARGETS := x86_64-unknown-linux-musl aarch64-unknown-linux-musl armv7-unknown-linux-musleabihf

# In native/fuzz; the inputs in its corpus.tar.zst are run by every `make test`.
FUZZ_TARGETS := queue_file record extract redact events heads
FUZZ_SECONDS := 600

# What the other half of the core can change: its tests, and those of processes that start, fork, end and are killed.
PORTABLE_TESTS := tests/crash tests/c/test_c.py $(patsubst \
	%,tests/record/test_%.py,audit audit_forms audit_tampering control flight_recorder forks health hostile_sockets \
	housekeeping lifespan listen listen_each listener_binary logger metrics_prometheus no_room processes recover \
	recover_copies)
# A copy of the checkout, so that the package has the portable core there and keeps its own here.
test-portable: build ## Run what depends on the platform with the half of the core that macOS has
	cd native && env -u MAKEFLAGS -u MFLAGS cargo test --quiet --features inferlog-queue/portable \
		--package inferlog-queue --package inferlog-listen --package inferlog
	cd native && env -u MAKEFLAGS -u MFLAGS PYO3_PYTHON="$(abspath $(PYTHON))" cargo build --quiet --features inferlog-queue/portable \
		--package inferlog-queue --package inference_logging_native --package inference_logging_program --package inference_logging_c
	@rm -rf $(PORTABLE) && mkdir -p $(PORTABLE)
	@git ls-files -z ':!native' | xargs -0 cp --no-dereference --parents --target-directory=$(PORTABLE)
	@ln -s ../../native $(PORTABLE)/native && ln -s ../../$(VENV) $(PORTABLE)/$(VENV)
	@cp native/target/debug/lib_native.so $(PORTABLE)/inference_logging/_native.abi3.so
	cd $(PORTABLE) && CORE_PLATFORM=portable PYTHONPATH="$$PWD" $(PYTEST) -m "not real and (not servers or kills)" $(PORTABLE_TESTS)

c-embedded: toolchain $(VENV)/.stamp-embedded ### Build the C library without a listener into dist/c-embedded, for three processors (four minutes)
	@for target in $(EMBEDDED_TARGETS); do \
		PYTHON="$(abspath $(PYTHON))" native/c/embedded $$target dist/c-embedded/$$target || exit 1; \
	done
	@wc -c dist/c-embedded/*/lib/libinferlog.so.1

test-c: build c-embedded ### Run the tests of the C library on other processors and under ThreadSanitizer (needs nightly Rust; six minutes)
	@($(call require,qemu-arm-static,qemu-user-static,programs of other processors; without it their tests are skipped)) || true
	$(PYTEST) -m "embedded or tsan"

test-hostile: build ### Run the tests with hostile clients at length: more examples, a million chunks (about half an hour)
	HYPOTHESIS_EXAMPLES=20000 HOSTILE_CHUNKS=1000000 FOREIGN_TESTS=all \
		$(PYTHON) -m pytest --timeout=0 tests/foreign tests/record/test_hostile_*.py tests/record/test_asgi_behaviour.py

test-truth: build ### Compare records with what clients know at length, and the reader of events with a slow parser (an hour)
	cd native && env -u MAKEFLAGS -u MFLAGS EVENT_STREAMS=1000000 cargo test --quiet --release --package inferlog-request --test all events
	TRUTH_AT_LENGTH=1 TRUTH_STREAMS=1000000 $(PYTHON) -m pytest --timeout=0 -o faulthandler_timeout=0 tests/truth

crash: build ## Kill processes under load at length, 3,000 of them; set CRASH_SEED to repeat a run
	CRASH_KILLS=$${CRASH_KILLS:-200} $(PYTHON) -m pytest tests/crash --timeout=1700 -o faulthandler_timeout=1800

fuzz: fuzz-unpack ## Fuzz the readers of foreign bytes, FUZZ_SECONDS each (needs nightly Rust and cargo-fuzz)
	cd native && for target in $(FUZZ_TARGETS); do \
		mkdir -p fuzz/found/$$target && cargo +nightly fuzz run $$target fuzz/found/$$target fuzz/corpus/$$target -- \
			-max_total_time=$(FUZZ_SECONDS) -max_len=4096 -timeout=25; \
	done
	@echo "what was found is in native/fuzz/found; make fuzz-corpus puts it into the archive"

# An input with a name in words stays whatever it reaches. Put the input of a fixed fault into native/fuzz/found/TARGET so.
fuzz-corpus: fuzz-unpack ### Put what was found into the fuzz targets' archive, and drop what reaches nothing of its own
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
