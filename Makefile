# Every target installs what it needs from a bare Debian or Ubuntu (as root), and is quick when it is all there.
#   make lab     show the problem and the cure on this machine
#   make test    run the tests, except those that take long
#   make test-long  run those: all scenarios of the lab, and short forms of model, mutate, fuzz, chaos, walks, soak and
#                bench
#   make tools   build the programs that tests need; `make test` does it, too
#   make fresh   all of that in a root that has Debian's minbase, git and make alone, and no skip that a package would
#                cure; before a release. TESTS=tests/unit and the like narrows it, SUITE=trixie takes another Debian
#   make lint    formatting, lint, types, layers, limits
#   make docs    write the generated pages, and build the documentation site in dist/site
#   make proto   generate the API's Python code from proto/
#   make programs  compile bpf/ into the file that the package ships, after each change there
#   make model   check the claim protocol and vouching, the next one, with Spin: every rule kept, and broken in turn
#   make fuzz    libFuzzer on the programs in user space for 10 minutes (FUZZ=seconds), and 10 million mutated frames
#                (FRAMES=n) through those in the kernel; the model has to agree. Then 100,000 (CASES=n) configurations
#                and as many objects of Kubernetes, read in a process whose memory is limited. Then many more (RUNS=500)
#                of the random frames, walks and requests of the tests
#   make mutate  break core/ownership, bpf/decide.h and bpf/vouch.h in small ways, and count what their tests notice:
#                an hour
#   make chaos   random faults for 10 minutes (CHAOS=seconds, SEED=number, VOUCHING=1), judged on the wire, and by the
#                rules of the protocol from what all agents and the API server wrote down (TRACES=folder)
#   make walks   a thousand simulated days (DAYS=n, SEED=number) of faults, restarts and rolling upgrades between agents
#                without vouching and with it, by two processes, in half an hour; what breaks is shrunk to a few steps
#   make soak    two hours of changes (SOAK=seconds): curves of what the agents need, in dist/soak.png
#   make coverage       run all tests with branch coverage, agents and commands that they start included
#   make coverage-core  the same of the decisions, the codecs and the reference model, by their unit tests: no branch may be left out
#   make neighbours  the guard beside real announcers on a real control plane; half an hour, and as long again to build
#                them with Go, once. The table is in docs/neighbours.md; NEIGHBOURS=takeover is for docs/performance.md,
#                NEIGHBOURS='table --row 0.15.3 --column partition' for a part, NEIGHBOURS=resting an hour in which
#                nothing happens, NEIGHBOURS=burst a thousand VIPs at once, NEIGHBOURS=lab the lab's scenarios and the
#                tests of the API's rules on a real server, and after `make image-build` NEIGHBOURS=shipped the install
#                on real kubelets
#   make kernels  the guard on kernels of the distribution, emulated by QEMU: tests that depend on the kernel, and the
#                real kube-proxy in IPVS mode; a bit over an hour on two cores, and it builds Kubernetes with Go, once.
#                ARPGUARD_KERNEL=6.12, or =arm64, runs one of them, and ARPGUARD_SUITE=bond only suites with that in their names. The tables are in docs/kernels.md and docs/neighbours.md
#   make kernels-short  a few of these tests on the oldest kernel
#   make bench   measure (BENCH=flood, scale, ...); figures are ratios against a baseline in the same run
#   make lock    choose versions of all packages anew; they are fixed, with hashes, in deploy/lock
#   make audit   ask for known vulnerabilities of the packages that are fixed there
#   make stamp   write the image's repository, the version and the site's address, which deploy/release.env names,
#                wherever they are needed
#   make release  everything that users download, in dist/, from the commit that is checked out; then installs each of
#                it in clean places and uses it there (CONTRIBUTING.md)
#   make image   build the container image for amd64 and arm64, look at what is in it, and run an agent in it

