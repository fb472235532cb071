# Everything a developer or a user types. Each target sets up what it needs, in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
# Two processes, file by file; threads of torch that wait for work must not spin beside those that have some.
TEST := OMP_WAIT_POLICY=passive $(BIN)/python -m pytest -n 2 --dist loadfile

.DEFAULT_GOAL := help
.PHONY: help app test test-all lint format bench wheel clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

app: $(VENV)/.app ## set up, and serve the page on http://127.0.0.1:7860 (GRADIO_SERVER_PORT=7861 for another port)
	$(BIN)/python app.py $(ARGS)

test: $(VENV)/.test ## set up, and run the tests (minutes)
	$(TEST) $(ARGS)

test-all: $(VENV)/.test ## run the slow tests too
	$(TEST) -m "" $(ARGS)

lint: $(VENV)/.lint ## check style, types and the import floors
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.lint ## put the code into its format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.bench ## compare with the peers (minutes; want an idle machine)
	$(BIN)/python -m benchmarks cam $(ARGS)
	$(BIN)/python -m benchmarks methods $(ARGS)
	$(BIN)/python -m benchmarks features $(ARGS)
	$(BIN)/python -m benchmarks hooks $(ARGS)
	$(BIN)/python -m benchmarks export $(ARGS)
	$(BIN)/python -m benchmarks page $(ARGS)

wheel: $(VENV)/.test ## build the wheel into dist/
	$(BIN)/python -m build

clean: ## remove the environment and what was built
	rm -rf $(VENV) build dist

$(VENV)/.venv:
	$(PYTHON) -m venv $(VENV)
	@touch $@

# pip resolves torch and torchvision in one go, so that the two fit each other.
$(VENV)/.app: pyproject.toml $(VENV)/.venv
	@echo "Setting up $(VENV): the first time downloads PyTorch, which takes minutes."
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(VENV)/.test: pyproject.toml $(VENV)/.venv
	@echo "Setting up $(VENV): the first time downloads PyTorch, which takes minutes."
	$(BIN)/python -m pip install --quiet --editable ".[test]"
	@touch $@ $(VENV)/.app

$(VENV)/.lint: pyproject.toml $(VENV)/.venv
	$(BIN)/python -m pip install --quiet --editable ".[test,lint,bench]"
	@touch $@ $(VENV)/.app $(VENV)/.test $(VENV)/.bench

$(VENV)/.bench: pyproject.toml $(VENV)/.venv
	$(BIN)/python -m pip install --quiet --editable ".[bench]"
	@touch $@ $(VENV)/.app
