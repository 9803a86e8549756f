# `make demo` and `make test` need Python >= 3.11, a C++ compiler and make; they set up .venv themselves.
PYTHON ?= python3
BIN := .venv/bin
NATIVE := CMakeLists.txt $(wildcard native/*.h native/*.cpp native/isa/*.h native/isa/*.cpp)
TESTS ?= tests/runtime tests/exporter
CASES ?= tests/runtime
RECORDED := build/$(notdir $(CASES:.py=)).cases
# Two processes, each with whole files and one thread for torch.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --dist loadfile
SEED := $(or $(SEED),$(shell date +%s))
NATIVE_TESTS := $(wildcard tests/native/*.cpp)

.PHONY: demo test test-all test-random test-isa test-neon test-sanitize lint format clean

demo: .venv/installed
	$(BIN)/python examples/digits.py runs/demo

test: .venv/installed
	$(PYTEST) -m "not slow"

test-all: .venv/installed
	$(PYTEST)

# With examples drawn afresh; the seed that is printed draws the same again: `make test-random SEED=...`.
test-random: .venv/installed
	@echo "make test-random SEED=$(SEED)"
	HYPOTHESIS_PROFILE=random $(PYTEST) -m "not slow" --hypothesis-seed=$(SEED)

# With each instruction set of this machine forced, the best first.
test-isa: .venv/installed
	for isa in $$($(BIN)/python -c 'from bitfactor.runtime import *; print(*instruction_sets())'); do \
	    echo "BITFACTOR_ISA=$$isa"; \
	    BITFACTOR_ISA=$$isa $(BIN)/python -m pytest -m "not slow" $(TESTS) || exit 1; \
	done

# The core on an emulated ARM, and under sanitizers: it runs again what the tests of the runtime have run.
test-neon: $(RECORDED)
	tests/native/install cmake=cmake aarch64-linux-gnu-g++=g++-aarch64-linux-gnu qemu-aarch64=qemu-user
	cmake -S . -B build/neon -DNATIVE_TESTS=ON -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 \
	    -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++ -DCMAKE_EXE_LINKER_FLAGS=-static
	cmake --build build/neon --parallel
	qemu-aarch64 build/neon/tests/native/replay $(RECORDED)

test-sanitize: $(RECORDED)
	tests/native/install cmake=cmake
	for kind in address,undefined thread; do \
	    cmake -S . -B build/$$kind -DNATIVE_TESTS=ON -DCMAKE_BUILD_TYPE=Debug \
	        -DCMAKE_CXX_FLAGS="-O1 -fsanitize=$$kind -fno-sanitize-recover=all" && \
	    cmake --build build/$$kind --parallel && \
	    build/$$kind/tests/native/thread_pool && \
	    build/$$kind/tests/native/replay $(RECORDED) || exit 1; \
	done

$(RECORDED): .venv/installed $(wildcard tests/runtime/*.py tests/native/record.py src/bitfactor/runtime/*.py)
	mkdir -p build
	$(BIN)/python -m pytest -p tests.native.record --record $@ -k scalar $(CASES) \
	    --ignore tests/runtime/test_limits.py

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/clang-format --dry-run --Werror $(filter native/%,$(NATIVE)) $(NATIVE_TESTS)

format: .venv/installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(filter native/%,$(NATIVE)) $(NATIVE_TESTS)

.venv/installed: pyproject.toml constraints.txt $(NATIVE)
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

clean:
	rm -rf .venv build
