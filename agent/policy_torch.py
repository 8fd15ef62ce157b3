"""Generation in plain PyTorch, for any Hugging Face causal language model, on CPU or GPU.

The cache is only a cache: a row's token ids are kept, so a row whose keys and values were dropped (new
weights, no free slot) is computed again when it goes on.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from transformers import PreTrainedModel

from agent.kv_slots import ATTENTION, KVSlots
from agent.policy import Sampling
from agent.types import Generation, Request


class PolicyError(RuntimeError):
    """The policy was used against its contract, or given weights of another model."""


@dataclass(slots=True, eq=False)
class _Row:
    """The token row of one key; `cached` of its `ids` have keys and values in `slot`."""

    ids: list[int] = field(default_factory=list)
    cached: int = 0
    slot: int | None = None


class TorchPolicy:
    """Samples responses with a copy of `model`, which keeps keys and values between the steps of a row.

    A response depends on its row, its seed and the weights; never on what else is generated at the same
    time, except through the last bits of float arithmetic.

    Args:
        model: Its weights are copied, so that training it does not change this policy.
        stop_ids: Tokens that end a response.
        window: Longest row, prompt and response (tokens).
        max_parallel: Rows with a slot at once; more requests than that are served in waves.
        prefill_tokens: Most prompt tokens a forward pass; bounds memory.

    Attributes:
        version: Of the weights, as given to `load_weights`; 0 at first.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        stop_ids: Sequence[int],
        *,
        window: int,
        max_parallel: int = 128,
        prefill_tokens: int = 4096,
    ) -> None:
        self.version = 0
        self.window = window
        self._stop_ids = np.asarray(sorted(set(stop_ids)))
        self._max_parallel, self._prefill_tokens = max_parallel, prefill_tokens
        self._model = copy.deepcopy(model).eval().requires_grad_(False)
        self._model.set_attn_implementation(ATTENTION)
        if self._model.config._attn_implementation != ATTENTION:
            raise PolicyError(f"{type(model).__name__} does not let its attention be replaced, as this needs")
        self._cache = KVSlots(self._model.config, self._model.dtype, self._model.device, window)
        self._rows: dict[int, _Row] = {}
        self._free: list[int] = list(range(max_parallel - 1, -1, -1))  # lowest slot last

    def release(self, key: int) -> None:
        """See `Policy.release`."""
        row = self._rows.pop(key, None)
        if row is not None:
            self._drop(row)

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]], version: int) -> None:
        """See `Policy.load_weights`.

        Args:
            weights: (name in the model's state dict, tensor of any dtype and device); of tied
                weights one name is enough.
            version: Number of these weights.

        Raises:
            PolicyError: A name is unknown or missing or a shape differs. The weights are copied as
                they come, so the policy must not be used until a load has succeeded.
        """
        for row in self._rows.values():
            self._drop(row)
        targets = self._model.state_dict()
        loaded = set()
        for name, tensor in weights:
            target = targets.get(name)
            if target is None:
                raise PolicyError(f"load_weights: unknown weight {name!r}; there are {', '.join(targets)}")
            if target.shape != tensor.shape:
                raise PolicyError(
                    f"load_weights: {name} is {tuple(tensor.shape)}, the policy's is {tuple(target.shape)}: "
                    "these are weights of another model"
                )
            target.copy_(tensor)
            loaded.add(target.data_ptr())
        missing = [name for name, target in targets.items() if target.data_ptr() not in loaded]
        if missing:
            raise PolicyError(f"load_weights: no value for {', '.join(missing)}")
        self.version = version

    @torch.inference_mode()
    def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[Generation]:
        """See `Policy.generate`.

        With temperature 0 the most likely token is taken and its log-probability is 0: that is the
        distribution sampled from.

        Raises:
            PolicyError: Two requests of one key, a continuation of an unknown key, an empty prompt, or
                one that leaves no room in the window.
        """
        if len({request.key for request in requests}) != len(requests):
            raise PolicyError("generate: two requests have the same key; a row has one response at a time")
        generations = []
        for start in range(0, len(requests), self._max_parallel):
            generations += self._wave(requests[start : start + self._max_parallel], sampling)
        return generations

    def _wave(self, requests: Sequence[Request], sampling: Sampling) -> list[Generation]:
        """Serves as many requests as there are slots."""
        rows = [self._extend(request) for request in requests]
        self._seat(rows)
        order = sorted(range(len(rows)), key=lambda i: rows[i].slot)
        rows_R = [rows[i] for i in order]
        limit_R = np.asarray([min(requests[i].max_new_tokens, self.window - len(rows[i].ids)) for i in order])
        uniform_RN = np.zeros((len(rows), limit_R.max()))
        for r, i in enumerate(order):
            uniform_RN[r, : limit_R[r]] = np.random.default_rng(requests[i].seed).random(limit_R[r])
        ids_RN, logp_RN, count_R = self._sample(rows_R, limit_R, uniform_RN, sampling.temperature)
        generations: list[Generation | None] = [None] * len(rows)
        for r, i in enumerate(order):
            ids = ids_RN[r, : count_R[r]].tolist()
            rows_R[r].ids += ids
            rows_R[r].cached = len(rows_R[r].ids) - 1  # the last token was sampled, not fed
            finish = "stop" if ids[-1] in self._stop_ids else "length"
            generations[i] = Generation(ids, logp_RN[r, : count_R[r]].tolist(), finish)
        return generations

    def _extend(self, request: Request) -> _Row:
        """Adds the request's ids to its row and checks that there is room for a response."""
        row = self._rows.get(request.key)
        if row is None:
            if not request.fresh:
                raise PolicyError(f"generate: key {request.key} is unknown and its request not fresh")
            row = self._rows[request.key] = _Row()
        ids = [*request.ids] if request.fresh else [*row.ids, *request.ids]
        if not request.ids or len(ids) >= self.window or request.max_new_tokens < 1:
            raise PolicyError(
                f"generate: key {request.key} adds {len(request.ids)} tokens, which makes {len(ids)}, and "
                f"asks for up to {request.max_new_tokens}; a prompt must not be empty and must leave room in "
                f"the window ({self.window})"
            )
        row.ids = ids
        if request.fresh:
            row.cached = 0
        return row

    def _seat(self, rows: Sequence[_Row]) -> None:
        """Gives every row a slot; rows not asked for now lose theirs if there is no free one."""
        idle = None
        for row in rows:
            if row.slot is None:
                if not self._free:
                    if idle is None:
                        wanted = set(map(id, rows))
                        idle = [o for o in self._rows.values() if o.slot is not None and id(o) not in wanted]
                    self._drop(idle.pop())
                row.slot = self._free.pop()

    def _drop(self, row: _Row) -> None:
        """Forgets the keys and values of a row."""
        if row.slot is not None:
            self._free.append(row.slot)
            self._free.sort(reverse=True)
        row.slot, row.cached = None, 0

    def _sample(
        self, rows_R: list[_Row], limit_R: np.ndarray, uniform_RN: np.ndarray, temperature: float
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Samples until every row has stopped or reached its limit.

        Returns:
            Token ids [R, N], their log-probabilities [R, N] and the length of each response [R].
        """
        slot_R = np.asarray([row.slot for row in rows_R])
        length_R = np.asarray([len(row.ids) for row in rows_R])
        ids_RN = np.zeros(uniform_RN.shape, dtype=np.int64)
        logp_RN = np.zeros(uniform_RN.shape, dtype=np.float32)
        count_R = np.zeros(len(rows_R), dtype=np.int64)
        active = np.arange(len(rows_R))
        logits_AV = self._prefill(rows_R)
        for n in range(uniform_RN.shape[1]):
            ids_A, logp_A = draw(logits_AV, uniform_RN[active, n], temperature)
            ids_RN[active, n], logp_RN[active, n] = ids_A, logp_A
            count_R[active] = n + 1
            goes_on_A = ~np.isin(ids_A, self._stop_ids) & (limit_R[active] > n + 1)
            active, ids_A = active[goes_on_A], ids_A[goes_on_A]
            if not len(active):
                break
            logits_AV = self._forward(ids_A, slot_R[active], length_R[active] + n, np.ones_like(active))
        return ids_RN, logp_RN, count_R

    def _prefill(self, rows_R: list[_Row]) -> torch.Tensor:
        """Computes what is not cached of each row; returns the logits after its last token [R, V].

        Rows that begin with the same prompt (members of a group) are computed once and copied.
        """
        leaders: dict[tuple[int, ...], int] = {}
        leader_R = [
            r if row.cached else leaders.setdefault(tuple(row.ids), r) for r, row in enumerate(rows_R)
        ]
        unique = sorted(set(leader_R))
        parts, at = [], 0
        while at < len(unique):
            end, tokens = at, 0
            while end < len(unique) and (
                end == at or tokens + _new(rows_R[unique[end]]) <= self._prefill_tokens
            ):
                tokens += _new(rows_R[unique[end]])
                end += 1
            chosen = [rows_R[r] for r in unique[at:end]]
            parts.append(
                self._forward(
                    np.concatenate([row.ids[row.cached :] for row in chosen]),
                    [row.slot for row in chosen],
                    [row.cached for row in chosen],
                    [_new(row) for row in chosen],
                )
            )
            at = end
        self._copy_shared(rows_R, leader_R)
        place = {r: i for i, r in enumerate(unique)}
        return torch.cat(parts)[[place[leader] for leader in leader_R]]

    def _copy_shared(self, rows_R: list[_Row], leader_R: list[int]) -> None:
        """Copies the cache of each leader to the rows that follow it."""
        followers: dict[int, list[int]] = {}
        for r, leader in enumerate(leader_R):
            if r != leader:
                followers.setdefault(leader, []).append(rows_R[r].slot)
        if followers:
            self._cache.reserve(max(row.slot for row in rows_R) + 1, 0)
        for leader, slots in followers.items():
            self._cache.copy(rows_R[leader].slot, slots, len(rows_R[leader].ids))

    def _forward(
        self, ids_T: np.ndarray, slots: Sequence[int], starts: Sequence[int], counts: Sequence[int]
    ) -> torch.Tensor:
        """Feeds new tokens of several rows; returns the logits after the last of each [R, V], float32."""
        batch = self._cache.batch(slots, starts, counts)
        output = self._model(
            input_ids=torch.from_numpy(ids_T).to(self._model.device)[None],
            position_ids=batch.position_T[None],
            use_cache=False,
            logits_to_keep=batch.last_R,
            slots=batch,
        )
        return output.logits[0].float()


def draw(logits_RV: torch.Tensor, uniform_R: np.ndarray, temperature: float) -> tuple[np.ndarray, np.ndarray]:
    """Draws one token a row by inverting the cumulative distribution at `uniform_R`.

    Args:
        logits_RV: Unscaled logits, float32.
        uniform_R: In [0, 1).
        temperature: Divides the logits; 0 takes the most likely token.

    Returns:
        Ids [R] and log-probabilities under the distribution drawn from [R].
    """
    if temperature == 0.0:
        ids_R = logits_RV.argmax(dim=-1)
        return ids_R.cpu().numpy(), np.zeros(len(ids_R), dtype=np.float32)
    logp_RV = torch.log_softmax(logits_RV / temperature, dim=-1)
    cumulative_RV = logp_RV.exp().cumsum(dim=-1, dtype=torch.float64)
    # The first token whose cumulative probability exceeds the target; one of probability 0 never does first.
    target_R1 = torch.from_numpy(uniform_R).to(logits_RV.device)[:, None] * cumulative_RV[:, -1:]
    ids_R1 = torch.searchsorted(cumulative_RV, target_R1, right=True).clamp_(max=logits_RV.shape[1] - 1)
    return ids_R1[:, 0].cpu().numpy(), logp_RV.gather(1, ids_R1)[:, 0].cpu().numpy()


def _new(row: _Row) -> int:
    return len(row.ids) - row.cached
