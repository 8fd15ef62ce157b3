"""Generation by vLLM inside the process of the run (`agent.policies.vllm_engine`).

A row's ids are kept here and handed in whole with every request; vLLM's prefix cache finds the keys and
values of what it has seen.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from agent.policies.adapters import adapter_pairs
from agent.policies.request_checks import WeightCheck, check_keys, extended, unique
from agent.policies.vllm_engine import VLLMEngine
from agent.policy import PolicyError, Sampling
from agent.types import Generation, Request

LEAST_TEMPERATURE = 0.01  # vLLM samples at it where less is asked


@dataclass(slots=True)
class _Response:
    """A response in flight."""

    key: int
    ids: list[int] = field(default_factory=list)
    logps: list[float] = field(default_factory=list)
    signals: list[list[float]] = field(default_factory=list)


class VLLMPolicy:
    """Samples responses with vLLM, in this process, on its accelerator or on the CPU.

    A response depends on its row, its seed and the weights; never on what else is generated at the same
    time, except through the last bits of float arithmetic. `Sampling.top` costs a full vocabulary of
    log-probabilities a token: fine for a small vocabulary, slow for a large one.

    It starts without weights: `load_weights` must come before anything is asked for. Where
    `torch.distributed` joins several processes (torchrun), every one has an engine of its own, which never
    waits for the others after the start; all of them must be made at the same point.

    Args:
        model: Folder or name of a Hugging Face model; only its configuration is read.
        stop_ids: Tokens that end a response; the model's own end token does not, unless it is one of them.
        window: Longest row, prompt and response (tokens).
        max_parallel: Responses computed at once; more wait.
        batched_tokens: Most tokens computed in one round.
        memory: Share of the accelerator's memory to take; on a CPU, most of the machine's for the cache.
        eager: Neither CUDA graphs nor compilation: starts sooner, generates slower.
        dtype: Of the weights and the cache.
        adapter_rank: Of the low-rank adapters that it is to hold beside its weights; 0: none.
        seed: Of vLLM's own generators; responses use the seeds of their requests.
        tensor_parallel: Neighbouring processes that hold the model together, a part each; all of them must
            make the same calls in the same order (`agent.team_policy` sees to it).

    Attributes:
        version: Of the weights, as given to `load_weights`; 0 at first.
        wants_base: Whether there are no weights: at first, and after a sleep that dropped them.

    Raises:
        PolicyError: the settings cannot work together, or this vLLM keeps weights where no new ones reach.
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        stop_ids: Sequence[int],
        *,
        window: int,
        max_parallel: int = 128,
        batched_tokens: int = 16384,
        memory: float = 0.5,
        eager: bool = False,
        dtype: str = "float32",
        adapter_rank: int = 0,
        seed: int = 0,
        tensor_parallel: int = 1,
    ) -> None:
        self.version, self.takes_adapters, self.wants_base = 0, adapter_rank > 0, True
        self.window = window
        self.dtype = getattr(torch, dtype)
        config = AutoConfig.from_pretrained(model)
        with torch.device("meta"):
            self._targets = AutoModelForCausalLM.from_config(config).state_dict(keep_vars=True)
        self._vocabulary = config.get_text_config().vocab_size
        self._stop_ids = sorted(
            {token for token in stop_ids if token < self._vocabulary}
        )  # vLLM takes no other
        self._engine = VLLMEngine(
            str(model),
            config,
            memory,
            adapter_rank,
            max_model_len=window,
            max_num_seqs=max_parallel,
            max_num_batched_tokens=batched_tokens,
            enforce_eager=eager,
            dtype=dtype,
            seed=seed,
            tensor_parallel_size=tensor_parallel,
        )
        self._rows: dict[int, list[int]] = {}
        self._flight: dict[str, _Response] = {}  # by vLLM's name of the request
        self._sampling = Sampling()

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[Generation]:
        """See `Policy.generate`.

        With temperature 0 the most likely token is taken and its log-probability is 0: that is the
        distribution sampled from.

        Raises:
            PolicyError: As `start`, or responses are in flight.
        """
        self._check_idle("generate")
        self.start(requests, sampling)
        found: dict[int, Generation] = {}
        while self._flight:
            found.update(self.advance())
        return [found[request.key] for request in requests]

    def start(self, requests: Sequence[Request], sampling: Sampling) -> None:
        """See `Policy.start`; what exceeds `max_parallel` waits.

        Raises:
            PolicyError: No weights are loaded, two requests of one key, a continuation of an unknown key, an
                empty prompt, one that leaves no room in the window or has unknown tokens, a temperature
                that vLLM would change, or another `sampling` than what is in flight. Nothing was started.
        """
        if self.wants_base:
            raise PolicyError(
                "start: there are no weights: load_weights must come first, and after sleep again"
            )
        if self._flight and sampling != self._sampling:
            raise PolicyError(f"start: {self._sampling} is in flight, got {sampling}; finish that first")
        if 0.0 < sampling.temperature < LEAST_TEMPERATURE:
            raise PolicyError(
                f"start: vLLM would sample at {LEAST_TEMPERATURE} instead of {sampling.temperature}: use 0 "
                "(greedy) or a higher temperature"
            )
        check_keys(requests, {response.key for response in self._flight.values()})
        rows = [extended(self._rows.get(request.key), request, self.window)[0] for request in requests]
        for request in requests:
            if max(request.ids, default=0) >= self._vocabulary:  # vLLM would read past its embeddings
                raise PolicyError(
                    f"start: key {request.key} adds token {max(request.ids)}; the model's vocabulary has "
                    f"{self._vocabulary}: the tokenizer is another model's"
                )
        made = [
            self._engine.request(
                row,
                temperature=sampling.temperature,
                seed=request.seed,
                limit=min(request.max_new_tokens, self.window - len(row)),
                stop_ids=self._stop_ids,
                everything=bool(sampling.top),
                private=request.private,
            )
            for request, row in zip(requests, rows, strict=True)
        ]
        self._sampling = sampling
        for request, row, own in zip(requests, rows, made, strict=True):
            self._rows[request.key] = row
            self._flight[own.request_id] = _Response(request.key)
            self._engine.add(own)

    def advance(self) -> list[tuple[int, Generation]]:
        """See `Policy.advance`; a round of vLLM, which may compute prompts, next tokens or both."""
        if not self._flight:
            return []
        finished = []
        for output in self._engine.step():
            response = self._flight.get(output.request_id)
            if response is None:
                continue  # released
            self._take(response, output)
            if output.finish_reason is not None:
                del self._flight[output.request_id]
                finished.append((response.key, self._finish(response, str(output.finish_reason))))
        return finished

    def close(self) -> None:
        """See `Policy.close`; the engine ends with this object."""
        for key in list(self._rows):
            self.release(key)

    def release(self, key: int) -> None:
        """See `Policy.release`."""
        self._rows.pop(key, None)
        names = [name for name, response in self._flight.items() if response.key == key]
        self._engine.abort(names)
        for name in names:
            del self._flight[name]

    def sleep(self) -> None:
        """See `Policy.sleep`: on an accelerator, weights and cache are dropped with their memory."""
        self._check_idle("sleep")
        self.wants_base = self.wants_base or not self._engine.cpu
        self._engine.sleep()

    @torch.no_grad()
    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]], version: int) -> None:
        """See `Policy.load_weights`; they are copied one by one, so that memory never holds them twice.

        Raises:
            PolicyError: Responses are in flight, or a name is unknown or missing or a shape differs; the
                policy cannot be used until a load has succeeded.
        """
        self._check_idle("load_weights")
        self.wants_base = True
        check = WeightCheck(self._targets)
        self._engine.load(self._checked(weights, check))
        self.wants_base, self.version = False, version

    @torch.no_grad()
    def load_adapters(self, weights: Iterable[tuple[str, torch.Tensor]], version: int) -> None:
        """See `AdapterPolicy.load_adapters`."""
        self._check_idle("load_adapters")
        if not self.takes_adapters or self.wants_base:
            raise PolicyError(
                "load_adapters: load_weights must come first, and adapter_rank say that adapters will come"
            )
        self.wants_base = True  # until this has succeeded
        self._engine.adapt(adapter_pairs(weights, self._targets))
        self.wants_base, self.version = False, version

    def held_weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        """See `Policy.held_weights`."""
        return self._engine.held({name: weight.shape for name, weight in unique(self._targets)})

    def _check_idle(self, what: str) -> None:
        if self._flight:
            raise PolicyError(
                f"{what}: {len(self._flight)} responses are in flight; advance until they end, or release"
            )

    def _checked(
        self, weights: Iterable[tuple[str, torch.Tensor]], check: WeightCheck
    ) -> Iterator[tuple[str, torch.Tensor]]:
        """The weights under the first of their names (vLLM passes over the others of tied ones)."""
        for name, tensor in weights:
            yield check.take(name, tensor), tensor
        check.finish()

    def _take(self, response: _Response, output: Any) -> None:
        """Adds the tokens of one round; columns of their log-probabilities: sampled, then by rank."""
        response.ids += output.new_token_ids
        if not output.new_token_ids:
            return
        logp_NC = output.new_logprobs.logprobs
        response.logps += logp_NC[:, 0].tolist()
        if self._sampling.top:
            logp_NV = logp_NC[:, 1:].astype(np.float32)
            response.signals += _signals(logp_NV, self._sampling.top).tolist()

    def _finish(self, response: _Response, reason: str) -> Generation:
        """The whole response; its tokens join the row."""
        if reason not in ("stop", "length") or len(response.logps) != len(response.ids):
            raise PolicyError(
                f"advance: vLLM ended the response of key {response.key} with {reason!r}, "
                f"{len(response.ids)} tokens and {len(response.logps)} log-probabilities"
            )
        self._rows[response.key] += response.ids
        logps = response.logps if self._sampling.temperature else [0.0] * len(response.ids)
        return Generation(response.ids, logps, reason, response.signals if self._sampling.top else None)


def _signals(logp_NV: np.ndarray, top: int) -> np.ndarray:
    """Entropy and likeliest candidates as `token_sampling.signals` has them, of log-probabilities [N, V]."""
    entropy_N1 = -np.where(logp_NV > -np.inf, np.exp(logp_NV) * logp_NV, 0.0).sum(axis=1, keepdims=True)
    missing = max(0, top - logp_NV.shape[1])
    return np.concatenate([entropy_N1, np.pad(logp_NV[:, :top], ((0, 0), (0, missing)), mode="edge")], axis=1)
