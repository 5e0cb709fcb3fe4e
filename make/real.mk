##@ Third-party programs

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

# Programs of others that tests drive, as tools/programs/pins.yaml has them: those of one part. `make tools` gets what
# `make test-real` needs.
CHART_TOOLS := helm kubeconform schemas crds otelcol
CLUSTER_TOOLS := helm crds etcd kube-apiserver kube-controller-manager kube-scheduler kubectl kwok ray-crds kserve-crds lws-crds inferencepool-crds kyverno-crds
NODE_TOOLS := helm etcd kube-apiserver kube-controller-manager kube-scheduler kubectl kubelet kube-proxy otelcol
SHIPPING_TOOLS := otelcol otelgateway kafka loki versitygw opensearch
# Built from a checkout, which no registry has: its folder.
ifdef FLUENT_BIT_SOURCE
SHIPPING_TOOLS += fluent-bit
endif

RSYSLOG := rsyslog rsyslog-relp rsyslog-gnutls rsyslog-openssl
# Where systemd runs, the package of rsyslog starts a service that takes the machine's log: that is not for a test to do.
define rsyslog
if [ -d /run/systemd/system ] && ! [ -x /usr/sbin/rsyslogd ]; then \
	echo "missing: rsyslog; its tests are skipped. Install it (on Debian: sudo apt-get install $(RSYSLOG))." >&2; \
else \
	($(call require,/usr/sbin/rsyslogd,$(RSYSLOG),the tests with rsyslog; without it they are skipped)) || true; \
fi
endef

# $(call install_tools,NAMES): what exists stays; a missing one is reported, and fails the step after the others. To remove
# what was only needed for building takes minutes, and CI's machine goes away as a whole.
define install_tools
($(call require,go,golang,building what is written in Go)) || true; \
$(if $(filter kafka opensearch,$(1)),($(call require,mvn,maven,the jars of Kafka and OpenSearch)) || true;) \
$(PYTHON) tools/programs/install.py $(if $(CI),--keep-cache) $(1)
endef

# vLLM's tests are one process that waits for its server, and need none of the tools that are compiled first.
test-real: build ## Run the tests with real servers: vLLM, Triton, Parsl, ClickHouse's engine, an HTTP/2 client, ONNX Runtime
	@($(call require,cmake,cmake,the test with ONNX Runtime; without it that is skipped)) || true
	@$(MAKE) -j2 --output-sync real-vllm real-others

real-vllm: real-servers
	$(PYTHON) -m pytest $(RERUNS) -m "vllm and not lengthy" --durations=20

real-others: real-servers real-tools
	$(PYTEST) -m "real and not (vllm or chart or cluster or shipping or wheel or embedded or export or images or node or recipes or tsan)"

real-tools:
	@nice -n 10 $(MAKE) tools || echo "the tests with the tools that are missing are skipped" >&2

real-servers:
	@$(MAKE) triton || echo "the tests with a real Triton are skipped" >&2
	@$(MAKE) parsl || echo "the tests with a real Parsl are skipped" >&2
	@$(MAKE) clickhouse || echo "the tests with ClickHouse's engine are skipped" >&2
	@$(MAKE) vllm || echo "the tests with a real vLLM are skipped" >&2

# Needs nothing that is compiled of ours, so that it can go on beside `make test`.
third-party: tools $(VLLM_INSTALLED) $(TRITON_INSTALLED) $(PARSL_INSTALLED) $(CLICKHOUSE_INSTALLED) ### Set up what `make test-real` needs of others (ten minutes)

test-vllm: vllm ## Run the tests with a real vLLM on the CPU (ten minutes; the first time 3 GB are downloaded)
	$(PYTHON) -m pytest $(RERUNS) -m vllm

test-export: export-readers ### Run the tests with AIPerf, GuideLLM, vLLM's bench and Dynamo's reader; the first time 3 GB are downloaded
	@($(call require,chromium,chromium,looking at the time line; without it that is not tested)) || true
	$(PYTHON) -m pytest $(RERUNS) -m export

test-triton: triton ## Run the tests with a real Triton on the CPU; the first time 100 MB are downloaded
	$(PYTHON) -m pytest $(RERUNS) -m triton

test-parsl: parsl ### Run the tests with a real Parsl; the first time 15 MB are downloaded
	$(PYTHON) -m pytest $(RERUNS) -m parsl