SHELL := /bin/bash
PYTHON := /usr/bin/python3
BIN := .venv/bin
GO := .cache/go/bin/go
HEADERS := $(shell . /etc/os-release; [ "$$ID" = ubuntu ] && echo linux-headers-generic || echo linux-headers-$$(dpkg --print-architecture))
APT_RUN := ca-certificates ethtool iproute2 libbpf1 procps python3-venv util-linux
APT_BUILD := python3-bpfcc $(HEADERS)
# Debian's keepalived starts nothing, now or at boot, while there is no /etc/keepalived/keepalived.conf.
APT_LAB := keepalived openssl
APT_NEIGHBOURS := buildah containernetworking-plugins
APT_FRESH := debootstrap git util-linux
APT_KERNELS := busybox-static cpio debian-archive-keyring ipset iptables ipvsadm kmod libteam-utils qemu-system-arm qemu-system-x86
APT_IMAGE := buildah crun debian-archive-keyring podman qemu-user-static
APT_DEV := $(APT_BUILD) arping bpftool clang clang-format crun curl gcc golang-github-containers-common iperf3 iputils-ping ipvsadm libc6-dev ndisc6 spin tcpdump tmux tshark wireshark-common
# libFuzzer's runtime belongs to one version of clang: the one that the distribution has.
APT_FUZZ = $(shell apt-cache depends clang | sed -n 's/.*Depends: clang-\([0-9]*\)$$/libclang-rt-\1-dev/p')

.PHONY: lab test test-long tools fresh coverage coverage-core lint format docs programs proto model fuzz mutate chaos walks soak bench neighbours kernels kernels-short lock audit image image-build stamp release clean apt-run apt-build apt-lab apt-dev apt-fuzz apt-neighbours apt-fresh apt-image apt-kernels

lab: apt-lab .venv/.run
	$(BIN)/arpguard lab --all

# Files of tests run side by side, most of them waiting for something; JOBS=0: one after the other, for --pdb and the like.
JOBS := 8
TOOLS := $(addprefix $(BIN)/,promtool prometheus grpcurl helm kustomize kubectl)
tools: $(TOOLS)

# Tests that try random cases. `make fuzz` runs many more of them.
CHANCE := $(wildcard tests/bpf/test_agrees_*.py) tests/properties tests/api/test_fuzz.py tests/netns/test_accounts.py
# Each of these has a command of its own that runs longer or shows more.
LONG := tests/bench tests/chaos tests/fuzz tests/lab tests/model tests/mutation tests/soak tests/walks $(CHANCE)
test: TESTS ?= $(LONG:%=--ignore=%)
test-long: TESTS := $(LONG)
# Bytecode is kept, whatever is usual on this machine: hundreds of processes would compile the same modules again.
test test-long: apt-fuzz .venv/.dev $(TOOLS) $(if $(TESTS),,.cache/collected)
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest --numprocesses $(JOBS) --dist loadfile --no-loadscope-reorder $(TESTS)

# pytest rewrites the assertions of each file that it imports, and keeps the result. Otherwise all of its workers would do
# that for all files.
.cache/collected: $(shell find tests -name '*.py') | apt-dev .venv/.dev
	@mkdir -p $(@D)
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest --collect-only --quiet > $@.new || { cat $@.new; exit 1; }
	@mv $@.new $@

# In the background, and beside others, too; what it downloads is kept in .cache/fresh.
SUITE := bookworm
fresh: apt-run apt-fresh
	$(PYTHON) tests/fresh/run.py --suite $(SUITE) "make lab" "make test$(if $(TESTS), TESTS='$(TESTS)')" $(if $(TESTS),,"make test-long")

# Quick, and the same each time: pure functions, and tests without chance.
coverage-core: .venv/.dev
	@rm -rf .cache/coverage-core
	$(BIN)/coverage run --data-file=.cache/coverage-core/data --source=arpguard.core,arpguard.wire,reference \
		-m pytest -q -m 'not hypothesis' tests/unit/core tests/unit/wire tests/unit/reference
	$(BIN)/coverage combine --quiet --data-file=.cache/coverage-core/data
	$(BIN)/coverage report --data-file=.cache/coverage-core/data --skip-covered --show-missing --fail-under=100

