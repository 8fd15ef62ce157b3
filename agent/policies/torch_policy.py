"""Generation in plain PyTorch, for any Hugging Face causal language model, on CPU or GPU.

The cache is only a cache: a row's token ids are kept, so a row whose keys and values were dropped (new
weights, no free slot) is computed again when it goes on.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from transformers import PreTrainedModel

from agent.policies.adapters import AdaptedLayers, adapter_pairs
from agent.policies.kv_slots import ATTENTION, KVSlots
from agent.policies.request_checks import WeightCheck, check_keys, extended, unique
from agent.policies.responses import Responses
from agent.policies.token_sampling import draw, signals
from agent.policy import PolicyError, Sampling
from agent.types import Generation, Request


@dataclass(slots=True, eq=False)
class _Row:
    """The token row of one key; `cached` of its `ids` have keys and values in `slot`."""

    key: int
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
        prefill_tokens: Most prompt tokens per forward pass; bounds memory.

    Attributes:
        version: Of the weights, as given to `load_weights`; 0 at first.
        wants_base: Whether `load_weights` was not called yet.
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
        self.version, self.window, self.takes_adapters, self.wants_base = 0, window, True, True
        self._max_parallel, self._prefill_tokens = max_parallel, prefill_tokens
        self._model = copy.deepcopy(model).eval().requires_grad_(False)
        self._adapters = AdaptedLayers(self._model)
        self._model.set_attn_implementation(ATTENTION)
        if self._model.config._attn_implementation != ATTENTION:
            raise PolicyError(f"{type(model).__name__} does not let its attention be replaced, as this needs")
        self.dtype = self._model.dtype
        self._cache = KVSlots(self._model.config, self._model.dtype, self._model.device, window)
        self._rows: dict[int, _Row] = {}
        self._free: list[int] = list(range(max_parallel - 1, -1, -1))  # lowest slot last
        self._responses = Responses(max_parallel, stop_ids)
        self._seated: dict[int, _Row] = {}  # by slot, those in flight
        self._queue: deque[tuple[_Row, Request]] = deque()  # started, without a slot yet
        self._sampling = Sampling()

    def release(self, key: int) -> None:
        """See `Policy.release`."""
        if (row := self._rows.pop(key, None)) is None:
            return
        self._queue = deque(waiting for waiting in self._queue if waiting[0] is not row)
        if self._seated.get(row.slot) is row:
            self._responses.drop([row.slot])
            del self._seated[row.slot]
        self._drop(row)

    def sleep(self) -> None:
        """See `Policy.sleep`: on an accelerator, drops keys and values with their memory."""
        self._check_idle("sleep")
        if self._model.device.type != "cpu":
            self._forget()
            self._cache.free()

    def close(self) -> None:
        """See `Policy.close`."""
        self._cache.free()

    @torch.no_grad()
    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]], version: int) -> None:
        """See `Policy.load_weights`.

        Raises:
            PolicyError: Responses are in flight, or a name is unknown or missing or a shape differs. The
                weights are copied as they come, so the policy must not be used until a load has succeeded.
        """
        self._check_idle("load_weights")
        self._forget()
        self._adapters.clear()
        targets = self._model.state_dict(keep_vars=True)
        check = WeightCheck(targets)
        for name, tensor in weights:
            targets[check.take(name, tensor)].copy_(tensor)
        check.finish()
        self.wants_base, self.version = False, version

    def load_adapters(self, weights: Iterable[tuple[str, torch.Tensor]], version: int) -> None:
        """See `AdapterPolicy.load_adapters`."""
        self._check_idle("load_adapters")
        if self.wants_base:
            raise PolicyError("load_adapters: load_weights must come first, with what they are added to")
        self._forget()
        self._adapters.take(adapter_pairs(weights, self._model.state_dict()))
        self.version = version

    def held_weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        """See `Policy.held_weights`."""
        yield from unique(self._model.state_dict(keep_vars=True))
        yield from self._adapters.named()

    def _forget(self) -> None:
        """Forgets all keys and values, which were computed with older weights."""
        for row in self._rows.values():
            self._drop(row)

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[Generation]:
        """See `Policy.generate`; more requests than slots are served in waves.

        With temperature 0 the most likely token is taken and its log-probability is 0: that is the
        distribution sampled from.

        Raises:
            PolicyError: As `start`, or responses are in flight.
        """
        self._check_idle("generate")
        check_keys(requests)
        found: dict[int, Generation] = {}
        for first in range(0, len(requests), self._max_parallel):
            self.start(requests[first : first + self._max_parallel], sampling)
            while self._queue or self._seated:
                found.update(self.advance())
        return [found[request.key] for request in requests]

    def start(self, requests: Sequence[Request], sampling: Sampling) -> None:
        """See `Policy.start`; what finds no slot waits for one.

        Raises:
            PolicyError: Two requests of one key, a continuation of an unknown key, an empty prompt, one that
                leaves no room in the window, or another `sampling` than what is in flight.
        """
        busy = {row.key for row in self._seated.values()} | {row.key for row, _ in self._queue}
        if busy and sampling != self._sampling:
            raise PolicyError(f"start: {self._sampling} is in flight, got {sampling}; finish that first")
        check_keys(requests, busy)
        self._sampling = sampling
        self._queue.extend([(self._extend(request), request) for request in requests])

    @torch.inference_mode()
    def advance(self) -> list[tuple[int, Generation]]:
        """See `Policy.advance`; a new prompt is computed beside the others' next tokens."""
        new = self._admit()
        if not self._seated:
            return []
        logits_AV = self._feed(new) if new else self._decode()
        sampling = self._sampling
        ids_A, logp_A = draw(logits_AV, self._responses.uniform_A(), sampling.temperature)
        signal_AK = signals(logits_AV, sampling) if sampling.top else None
        ended = self._responses.record(ids_A, logp_A, signal_AK).tolist()
        finished = []
        for slot in ended:
            row, generation = self._seated.pop(slot), self._responses.generation(slot)
            row.ids += generation.ids
            row.cached = len(row.ids) - 1  # the last token was sampled, not fed
            finished.append((row.key, generation))
        if ended:
            self._responses.drop(ended)
        return finished

    def _check_idle(self, what: str) -> None:
        if flying := len(self._queue) + len(self._seated):
            raise PolicyError(f"{what}: {flying} responses are in flight; advance until they end, or release")

    def _extend(self, request: Request) -> _Row:
        """Adds the request's ids to its row and checks that there is room for a response."""
        row = self._rows.get(request.key)
        ids, kept = extended(row.ids if row else None, request, self.window)
        if row is None:
            row = self._rows[request.key] = _Row(request.key)
        row.ids = ids
        row.cached = min(row.cached, kept, len(ids) - 1)  # the last token is fed again if nothing was added
        return row

    def _admit(self) -> dict[int, _Row]:
        """Seats those who wait, as far as there are slots; returns the rows by slot."""
        room = self._max_parallel - len(self._seated)
        taken = [self._queue.popleft() for _ in range(min(room, len(self._queue)))]
        wanted = {id(row) for row, _ in taken} | set(map(id, self._seated.values()))
        idle = None
        for row, request in taken:
            if row.slot is None:
                if not self._free:
                    if idle is None:
                        idle = [o for o in self._rows.values() if o.slot is not None and id(o) not in wanted]
                    self._drop(idle.pop())
                row.slot = self._free.pop()
            self._seated[row.slot] = row
            self._responses.add(
                row.slot,
                prompt=len(row.ids),
                limit=min(request.max_new_tokens, self.window - len(row.ids)),
                seed=request.seed,
                signals=1 + self._sampling.top if self._sampling.top else 0,
            )
        return {row.slot: row for row, _ in taken}

    def _drop(self, row: _Row) -> None:
        """Forgets the keys and values of a row."""
        if row.slot is not None:
            self._free.append(row.slot)
            self._free.sort(reverse=True)
        row.slot, row.cached = None, 0

    def _decode(self) -> torch.Tensor:
        """Feeds every response's last token; returns the logits of the next [A, V]."""
        ids_A, position_A = self._responses.last_A()
        return self._forward(ids_A, self._responses.active_A, position_A, np.ones_like(ids_A))

    def _feed(self, new: dict[int, _Row]) -> torch.Tensor:
        """Feeds what is not cached of `new` rows and the last token of all others; returns as `_decode`.

        Rows that begin with the same prompt (members of a group) are computed once and copied.
        """
        slots = self._responses.active_A.tolist()
        last = dict(zip(slots, zip(*self._responses.last_A(), strict=True), strict=True))
        leaders: dict[tuple[int, ...], int] = {}
        leader_of = {
            slot: slot if new[slot].cached else leaders.setdefault(tuple(new[slot].ids), slot)
            for slot in slots
            if slot in new
        }
        # Single tokens first: a span of them is not to be cut by a prompt in between.
        order = [slot for slot in slots if slot not in new] + sorted(set(leader_of.values()))
        feeds = [
            (slot, new[slot].cached, new[slot].ids[new[slot].cached :])
            if slot in new
            else (slot, last[slot][1], [last[slot][0]])
            for slot in order
        ]
        logits_RV = self._forward_in_parts(feeds)
        self._copy_shared(new, leader_of)
        place = {slot: i for i, slot in enumerate(order)}
        return logits_RV[[place[leader_of.get(slot, slot)] for slot in slots]]

    def _forward_in_parts(self, feeds: Sequence[tuple[int, int, Sequence[int]]]) -> torch.Tensor:
        """Forward passes of at most `prefill_tokens` (at least one row each) over (slot, start, ids)."""
        parts, first, tokens = [], 0, 0
        for i, (_, _, ids) in enumerate([*feeds, (0, 0, range(self._prefill_tokens + 1))]):
            if i > first and tokens + len(ids) > self._prefill_tokens:
                slots, starts, chosen = zip(*feeds[first:i], strict=True)
                parts.append(self._forward(np.concatenate(chosen), slots, starts, [len(c) for c in chosen]))
                first, tokens = i, 0
            tokens += len(ids)
        return torch.cat(parts)

    def _copy_shared(self, new: dict[int, _Row], leader_of: dict[int, int]) -> None:
        """Copies the cache of each leader to the rows that follow it."""
        followers: dict[int, list[int]] = {}
        for slot, leader in leader_of.items():
            if slot != leader:
                followers.setdefault(leader, []).append(slot)
        if followers:
            self._cache.reserve(max(new) + 1, 0)
        for leader, slots in followers.items():
            self._cache.copy(leader, slots, len(new[leader].ids))

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