test-phoenix: phoenix ### Run the tests with a real Phoenix; the first time 300 MB are downloaded
	$(PYTHON) -m pytest $(RERUNS) -m phoenix

test-clickhouse: clickhouse build ### Run the tests with ClickHouse's embedded engine; the first time 250 MB are downloaded
	$(PYTHON) -m pytest -m clickhouse

test-recipes: recipes ### Run LitServe, BentoML, Ray Serve, KServe and LiteLLM's proxy by `inference-logging run`, and kill them (not in CI; four minutes)
	$(PYTHON) -m pytest -m recipes

test-chart: build ### Run the tests of the chart with Helm, a collector, Prometheus and a browser (ten minutes with set-up)
	@($(call require,promtool,prometheus,the tests of alerts and dashboard; without it they are skipped)) || true
	@($(call require,chromium,chromium,drawing the dashboard; without it that is not tested)) || true
	@$(call install_tools,$(CHART_TOOLS))
	$(PYTEST) -m "chart and not cluster"

test-cluster: build ### Run the tests with a real Kubernetes API, which is compiled the first time (about ten minutes)
	@$(call install_tools,$(CLUSTER_TOOLS))
	$(PYTHON) -m pytest $(RERUNS) -m cluster

# With the wheels of `make wheels`, else with this machine's alone; with the servers of `make vllm` and `make triton`, if they are there.
test-node: build ### Run the chart on a real node of Kubernetes, under load and kills (needs root; not in CI)
	@$(call require,containerd,containerd,running containers)
	@$(call require,runc,runc,running containers)
	@$(call require,/usr/lib/cni/bridge,containernetworking-plugins,the network of pods)
	@$(call require,iptables,iptables,the addresses of Services)
	@$(call require,buildah,buildah,building the images)
	@$(call require,mmdebstrap,mmdebstrap,the Debian that they are built on)
	@[ -n "$(wildcard dist/wheels/*.whl dist/*.whl)" ] || $(MAKE) wheel
	@$(call install_tools,$(NODE_TOOLS))
	$(PYTHON) -m tests.node.vendors
	$(PYTHON) -m pytest -m node -rP --durations=20 -o faulthandler_timeout=1000 tests/node

test-kyverno: build ### Apply the recipe for Kyverno with Kyverno's own program, which is compiled the first time (six minutes)
	@$(call install_tools,kyverno)
	$(PYTHON) -m pytest tests/chart/test_kyverno.py

test-shipping: build ### Run the tests with real collectors, Loki, Kafka and OpenSearch, rsyslog and journald (half an hour with set-up); with Fluent Bit from the checkout FLUENT_BIT_SOURCE
	@($(call require,javac,default-jdk-headless,the tests with OpenSearch; without it they are skipped)) || true
	@$(call install_tools,$(SHIPPING_TOOLS))
	@$(rsyslog)
	$(PYTHON) -m pytest $(RERUNS) -m shipping

test-fleet: build clickhouse ### Ship to a real object storage, ClickHouse's engine and OpenSearch while shippers and all are killed, at length; print what arrived
	@$(call install_tools,versitygw opensearch)
	FLEET_HOSTS=$${FLEET_HOSTS:-3} FLEET_RECORDS=$${FLEET_RECORDS:-20000} FLEET_KILLS=$${FLEET_KILLS:-5} \
		$(PYTHON) -m pytest tests/ship/test_fleet.py --timeout=1700 -o faulthandler_timeout=1800

tools: $(DEPENDENCIES) ## Get the third-party programs that the tests drive, into .tools (a minute the first time)
	@$(call install_tools,--all)

triton: $(TRITON_PACKAGE) ### Set up .venv-triton: Triton for the CPU, its clients and this package as a wheel

export-readers: $(EXPORT_INSTALLED) build ### Set up .venv-export: load generators that read exports, beside .venv-vllm

parsl: $(PARSL_INSTALLED) build ### Set up .venv-parsl: Parsl, and what this package needs

phoenix: $(PHOENIX_INSTALLED) build ### Set up .venv-phoenix: Phoenix

recipes: $(RECIPES_INSTALLED) build ### Set up .venv-recipes: inference servers that build their own applications (2 GB, ten minutes)

clickhouse: $(CLICKHOUSE_INSTALLED) ### Set up .venv-clickhouse: ClickHouse's embedded engine

vllm: $(VLLM_PACKAGE) ## Set up .venv-vllm: vLLM for the CPU, a tiny model and this package as a wheel

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