# What fails only because it is measured (it takes longer, needs more memory, or may not write its data) is left to
# `make test`.
coverage: apt-dev .venv/.dev $(TOOLS)
	@rm -rf .cache/coverage
	-$(BIN)/coverage run -m pytest --timeout 3600 --numprocesses $(JOBS) --dist loadfile $(TESTS)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --skip-covered --show-missing --skip-empty > .cache/coverage/missing.txt
	$(BIN)/coverage json --quiet -o .cache/coverage/coverage.json
	$(BIN)/python tests/tools/coverage_table.py .cache/coverage/coverage.json

lint: apt-dev .venv/.dev
	$(BIN)/ruff format --check agent tests docs proto deploy/image deploy/release
	$(BIN)/ruff check agent tests docs proto deploy/image deploy/release
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python tests/tools/limits.py
	clang-format --dry-run -Werror bpf/*.[ch]

format: apt-dev .venv/.dev
	$(BIN)/ruff format agent tests docs proto deploy/image deploy/release
	$(BIN)/ruff check --fix agent tests docs proto deploy/image deploy/release
	clang-format -i bpf/*.[ch]

# Pictures that need no run; docs/pictures/enforce.py draws one.
DRAWN := claim dashboard exchange frame takeover
docs: .venv/.dev
	$(BIN)/python docs/generate.py
	for picture in $(DRAWN); do $(BIN)/python docs/pictures/$$picture.py || exit; done
	$(BIN)/python docs/build.py

programs: apt-build .venv/.run
	$(BIN)/python -m arpguard_build

proto: .venv/.dev
	$(BIN)/python proto/generate.py agent

model: apt-dev .venv/.dev
	$(BIN)/python tests/model/run.py --jobs 2 $(MODEL)

FUZZ := 600
FRAMES := 10000000
CASES := 100000
RUNS := 500
fuzz: apt-fuzz .venv/.dev
	$(BIN)/python tests/fuzz/frames/run.py --for $(FUZZ) --frames $(FRAMES)
	$(BIN)/python tests/fuzz/untrusted.py --configs $(CASES) --objects $(CASES)
	ARPGUARD_RUNS=$(RUNS) $(BIN)/python -m pytest -q $(CHANCE)

mutate: apt-dev .venv/.dev
	$(BIN)/python tests/mutation/ownership.py $(MUTATE)
	$(BIN)/python tests/mutation/decide.py
	$(BIN)/python tests/mutation/decide.py vouch.h
	ARPGUARD_EVERY=1 $(BIN)/python -m pytest -q tests/mutation/test_by_hand.py

CHAOS := 600
TRACES := .cache/chaos
# The traces are judged in any case: what the capture did not show may be in them.
chaos: apt-lab .venv/.run
	@rm -rf $(TRACES)
	@$(BIN)/arpguard lab --kubernetes --for $(CHAOS) $(if $(SEED),--seed $(SEED)) $(if $(VOUCHING),--vouching) \
		--traces $(TRACES); played=$$?; PYTHONPATH=tests $(BIN)/python -m traces.check $(TRACES) && exit $$played

DAYS := 1000
walks: .venv/.dev
	PYTHONPATH=tests $(BIN)/python -m walks.run --days $(DAYS) $(if $(SEED),--seed $(SEED))

SOAK := 7200
soak: apt-dev .venv/.dev
	$(BIN)/python tests/soak/run.py --for $(SOAK)

bench: apt-dev .venv/.dev
	$(BIN)/python tests/bench/run.py $(BENCH)

NEIGHBOURS := table
# Where there is no Go for this machine nothing is built, and what needs the programs says so and is skipped.
neighbours: $(if $(findstring shipped,$(NEIGHBOURS)),apt-neighbours) .venv/.dev $(GO) $(if $(findstring lab,$(NEIGHBOURS)),$(TOOLS))
	PYTHONPATH=tests $(BIN)/python -m neighbours.build .cache/neighbours/bin
	PYTHONPATH=tests $(BIN)/python -m neighbours.$(NEIGHBOURS) --write docs/$(if $(findstring takeover,$(NEIGHBOURS)),performance,neighbours).md

# Where there is no Go for this machine kube-proxy is skipped, and without a package of such a kernel all of it; it says so.
kernels: apt-lab apt-kernels .venv/.dev $(GO)
	$(if $(ARPGUARD_SUITE),,PYTHONPATH=tests $(BIN)/python -m neighbours.build .cache/neighbours/bin --only kubernetes)
	$(KERNELS) $(if $(ARPGUARD_KERNEL),--kernel $(ARPGUARD_KERNEL)) $(if $(ARPGUARD_SUITE),--suite '$(ARPGUARD_SUITE)') --write docs/kernels.md --write-incident docs/neighbours.md

kernels-short: apt-lab apt-kernels .venv/.dev
	$(KERNELS) --short

# Bytecode that is there need not be compiled by an emulated processor.
KERNELS = $(BIN)/python -m compileall -q agent tests && PYTHONPATH=tests $(BIN)/python -m kernels.run

# IMAGE, the repository; VERSION; DOCS, the site's address.
include deploy/release.env

image: image-build .venv/.dev
	ARPGUARD_TEST_IMAGE=$(IMAGE):$(VERSION) $(BIN)/python -m pytest tests/deploy/test_image.py

# Kept in .cache/image, apart from the machine's images; all architectures as one file in dist/.
image-build: apt-image .venv/.run
	deploy/image/build.sh $(IMAGE) $(VERSION)

stamp:
	$(PYTHON) deploy/release/stamp.py

# Where what is made is installed and used: Debian's releases, in roots of their own, kept in .cache/fresh.
SUITES := bookworm trixie
# Where krew.yaml says that its archives are.
DOWNLOADS := https://example.org/arpguard
release: apt-image apt-fresh .venv/.dev $(BIN)/helm $(BIN)/kustomize $(BIN)/kubectl
	PYTHONPATH=agent:deploy/image DOWNLOADS=$(DOWNLOADS) $(BIN)/python deploy/release/build.py
	ARPGUARD_TEST_RELEASE=$(CURDIR)/dist ARPGUARD_SUITES="$(SUITES)" ARPGUARD_RECORD=$(CURDIR)/docs/tested.json \
		$(BIN)/python -m pytest tests/release

clean:
	rm -rf .venv .cache dist

# Installs the packages of $(1) that are missing.
define install
	@missing=$$(for name in $(1); do dpkg-query -W -f '$${db:Status-Abbrev}' $$name 2>/dev/null | grep -q ^ii || echo $$name; done); \
	if [ -n "$$missing" ]; then \
		echo "installing" $$missing; \
		export DEBIAN_FRONTEND=noninteractive; \
		apt-get update -qq && apt-get install -qq -y --no-install-recommends $$missing >/dev/null; \
	fi
endef

apt-run:
	$(call install,$(APT_RUN))

# Compiles the programs; no node needs it.
apt-build: apt-run
	$(call install,$(APT_BUILD))

apt-lab: apt-run
	$(call install,$(APT_LAB))

apt-dev: apt-lab
	$(call install,$(APT_DEV))

# After the others, so that the package lists are there.
apt-fuzz: apt-dev
	$(call install,$(APT_FUZZ))

# After the others, so that the package lists are there.
apt-neighbours: apt-dev
	$(call install,$(APT_NEIGHBOURS))

apt-fresh:
	$(call install,$(APT_FRESH))

apt-image:
	$(call install,$(APT_IMAGE))

apt-kernels:
	$(call install,$(APT_KERNELS))

# The system's site-packages are visible in it: bcc, which builds the programs, comes from there, and from nowhere else.
# The pip of Debian 12 needs twice as long to choose among the files of a package.
.venv/.base: deploy/lock/pip.txt | apt-run
	$(PYTHON) -m venv --system-site-packages .venv
	$(BIN)/pip install $(LOCKED) deploy/lock/pip.txt
	@touch $@

# Every package in the version and with the content that deploy/lock names, or none.
LOCKED := --quiet --require-hashes --requirement
.venv/.run: .venv/.base pyproject.toml deploy/lock/run.txt deploy/lock/build.txt | apt-run
	$(BIN)/pip install $(LOCKED) deploy/lock/run.txt $(LOCKED) deploy/lock/build.txt
	$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

.venv/.dev: .venv/.run deploy/lock/dev.txt | apt-dev
	$(BIN)/pip install $(LOCKED) deploy/lock/dev.txt
	@touch $@

# The tools for it have an environment of their own.
.cache/lock/bin/pip-%: | apt-run
	$(PYTHON) -m venv .cache/lock
	.cache/lock/bin/pip install --quiet pip-tools==7.6.2 pip-audit==2.10.1

lock: .cache/lock/bin/pip-compile
	@echo pip > .cache/lock/pip.in
	$(call choose,pip,,.cache/lock/pip.in)
	$(call choose,run,,pyproject.toml)
	$(call choose,build,--only-build-deps --build-deps-for editable,pyproject.toml)
	$(call choose,dev,--extra dev,pyproject.toml)

define choose
	@PIP_FIND_LINKS= CUSTOM_COMPILE_COMMAND='make lock' .cache/lock/bin/pip-compile --quiet --upgrade --allow-unsafe \
		--generate-hashes --strip-extras --no-emit-index-url --no-emit-trusted-host --no-emit-find-links \
		$(2) --output-file deploy/lock/$(1).txt $(3)
endef

audit: .cache/lock/bin/pip-audit
	.cache/lock/bin/pip-audit --require-hashes --disable-pip --requirement deploy/lock/run.txt

CANNOT = echo "$(@F) could not be fetched or built: tests that need it are skipped"
# Checks the metrics and alert rules, and asks what the dashboard asks. Taken out of its package: installing that would
# start a server, now and at boot.
$(BIN)/promtool $(BIN)/prometheus &: | .venv/.base
	@folder=$$(mktemp -d) && trap "rm -r $$folder" EXIT && cd $$folder && \
	apt-get update -qq && apt-get download -qq -o APT::Sandbox::User=root prometheus && \
	dpkg-deb --fsys-tarfile prometheus_*.deb | tar -x ./usr/bin/promtool ./usr/bin/prometheus && \
	mv usr/bin/promtool usr/bin/prometheus $(CURDIR)/$(BIN)/ || $(CANNOT)

# Ask the API as operators do, render the manifests and apply them. Built by the Go that is fixed here: distributions'
# are older than these need. Without a Go module proxy the tests that need them are skipped.
GRPCURL := github.com/fullstorydev/grpcurl/cmd/grpcurl@v1.9.3
HELM := helm.sh/helm/v3/cmd/helm@v3.19.0
KUSTOMIZE := sigs.k8s.io/kustomize/kustomize/v5@v5.7.1
$(BIN)/grpcurl: MODULE := $(GRPCURL)
$(BIN)/helm: MODULE := $(HELM)
$(BIN)/kustomize: MODULE := $(KUSTOMIZE)
$(BIN)/grpcurl $(BIN)/helm $(BIN)/kustomize: | $(GO) .venv/.base
	@echo "building $(@F)"
	@GOBIN=$(CURDIR)/$(BIN) GOTOOLCHAIN=local CGO_ENABLED=0 $(GO) install $(MODULE) || $(CANNOT)

$(BIN)/kubectl: $(wildcard tests/tools/kubectl/*) | $(GO) .venv/.base
	@echo "building $(@F)"
	@GOTOOLCHAIN=local CGO_ENABLED=0 $(GO) -C tests/tools/kubectl build -buildvcs=false -o $(CURDIR)/$@ . || $(CANNOT)

$(GO): tests/tools/install_go.py | apt-run
	-@$(PYTHON) $< .cache/go && touch $@
