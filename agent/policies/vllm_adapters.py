"""Low-rank adapters in vLLM (0.32), handed over in memory; imports it as `agent.policies.vllm_engine` does.

vLLM itself takes adapters from a folder. Here they go to where it would have put them after reading.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from agent.policies.adapters import Pair, named_halves
from agent.policy import PolicyError

RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""The sizes of vLLM's rooms for adapters."""
_NUMBER = 1  # vLLM's, of the only one


def adapter_options(rank: int) -> dict[str, Any]:
    """vLLM's options that make room for adapters of a rank; none at 0.

    Raises:
        PolicyError: vLLM has no such room.
    """
    if not rank:
        return {}
    if rank > RANKS[-1]:
        raise PolicyError(f"vLLM holds adapters of rank {RANKS[-1]} at most, got {rank}: lower model.lora.r")
    return {
        "enable_lora": True,
        "max_loras": 1,
        "max_lora_rank": next(room for room in RANKS if room >= rank),
    }


def adapters_request() -> Any:
    """What a request says that is to be computed with the adapters; they are there, so it looks for none."""
    from vllm.lora.request import LoRARequest

    return LoRARequest("adapters", _NUMBER, "given in memory")


def take_adapters(runner: Any, pairs: Mapping[str, Pair]) -> dict[str, str]:
    """Copies adapters in place of those before.

    Args:
        runner: vLLM's model runner, of an engine with `adapter_options`.
        pairs: A and B by the name of their module in the Hugging Face model; the rank is A's.

    Returns:
        vLLM's name of each of these modules → its own.

    Raises:
        PolicyError: vLLM's model has no place for one of them, or they are larger than its room.
    """
    from vllm.lora.lora_model import LoRAModel
    from vllm.lora.peft_helper import PEFTHelper

    manager, options = runner.lora_manager._adapter_manager, runner.lora_manager.lora_config
    rank = max((len(a) for a, _ in pairs.values()), default=1)
    if rank > options.max_lora_rank:
        raise PolicyError(f"load_adapters: rank {rank}, and vLLM was started for {options.max_lora_rank}")
    names = getattr(manager.model, "hf_to_vllm_mapper", None)
    adapters = LoRAModel.from_lora_tensors(
        _NUMBER,
        {name: weight.detach().clone() for name, weight in named_halves(pairs)},
        PEFTHelper(r=rank, lora_alpha=rank, target_modules=[]),  # a scaling of 1
        device=str(manager.device),
        dtype=options.lora_dtype,
        weights_mapper=None if names is None else names.get_rename_mapper(),
    )
    named = dict(zip(adapters.loras, pairs, strict=True))
    if strange := sorted(named.keys() - _places(manager).keys()):
        raise PolicyError(
            f"load_adapters: {type(manager.model).__name__} in vLLM has no place for an adapter of "
            f"{', '.join(strange)}: leave them out of model.lora.targets"
        )
    manager.remove_all_adapters()  # and what it knows of the last batch, which a sleep may have dropped
    manager.add_adapter(adapters)
    manager.activate_adapter(_NUMBER)
    return named


def held_adapters(runner: Any, names: Mapping[str, str]) -> Iterator[tuple[str, torch.Tensor]]:
    """What vLLM computes with, under the names of peft's files.

    Args:
        runner: As in `take_adapters`.
        names: From there. Of other modules, those come that have an adapter all the same.
    """
    manager = runner.lora_manager._adapter_manager
    for name, (module, part) in _places(manager).items():
        a, b = module.lora_a_stacked[part][0, 0], module.lora_b_stacked[part][0, 0]
        if name in names or b.any():
            rank = manager._registered_adapters[_NUMBER].rank
            yield from named_halves({names.get(name, name): (a[:rank], b[:, :rank])})


def _places(manager: Any) -> dict[str, tuple[Any, int]]:
    """vLLM's name of each module that can have an adapter → its layer, and its number in a stack of several.

    q, k and v are one matrix in vLLM, gate and up another: what stands there goes by the parts' names.
    """
    stacks = manager.packed_modules
    places = {name: (module, 0) for name, module in manager.modules.items() if name not in stacks}
    for whole, parts in stacks.items():
        if whole in manager.modules:
            places |= {part: (manager.modules[whole], i) for i, part in enumerate(parts)}
    return places
