"""Warm start of an embedded policy: supervised learning on an expert's walks.

The model reads whole trajectories in append-only form, exactly as the rollout builds them, and learns the
expert's responses (loss weight 1) and, a little, to predict observations (`obs_weight`): knowing what the
world answers is what teaches a small model to use what it has seen.

Demonstrations are made shard by shard from seeds, so the position in the curriculum is all that a resumed run
needs besides weights and optimisers. Matrices are trained with Muon, the rest with AdamW: with AdamW alone
the same loss takes about twice the tokens (docs/decisions.md).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional as F
from transformers import Qwen2ForCausalLM, Qwen2Tokenizer

from agent.prompts.builder import PromptBuilder
from configs.seeds import derive
from envs.demonstration import Lessons, Walk

Row = tuple[np.ndarray, np.ndarray]
"""Token ids [L] (int64) and loss weights [L] (float32) of one demonstration."""

STATE_FILE = "warmstart.pt"


@dataclass(frozen=True)
class WarmstartOptions:
    """Hyper-parameters of the warm start; what is learnt from is the lessons' affair.

    Attributes:
        tokens: Tokens to train on, in all.
        batch_tokens: Padded tokens an optimiser step.
        lr: Peak learning rate of AdamW (embeddings, norms, biases).
        muon_lr: Peak learning rate of Muon (matrices).
        warmup: Share of `tokens` in which the learning rate rises; then it falls linearly.
        weight_decay: Of the matrices.
        obs_weight: Loss weight of observation tokens (responses weigh 1).
        mistake_weight: Loss weight of the mistakes' tokens: 1 imitates them, 0 only reads them.
        seed: Seeds everything.
    """

    tokens: int
    batch_tokens: int = 3072
    lr: float = 4e-3
    muon_lr: float = 6e-3
    warmup: float = 0.02
    weight_decay: float = 0.1
    obs_weight: float = 0.1
    mistake_weight: float = 1.0
    seed: int = 0


def response_text(thought: str, action: str) -> str:
    """The response form that the policy is taught and the parser expects."""
    return f"<think>{thought}</think><action>{action}</action>"


def corpus(lessons: Lessons, seed: int, shards: int) -> Iterator[str]:
    """Yields the texts a tokenizer is trained on; thoughts and actions without their tags."""
    for shard in range(shards):
        for walk in lessons(seed, shard):
            for step in walk.steps:
                yield from (step.observation.text, step.thought, step.action)


def encode(
    walk: Walk,
    prompts: PromptBuilder,
    tokenizer: Qwen2Tokenizer,
    obs_weight: float,
    mistake_weight: float,
) -> Row:
    """Turns a demonstration into its token row and loss weights; what outgrows the window is left out."""
    ids: list[int] = []
    weights: list[float] = []
    conversation = prompts.start(walk.instruction)
    for step in walk.steps:
        prompt, fresh = conversation.prompt(step.observation)
        if fresh and ids:
            break
        response = tokenizer.encode(response_text(step.thought, step.action), add_special_tokens=False)
        response.append(tokenizer.eos_token_id)
        ids += [*prompt, *response]
        weights += [obs_weight] * len(prompt) + [mistake_weight if step.mistake else 1.0] * len(response)
        conversation.record(response, step.action)
    return np.asarray(ids, dtype=np.int64), np.asarray(weights, dtype=np.float32)


def batches(rows: Sequence[Row], budget: int, rng: random.Random) -> list[list[Row]]:
    """Groups rows of similar length into batches of at most `budget` padded tokens, in random order."""
    out: list[list[Row]] = []
    for row in sorted(rows, key=lambda r: len(r[0])):
        if not out or (len(out[-1]) + 1) * len(row[0]) > budget:
            out.append([])
        out[-1].append(row)
    rng.shuffle(out)
    return out


def weighted_loss(model: Qwen2ForCausalLM, batch: Sequence[Row]) -> torch.Tensor:
    """Returns Σ_i w_i · (−log p(token_i | before)) / Σ_i w_i over the batch."""
    longest = max(len(ids) for ids, _ in batch)
    ids_BL = torch.zeros(len(batch), longest, dtype=torch.long)
    weight_BL = torch.zeros(len(batch), longest)
    for b, (ids, weights) in enumerate(batch):
        ids_BL[b, : len(ids)] = torch.from_numpy(ids)
        weight_BL[b, : len(ids)] = torch.from_numpy(weights)
    # Rows are padded on the right, so causal attention keeps padding out without a mask.
    logits_BLV = model(input_ids=ids_BL).logits
    nll = F.cross_entropy(logits_BLV[:, :-1].flatten(0, 1), ids_BL[:, 1:].flatten(), reduction="none")
    weight = weight_BL[:, 1:].flatten()
    return (nll * weight).sum() / weight.sum()


class Warmstart:
    """The training run: `run` goes on from wherever `load` or the constructor left it."""

    def __init__(
        self,
        model: Qwen2ForCausalLM,
        tokenizer: Qwen2Tokenizer,
        prompts: PromptBuilder,
        lessons: Lessons,
        options: WarmstartOptions,
    ) -> None:
        self.model, self.lessons, self.options = model, lessons, options
        self._tokenizer, self._prompts = tokenizer, prompts
        matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and "embed" not in n]
        others = [p for n, p in model.named_parameters() if p.ndim != 2 or "embed" in n]
        self._optimisers = (
            torch.optim.Muon(
                matrices,
                lr=options.muon_lr,
                weight_decay=options.weight_decay,
                adjust_lr_fn="match_rms_adamw",
            ),
            torch.optim.AdamW(others, lr=options.lr, betas=(0.9, 0.95), weight_decay=0.0),
        )
        self._peaks = (options.muon_lr, options.lr)
        self.shard, self.seen = 0, 0

    def run(self, on_shard: Callable[[Warmstart, float], None]) -> None:
        """Trains until `options.tokens`; after each shard calls `on_shard(self, mean loss)`."""
        while self.seen < self.options.tokens:
            rows = [self._row(walk) for walk in self.lessons(self.options.seed, self.shard)]
            rng = random.Random(derive(self.options.seed, "warmstart", "batches", self.shard))
            losses = [self._step(batch) for batch in batches(rows, self.options.batch_tokens, rng)]
            self.shard += 1
            on_shard(self, float(np.mean(losses)))

    def save(self, folder: Path) -> None:
        """Writes everything `load` needs, atomically."""
        folder.mkdir(parents=True, exist_ok=True)
        state = {
            "model": self.model.state_dict(),
            "optimisers": [o.state_dict() for o in self._optimisers],
            "shard": self.shard,
            "seen": self.seen,
            "options": (self.lessons, self.options),
        }
        torch.save(state, folder / (STATE_FILE + ".new"))
        (folder / (STATE_FILE + ".new")).replace(folder / STATE_FILE)

    def load(self, folder: Path) -> None:
        """Continues a saved run.

        Raises:
            ValueError: it was made with other options.
        """
        state = torch.load(folder / STATE_FILE, weights_only=False)
        own = (self.lessons, self.options)
        if state["options"] != own:
            raise ValueError(
                f"{folder / STATE_FILE} was made with {state['options']}, this run has {own}: "
                "use the same options, or another output folder"
            )
        self.model.load_state_dict(state["model"])
        for optimiser, saved in zip(self._optimisers, state["optimisers"], strict=True):
            optimiser.load_state_dict(saved)
        self.shard, self.seen = state["shard"], state["seen"]

    def _row(self, walk: Walk) -> Row:
        options = self.options
        return encode(walk, self._prompts, self._tokenizer, options.obs_weight, options.mistake_weight)

    def _step(self, batch: Sequence[Row]) -> float:
        done = self.seen / self.options.tokens
        scale = min(1.0, (done + 1e-3) / self.options.warmup) * max(0.02, 1.0 - done)
        for optimiser, peak in zip(self._optimisers, self._peaks, strict=True):
            for group in optimiser.param_groups:
                group["lr"] = peak * scale
            optimiser.zero_grad()
        loss = weighted_loss(self.model, batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimiser in self._optimisers:
            optimiser.step()
        self.seen += sum(len(ids) for ids, _ in batch)
        return loss.item()
