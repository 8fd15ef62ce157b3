"""One update: epochs × mini-batches × micro-batches over the rows of a rollout."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from transformers import PreTrainedModel

from configs.seeds import derive
from rl.assemble import Advantage, TokenRow, TokenWeight
from rl.engine import Engine, NonFiniteError
from rl.forward import ResponseModel, score_rows
from rl.loss import LossOptions, auxiliary_loss, kl_estimate, policy_loss
from rl.pack import LossRow, TokenBatch, bins, collate, loss_rows, split_by_row, split_by_trajectory
from rl.schedule import LearningRate


@dataclass(frozen=True, slots=True)
class BatchOptions:
    """How an update's rows become optimiser steps.

    Attributes:
        epochs: Passes over the rows.
        minibatches: Optimiser steps a pass; rows are split by trajectory.
        minibatch_rows: Most rows an optimiser step instead, whatever their number and trajectories.
        token_budget: Most padded tokens a forward pass. Bounds memory, never changes a gradient.
    """

    epochs: int = 1
    minibatches: int = 1
    minibatch_rows: int | None = None
    token_budget: int = 16384

    def split(self, rows: Sequence[TokenRow], seed: int) -> list[list[int]]:
        """Returns the row numbers of each mini-batch of one pass."""
        if self.minibatch_rows is not None:
            return split_by_row(len(rows), self.minibatch_rows, seed)
        return split_by_trajectory(rows, self.minibatches, seed)


class Learner:
    """Trains the engine's module.

    The denominator of the ratio is the log-probability recorded when the token was sampled: exact, since
    sampler and learner score the same tokens with the same weights at the first optimiser step. What is
    left of a difference there is measured (`train/mismatch_*`).

    A mini-batch without any gradient (no token under the loss, or every advantage and auxiliary weight 0
    and neither KL nor entropy term) takes no optimiser step: momentum and weight decay alone would move the
    weights on no evidence.

    Attributes:
        version: Updates applied; the version of `named_weights`.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        loss: LossOptions,
        batches: BatchOptions,
        lr: LearningRate,
        temperature: float,
        seed: int,
        reference: PreTrainedModel | None = None,
    ) -> None:
        """Builds a learner.

        Args:
            engine: Owns module and optimiser.
            loss: The policy loss.
            batches: Optimiser steps an update.
            lr: Learning rate of each update.
            temperature: The sampler's; the learner scores the same distribution.
            seed: Of the run; splits into mini-batches derive from it.
            reference: The frozen model of the KL term, needed iff `loss.kl_coef > 0`. Not copied:
                pass a copy that nothing else trains.

        Raises:
            ValueError: a KL term without a reference, or a temperature ≤ 0.
        """
        if loss.kl_coef > 0 and reference is None:
            raise ValueError(f"kl_coef is {loss.kl_coef} but there is no reference model: pass one, or set 0")
        if not temperature > 0:
            raise ValueError(f"temperature must be above 0 to train (greedy has no density): {temperature}")
        self.version = 0
        self.engine = engine
        self._loss, self._batches, self._lr = loss, batches, lr
        self._temperature, self._seed = temperature, seed
        self._reference = None
        if loss.kl_coef > 0:
            self._reference = ResponseModel(reference.eval().requires_grad_(False))

    def named_weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Full weights under their Hugging Face names; tied weights come once."""
        return self.engine.named_weights()

    def logps(self, rows: Sequence[TokenRow]) -> list[np.ndarray]:
        """Log-probabilities of the rows' span tokens under the weights of now, float32 each."""
        budget = self._batches.token_budget
        return score_rows(self.engine.module, rows, temperature=self._temperature, token_budget=budget)

    def update(
        self, rows: Sequence[TokenRow], advantage: Advantage, *, update: int, aux: TokenWeight | None = None
    ) -> dict[str, float]:
        """Trains on the rows of one rollout.

        Args:
            rows: From `rl.assemble.token_rows`, in any order.
            advantage: [N] by step row, or one a response token.
            update: Number of the update, from 1: gives the learning rate and the mini-batch draw.
            aux: Weights of the auxiliary loss, added to the policy loss in the same aggregation.

        Returns:
            `train/*` and `speed/train_tokens_per_s`, see `rl.metrics.METRICS`.

        Raises:
            NonFiniteError: a loss or gradient is NaN or infinite; the message names update, epoch and
                mini-batch. The weights are those of the last finite optimiser step.
            ValueError: a NaN or infinite advantage or auxiliary weight.
        """
        began = time.perf_counter()
        logp_ref = self._reference_logps(rows)
        tally = _Tally()
        lr = self._lr.at(update)
        for epoch in range(self._batches.epochs):
            split_seed = derive(self._seed, "minibatches", update, epoch)
            for number, part in enumerate(self._batches.split(rows, split_seed)):
                refs = None if logp_ref is None else [logp_ref[i] for i in part]
                prepared, left_out = loss_rows([rows[i] for i in part], advantage, self._loss, refs, aux)
                tally.rows += len(part)
                tally.skipped_rows += left_out
                try:
                    self._optimiser_step(prepared, lr, tally)
                except NonFiniteError as error:
                    raise NonFiniteError(
                        f"update {update}, epoch {epoch}, mini-batch {number}: {error}; nothing was saved. "
                        "Lower train.lr, or look at this update's trajectories"
                    ) from error
        self.version += 1
        seconds = time.perf_counter() - began
        return {**tally.metrics(), "train/lr": lr, "speed/train_tokens_per_s": tally.input_tokens / seconds}

    def _reference_logps(self, rows: Sequence[TokenRow]) -> list[np.ndarray] | None:
        if self._reference is None:
            return None
        budget = self._batches.token_budget
        return score_rows(self._reference, rows, temperature=self._temperature, token_budget=budget)

    def _optimiser_step(self, rows: Sequence[LossRow], lr: float, tally: _Tally) -> None:
        """One step on prepared rows: micro-batches are dealt to the ranks in rounds.

        Every rank runs every round; one that has no batch left repeats the last with weight 0, because
        engines that reduce gradients during backward need equal counts. Engines average over ranks, so
        the loss is multiplied by their number.
        """
        if not rows:
            tally.skipped_steps += 1
            return
        engine = self.engine
        batches = bins([len(row.ids) for row in rows], self._batches.token_budget)
        rounds = math.ceil(len(batches) / engine.world_size)
        sums, maxima = torch.zeros(len(_SUMS), dtype=torch.float64), torch.zeros(len(_MAXIMA))
        for k in range(rounds):
            index = k * engine.world_size + engine.rank
            batch = collate([rows[i] for i in batches[min(index, len(batches) - 1)]], engine.device)
            loss, batch_sums, batch_maxima = self._forward(batch)
            mine = index < len(batches)
            engine.backward(loss * (engine.world_size if mine else 0.0), last=k == rounds - 1)
            if mine:
                sums += batch_sums.cpu()
                maxima = torch.maximum(maxima, batch_maxima.cpu())
        values = dict(zip(_SUMS, engine.reduce(sums.tolist(), "sum"), strict=True))
        if not math.isfinite(values["loss"]):
            engine.discard()
            raise NonFiniteError(f"the loss is {values['loss']}")
        peaks = dict(zip(_MAXIMA, engine.reduce(maxima.tolist(), "max"), strict=True))
        tally.add(values, peaks, engine.step(lr))

    def _forward(self, batch: TokenBatch) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Loss of a micro-batch, with the sums (`_SUMS`) and maxima (`_MAXIMA`) to report."""
        options = self._loss
        logp_T, entropy_T = self.engine.module(
            batch.ids_BL, batch.position_T, batch.target_T, self._temperature, options.entropy_coef > 0
        )
        terms = policy_loss(logp_T, batch.logp_sampled_T, batch.advantage_T, batch.seq_T, options)
        total_T = terms.loss_T
        kl_T = torch.zeros_like(logp_T)
        if batch.logp_ref_T is not None:
            kl_T = kl_estimate(logp_T, batch.logp_ref_T, options.kl_kind)
            total_T = total_T + options.kl_coef * kl_T
        if options.entropy_coef > 0:
            total_T = total_T - options.entropy_coef * entropy_T
        aux_T = torch.zeros_like(logp_T)
        if batch.aux_T is not None:
            aux_T = auxiliary_loss(logp_T, batch.aux_T)
            total_T = total_T + aux_T
        loss = (batch.weight_T * total_T).sum()
        with torch.no_grad():
            gap_T = batch.logp_sampled_T - logp_T
            counts = [len(logp_T), batch.tokens, batch.ids_BL.numel()]
            sums = torch.stack(
                [
                    loss.double(),
                    (batch.weight_T * terms.loss_T).sum().double(),
                    (batch.weight_T * aux_T).sum().double(),
                    kl_T.sum().double(),
                    entropy_T.sum().double(),
                    terms.clipped_T.sum().double(),
                    terms.dual_clipped_T.sum().double(),
                    gap_T.sum().double(),
                    gap_T.abs().sum().double(),
                    *torch.tensor(counts, dtype=torch.float64, device=loss.device),
                ]
            )
            maxima = torch.stack([terms.ratio_T.max(), gap_T.abs().max()])
        return loss, sums, maxima


_SUMS = (
    "loss", "policy_loss", "aux_loss", "kl", "entropy", "clipped", "dual_clipped", "gap", "abs_gap",
    "tokens", "input_tokens", "padded_tokens",
)  # fmt: skip
_MAXIMA = ("ratio", "abs_gap")


@dataclass(slots=True)
class _Tally:
    """What the optimiser steps of one update add up to."""

    rows: int = 0
    skipped_rows: int = 0
    steps: int = 0
    skipped_steps: int = 0
    grad_norm: float = 0.0
    ratio_max: float = 0.0
    sums: dict[str, float] = field(default_factory=lambda: dict.fromkeys(_SUMS, 0.0))
    first: dict[str, float] = field(default_factory=dict)

    @property
    def input_tokens(self) -> float:
        """Tokens through forward and backward, without padding."""
        return self.sums["input_tokens"]

    def add(self, sums: dict[str, float], maxima: dict[str, float], grad_norm: float) -> None:
        """Adds one optimiser step."""
        if not self.steps:
            self.first = {
                "train/mismatch_mean": sums["abs_gap"] / sums["tokens"],
                "train/mismatch_ratio_max": math.exp(min(maxima["abs_gap"], 80.0)),
            }
        for name in _SUMS:
            self.sums[name] += sums[name]
        self.ratio_max = max(self.ratio_max, maxima["ratio"])
        self.grad_norm += grad_norm
        self.steps += 1

    def metrics(self) -> dict[str, float]:
        """Means over tokens or steps; what no token measured is absent, never NaN."""
        counts = {
            "train/optimizer_steps": float(self.steps),
            "train/skipped_steps": float(self.skipped_steps),
            "train/skipped_rows": self.skipped_rows / self.rows if self.rows else 0.0,
            "train/loss_tokens": self.sums["tokens"],
            "train/input_tokens": self.sums["input_tokens"],
        }
        if not self.steps:
            return counts
        sums, tokens = self.sums, self.sums["tokens"]
        return {
            **counts,
            **self.first,
            "train/loss": sums["loss"] / self.steps,
            "train/policy_loss": sums["policy_loss"] / self.steps,
            "train/aux_loss": sums["aux_loss"] / self.steps,
            "train/kl_ref": sums["kl"] / tokens,
            "train/kl_sampled": sums["gap"] / tokens,
            "train/entropy": sums["entropy"] / tokens,
            "train/clip_fraction": sums["clipped"] / tokens,
            "train/dual_clip_fraction": sums["dual_clipped"] / tokens,
            "train/ratio_max": self.ratio_max,
            "train/grad_norm": self.grad_norm / self.steps,
            "train/padded_fraction": 1.0 - sums["input_tokens"] / sums["padded_tokens"],
        }
