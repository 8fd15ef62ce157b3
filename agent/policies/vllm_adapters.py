"""Low-rank adapters in vLLM (0.32), handed over in memory; imports it as `agent.policies.vllm_engine` does.

vLLM itself takes adapters from a folder. Here they go to where it would have put them after reading.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from agent.policies.adapters import PREFIX, Pair
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


def take_adapters(runner: Any, pairs: Mapping[str, Pair], scaling: float) -> None:
    """Copies adapters in place of those before.

    Args:
        runner: vLLM's model runner, of an engine with `adapter_options`.
        pairs: A and B by the name of their module in the Hugging Face model; the rank is A's.
        scaling: Of their output.

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
        {  # copies, for vLLM multiplies B by the scaling in place
            f"{PREFIX}{module}.lora_{half}.weight": weight.detach().clone()
            for module, pair in pairs.items()
            for half, weight in zip("AB", pair, strict=True)
        },
        PEFTHelper(r=rank, lora_alpha=scaling * rank, target_modules=[]),
        device=str(manager.device),
        dtype=options.lora_dtype,
        weights_mapper=None if names is None else names.get_rename_mapper(),
    )
    _check_places(manager, adapters.loras)
    manager.remove_all_adapters()  # and what it knows of the last batch, which a sleep may have dropped
    manager.add_adapter(adapters)
    manager.activate_adapter(_NUMBER)


def _check_places(manager: Any, adapters: Iterable[str]) -> None:
    """Raises a PolicyError if vLLM would pass over one of the adapters without a word."""
    # q, k and v are one matrix in vLLM, gate and up another: what stands there goes by the parts' names.
    parts = {part for parts in manager.packed_modules.values() for part in parts}
    if strange := sorted(set(adapters) - parts - manager.modules.keys()):
        raise PolicyError(
            f"load_adapters: {type(manager.model).__name__} in vLLM has no place for an adapter of "
            f"{', '.join(strange)}: leave them out of model.lora.targets"
        )
