"""One update: epochs × mini-batches × micro-batches over the rows of a rollout."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from configs.seeds import derive
from rl.learner.changed_weights import Handed
from rl.learner.engine import Engine, NonFiniteError
from rl.learner.forward import score_rows
from rl.learner.kl import k3, kl_estimate, kl_is_held
from rl.learner.lora import trained_names
from rl.learner.loss import LossOptions, auxiliary_loss, policy_loss
from rl.learner.mismatch import Prepared, prepare
from rl.learner.pack import LossRow, TokenBatch, collate, loss_rows, split_by_row, split_by_trajectory
from rl.learner.policy_moved import kl_moved, watched_rows
from rl.learner.reference import Reference
from rl.learner.rounds import attention_tokens, rounds
from rl.learner.schedule import LearningRate
from rl.learner.step_sums import MAXIMA, SUMS, StepSums
from rl.rows.assemble import Advantage, TokenRow, TokenWeight


@dataclass(frozen=True, slots=True)
class BatchOptions:
    """How an update's rows become optimiser steps.

    Attributes:
        epochs: Passes over the rows.
        minibatches: Optimiser steps per pass; rows are split by trajectory.
        minibatch_rows: Most rows an optimiser step instead, whatever their number and trajectories.
        token_budget: Most tokens per forward pass. Bounds memory, never changes a gradient.
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

    The denominator of the ratio is the log-probability recorded when the token was sampled: exact where
    sampler and learner compute the same from the same weights. What is left of a difference before the first
    optimiser step is measured (`train/mismatch_*`) and, if `LossOptions.mismatch` says so, acted on
    (`rl.learner.mismatch.prepare`); that takes a scoring pass of its own.

    A mini-batch without any gradient (no token under the loss, or every advantage and auxiliary weight 0
    and neither KL nor entropy term) takes no optimiser step: momentum and weight decay alone would move the
    weights on no evidence.

    Attributes:
        version: Updates applied; the version of `named_weights`.
        ranks: The processes that share its work; all of them call each method with the same arguments.
        handed: What the policy was given last (`rl.hand_over`).
        reference: As given.
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
        reference: Reference | None = None,
    ) -> None:
        """Builds a learner.

        Args:
            engine: Owns module and optimiser.
            loss: The policy loss.
            batches: Optimiser steps per update.
            lr: Learning rate of each update.
            temperature: The sampler's; the learner scores the same distribution.
            seed: Of the run; splits into mini-batches derive from it.
            reference: What the KL term compares with, needed iff `loss.kl_coef > 0`.

        Raises:
            ValueError: a KL term without a reference, or a temperature ≤ 0.
        """
        if loss.kl_coef > 0 and reference is None:
            raise ValueError(f"kl_coef is {loss.kl_coef} but there is no reference model: pass one, or set 0")
        if not temperature > 0:
            raise ValueError(f"temperature must be above 0 to train (greedy has no density): {temperature}")
        self.version = 0
        self.engine = engine
        self.ranks = engine.channel()
        self.handed = Handed(trained_names(engine.model))
        self._loss, self._batches, self._lr = loss, batches, lr
        self._temperature, self._seed = temperature, seed
        self._attention = attention_tokens(engine.model)
        self.reference = reference

    def named_weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Full weights under their Hugging Face names; tied weights come once."""
        return self.engine.named_weights()

    def logps(self, rows: Sequence[TokenRow]) -> list[np.ndarray]:
        """Log-probabilities of the rows' span tokens under the weights of now, float32 each.

        Every rank calls it with the same rows, scores its share and gets all; see
        `rl.learner.forward.measure_rows`.
        """
        return self._scored(self.engine.module, rows)

    @property
    def masks(self) -> bool:
        """Whether `prepare` may leave responses out of the loss."""
        return self._loss.mismatch == "mask"

    def prepare(self, rows: Sequence[TokenRow]) -> Prepared:
        """What the loss's `mismatch` makes of an update's rows, see `rl.learner.mismatch.prepare`.

        `update` does it by itself; to be called before where credit depends on which responses are left.
        """
        return prepare(rows, self._loss, self.logps)

    def update(
        self,
        rows: Sequence[TokenRow] | Prepared,
        advantage: Advantage,
        *,
        update: int,
        aux: TokenWeight | None = None,
    ) -> dict[str, float]:
        """Trains on the rows of one rollout.

        Args:
            rows: From `rl.rows.assemble.token_rows`, in any order, or what `prepare` made of them.
            advantage: [N] by step row, or one per response token.
            update: Number of the update, from 1: gives the learning rate and the mini-batch draw.
            aux: Weights of the auxiliary loss, added to the policy loss in the same aggregation.

        Returns:
            `train/*` and `speed/train_tokens_per_s`, see `rl.tracking.metrics.METRICS`.

        Raises:
            NonFiniteError: a loss or gradient is NaN or infinite; the message names update, epoch and
                mini-batch. The weights are those of the last finite optimiser step.
            ValueError: a NaN or infinite advantage or auxiliary weight.
        """
        began = time.perf_counter()
        prepared = rows if isinstance(rows, Prepared) else self.prepare(rows)
        rows, logp_old = prepared.rows, prepared.logp_old
        logp_ref = self._reference_logps(rows) if self._loss.kl_coef > 0 else None
        watched = watched_rows(rows, self._batches.token_budget)
        logp_before = self._scored(self.engine.module, watched)
        totals = StepSums(before=prepared.metrics)
        lr = self._lr.at(update)
        for epoch in range(self._batches.epochs):
            split_seed = derive(self._seed, "minibatches", update, epoch)
            for number, part in enumerate(self._batches.split(rows, split_seed)):
                refs = None if logp_ref is None else [logp_ref[i] for i in part]
                olds = None if logp_old is None else [logp_old[i] for i in part]
                kept, left_out = loss_rows([rows[i] for i in part], advantage, self._loss, refs, aux, olds)
                totals.rows += len(part)
                totals.skipped_rows += left_out
                try:
                    self._optimiser_step(kept, lr, totals)
                except NonFiniteError as error:
                    raise NonFiniteError(
                        f"update {update}, epoch {epoch}, mini-batch {number}: {error}; nothing was saved. "
                        "Lower train.lr, or look at this update's trajectories"
                    ) from error
        self.version += 1
        if watched:
            logp_after = self._scored(self.engine.module, watched) if totals.steps else logp_before
            totals.kl_moved = kl_moved(logp_before, logp_after)
        seconds = time.perf_counter() - began
        return {**totals.metrics(), "train/lr": lr, "speed/train_tokens_per_s": totals.input_tokens / seconds}

    def _reference_logps(self, rows: Sequence[TokenRow]) -> list[np.ndarray]:
        with self.reference.scoring() as module:
            return self._scored(module, rows)

    def _scored(self, module: nn.Module, rows: Sequence[TokenRow]) -> list[np.ndarray]:
        return score_rows(
            module,
            rows,
            temperature=self._temperature,
            token_budget=self._batches.token_budget,
            ranks=self.ranks,
        )

    def _optimiser_step(self, rows: Sequence[LossRow], lr: float, totals: StepSums) -> None:
        """One step on prepared rows: micro-batches are dealt to the ranks in rounds (`rl.learner.rounds`).

        Every rank runs every round; one that has no batch repeats another's with weight 0, because
        engines that reduce gradients during backward need equal counts. Engines average over ranks, so
        the loss is multiplied by their number.
        """
        if not rows:
            totals.skipped_steps += 1
            return
        engine = self.engine
        lengths = [len(row.ids) for row in rows]
        dealt = rounds(lengths, self._batches.token_budget, engine.world_size, self._attention)
        sums, maxima = dict.fromkeys(SUMS, 0.0), dict.fromkeys(MAXIMA, 0.0)
        for number, batches in enumerate(dealt, start=1):
            mine = batches[engine.rank]
            batch = collate([rows[i] for i in mine or batches[0]], engine.device)
            loss, measured = self._forward(batch)
            engine.backward(loss * (engine.world_size if mine else 0.0), last=number == len(dealt))
            if mine:
                numbers = torch.stack(list(measured.values())).tolist()  # one wait for the device
                found = dict(zip(measured, numbers, strict=True))
                sums = {name: sums[name] + found[name] for name in SUMS}
                maxima = {name: max(maxima[name], found[f"max_{name}"]) for name in MAXIMA}
        values = dict(zip(SUMS, engine.reduce(list(sums.values()), "sum"), strict=True))
        if not math.isfinite(values["loss"]):
            engine.discard()
            raise NonFiniteError(f"the loss is {values['loss']}")
        peaks = dict(zip(MAXIMA, engine.reduce(list(maxima.values()), "max"), strict=True))
        norm = engine.step(lr)
        totals.add(values, peaks, norm, min(1.0, engine.grad_clip / norm) if norm else 1.0)

    def _forward(self, batch: TokenBatch) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Loss of a micro-batch, and what to report of it: the names in `SUMS`, and `MAXIMA` with `max_`."""
        options = self._loss
        logp_T, entropy_T = self.engine.module(
            batch.ids_N,
            batch.rows,
            batch.position_T,
            batch.target_T,
            self._temperature,
            options.entropy_coef > 0,
        )
        terms = policy_loss(
            logp_T, batch.logp_sampled_T, batch.advantage_T, batch.seq_T, options, batch.logp_old_T
        )
        total_T = terms.loss_T
        kl_T = held_T = torch.zeros_like(logp_T)
        if batch.logp_ref_T is not None:
            kl_T = kl_estimate(logp_T, batch.logp_ref_T, options.kl_kind)
            held_T = kl_is_held(logp_T, batch.logp_ref_T, options.kl_kind)
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
            sums = {
                "loss": loss,
                "policy_loss": (batch.weight_T * terms.loss_T).sum(),
                "aux_loss": (batch.weight_T * aux_T).sum(),
                "kl": kl_T.sum(),
                "kl_held": held_T.sum(),
                "entropy": entropy_T.sum(),
                "clipped": terms.clipped_T.sum(),
                "dual_clipped": terms.dual_clipped_T.sum(),
                "gap": gap_T.sum(),
                "abs_gap": gap_T.abs().sum(),
                # KL(sampler ‖ now) in float64: differences of 1e-5 would vanish beside 1
                "gap_k3": k3(-gap_T.double()).sum(),
                "max_ratio": terms.ratio_T.max(),
                "max_abs_gap": gap_T.abs().max(),
            }
            counts = {
                "tokens": len(logp_T),
                "ref_tokens": 0 if batch.logp_ref_T is None else len(logp_T),
                "input_tokens": len(batch.ids_N),
            }
            sizes = torch.tensor(list(counts.values()), dtype=torch.float64, device=loss.device)
        return loss, {name: value.double() for name, value in sums.items()} | dict(
            zip(counts, sizes, strict=True)
        )
