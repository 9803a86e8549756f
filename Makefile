# `make demo` and `make test` need Python >= 3.11, a C++ compiler and make; they set up .venv themselves.
PYTHON ?= python3
BIN := .venv/bin
NATIVE := CMakeLists.txt $(wildcard native/*.h native/*.cpp native/isa/*.cpp)

.PHONY: demo test test-all lint format clean

demo: .venv/installed
	$(BIN)/python examples/digits.py runs/demo

test: .venv/installed
	$(BIN)/python -m pytest -m "not slow"

test-all: .venv/installed
	$(BIN)/python -m pytest

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/clang-format --dry-run --Werror $(filter native/%,$(NATIVE))

format: .venv/installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(filter native/%,$(NATIVE))

.venv/installed: pyproject.toml constraints.txt $(NATIVE)
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

clean:
	rm -rf .venv build
