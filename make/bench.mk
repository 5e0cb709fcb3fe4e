##@ Benchmarks

# Options of the benchmarks: --quick, --json FILE; of `make bench` and `make bench-turns` also --keep.
BENCH_OPTIONS :=

bench: build ### Measure the listener, its process, verify and the audit lane
	$(PYTHON) -m loadtests.cost.bench $(BENCH_OPTIONS)

# The distribution's interpreter, where there is one of the same minor version: unlike most others it is built with PGO,
# and that is what production runs.
bench-turns: build ## Measure what the middleware and other packages add by turns in one process (about ten minutes)
	@$(call require,wrk,wrk,the load on a real server)
	@version=$$($(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])'); \
	python=/usr/bin/python$$version; packages=$(abspath $(VENV))/lib/python$$version/site-packages; \
	[ -x "$$python" ] && PYTHONPATH="$(CURDIR):$$packages" "$$python" -c 'import fastapi, inference_logging, uvloop' \
		2>/dev/null || python=$(PYTHON); \
	PYTHONPATH="$(CURDIR):$$packages" "$$python" -m loadtests.turns.bench_turns $(BENCH_OPTIONS)

bench-instructions: build ## Count what the request path executes; fails above +2 % of the noted bounds (about a minute)
	@$(call require,cc,gcc libc6-dev,the marks between which valgrind counts)
	@$(call require,valgrind,valgrind,counting instructions)
	$(PYTHON) -m loadtests.instructions.bench_instructions $(BENCH_OPTIONS)

bench-peers: build ### Measure what ways of logging cost here, ours and other libraries, into build/bench-peers (20 minutes)
	mkdir -p build/bench-peers
	$(VENV)/bin/inference-logging bench --json > build/bench-peers/result.json
	$(PYTHON) -m loadtests.cost.bench_peers --json build/bench-peers/fapilog.json

bench-handler: build ### Measure by turns what a record of the standard library's loggers takes (half a minute)
	$(PYTHON) -m loadtests.cost.bench_handler $(BENCH_OPTIONS)

bench-cold: build ### Measure by turns what a request costs where the processor's caches are cold (a minute)
	$(PYTHON) -m loadtests.cost.bench_cold $(BENCH_OPTIONS)

bench-growth: build ### Measure how the cost grows with processes, record size, streams and threads, (3 minutes)
	$(PYTHON) -m loadtests.cost.growth $(BENCH_OPTIONS)

results: ## Measure what the pages quote and write it into them (an hour and a half, on a quiet machine)
	$(MAKE) bench bench-turns BENCH_OPTIONS=--keep
	$(MAKE) bench-peers
	$(MAKE) bench-growth BENCH_OPTIONS="--json build/bench-growth.json"
	$(MAKE) bench-ab BENCH_OPTIONS="--json build/bench-ab.json"
	$(MAKE) bench-parsl BENCH_OPTIONS="--json build/bench-parsl.json"
	$(MAKE) bench-triton BENCH_OPTIONS="--json build/bench-triton.json"
	$(MAKE) bench-vllm BENCH_OPTIONS="--json build/bench-vllm.json"
	$(PYTHON) -m loadtests.results --keep peers build/bench-peers/result.json --keep fapilog build/bench-peers/fapilog.json \
		--keep growth build/bench-growth.json \
		--keep ab build/bench-ab.json --keep parsl build/bench-parsl.json --keep triton build/bench-triton.json \
		--keep vllm build/bench-vllm.json \
		--update docs/figures.md --update docs/comparison.md --update README.md

profile-turns: build ### Show by library and function where the time goes that the middleware adds (perf; four minutes)
	@$(call require,wrk,wrk,the load on a real server)
	$(PYTHON) -m loadtests.turns.profile_turns

bench-ab: build ### Whether `inference-logging ab` finds a known cost of 0 % and of 5 % (two minutes)
	@$(call require,wrk,wrk,the load on a real server)
	$(PYTHON) -m loadtests.turns.bench_ab $(BENCH_OPTIONS)

bench-vllm: vllm ### Measure what logging costs a real vLLM, beside its own logging (about half an hour, 15 GB of memory)
	$(PYTHON) -m loadtests.engine.bench_vllm $(BENCH_OPTIONS)

bench-triton: triton ### Measure what logging costs a real Triton, beside its own logger and Python's (about twelve minutes)
	@($(call require,wrk,wrk,the load)) || true
	$(PYTHON) -m loadtests.engine.bench_triton $(BENCH_OPTIONS)

bench-parsl: parsl ### Measure what logging costs a task of Parsl, beside its own files (about five minutes)
	$(PYTHON) -m loadtests.engine.bench_parsl $(BENCH_OPTIONS)

bench-view: build ### Measure the table of segments over 2 GB that it makes: first rows, filters, memory, and query (three minutes)
	$(PYTHON) -m loadtests.view.bench_view $(BENCH_OPTIONS)

screenshots: build ### Take pictures of each page of `view`, light, dark and on a phone, into docs/images (needs chromium)
	$(PYTHON) -m tools.screenshots --out docs/images

dashboard-pictures: build ### Draw every panel of Grafana's dashboard from a real load, into build/dashboard and docs/images (nine minutes)
	@$(call require,prometheus,prometheus,asking what the panels ask)
	@$(call require,chromium,chromium,drawing)
	$(PYTHON) -m tools.chart.pictures build/dashboard --sheet docs/images/dashboard.png
