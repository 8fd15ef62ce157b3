"""Log-probabilities of response tokens under any Hugging Face causal language model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from agent.ranks import ALONE, Ranks
from rl.learner.loss import LossOptions
from rl.learner.pack import LossRow, collate, loss_rows
from rl.learner.rounds import rounds
from rl.learner.row_attention import attend_within_rows
from rl.rows.assemble import TokenRow

# Largest block of logits (tokens × vocabulary) held at once; larger ones are recomputed in backward.
MAX_LOGITS = 2**27


class ResponseModel(nn.Module):
    """A causal LM that scores given tokens at given positions of rows that lie end to end.

    Rows are told apart by attention alone (`rl.learner.row_attention`), so nothing is padded; a model with
    layers that would look across a row's end gets its rows padded, for the same result.

    Hidden states are gathered *before* the output layer, so prompt tokens cost no logits. The softmax
    is taken in float32 or better whatever the weights' type, over the full vocabulary, with the sampler's
    temperature. Dropout is refused: it would make the scored distribution differ from the sampled one.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        active = [name for name, m in model.named_modules() if isinstance(m, nn.Dropout) and m.p > 0]
        if active or getattr(model.config, "attention_dropout", 0.0):
            raise ValueError(f"the model has dropout ({active or 'attention_dropout'}): set it to 0")
        self.model = model
        self._end_to_end = attend_within_rows(model)

    def forward(
        self,
        ids_N: torch.Tensor,
        rows: Sequence[int],
        position_T: torch.Tensor,
        target_T: torch.Tensor,
        temperature: float,
        entropy_gradient: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Scores tokens.

        Args:
            ids_N: Input tokens, row after row.
            rows: Tokens of each row, Σ = N.
            position_T: Positions among the N whose output predicts `target_T`.
            target_T: Tokens to score.
            temperature: Divides the logits, > 0.
            entropy_gradient: Whether the entropy is differentiated (else it is only measured).

        Returns:
            Log-probability and entropy (nats) of each, [T], float32 (float64 from float64 weights).
        """
        hidden_TD = self._hidden(ids_N, rows).index_select(0, position_T)
        size = max(1, MAX_LOGITS // self.model.config.vocab_size)
        if len(target_T) <= size:
            return self._score(hidden_TD, target_T, temperature, entropy_gradient)
        parts = [
            checkpoint(self._score, h_TD, y_T, temperature, entropy_gradient, use_reentrant=False)
            for h_TD, y_T in zip(hidden_TD.split(size), target_T.split(size), strict=True)
        ]
        return torch.cat([logp_T for logp_T, _ in parts]), torch.cat([h_T for _, h_T in parts])

    def _hidden(self, ids_N: torch.Tensor, rows: Sequence[int]) -> torch.Tensor:
        """Returns the last hidden states [N, D]."""
        if self._end_to_end:
            position_N = torch.cat([torch.arange(length, device=ids_N.device) for length in rows])
            output = self.model.base_model(
                input_ids=ids_N[None], position_ids=position_N[None], use_cache=False, rows=tuple(rows)
            )
            return output.last_hidden_state[0]
        # Padding is on the right and everything here is causal, so real tokens never see it.
        ids_BL = pad_sequence(ids_N.split(list(rows)), batch_first=True)
        hidden_BLD = self.model.base_model(input_ids=ids_BL, use_cache=False).last_hidden_state
        return torch.cat([hidden_LD[:length] for hidden_LD, length in zip(hidden_BLD, rows, strict=True)])

    def _score(
        self, hidden_TD: torch.Tensor, target_T: torch.Tensor, temperature: float, entropy_gradient: bool
    ) -> tuple[torch.Tensor, torch.Tensor]:
        logits_TV = self.model.get_output_embeddings()(hidden_TD)
        logits_TV = logits_TV.to(torch.promote_types(logits_TV.dtype, torch.float32)) / temperature
        log_z_T = logits_TV.logsumexp(-1)
        logp_T = logits_TV.gather(1, target_T[:, None]).squeeze(1) - log_z_T
        with torch.set_grad_enabled(entropy_gradient and torch.is_grad_enabled()):
            prob_TV = (logits_TV - log_z_T[:, None]).exp()
            entropy_T = log_z_T - (prob_TV * logits_TV).sum(-1)
        return logp_T, entropy_T


def score_rows(
    module: nn.Module,
    rows: Sequence[TokenRow],
    *,
    temperature: float,
    token_budget: int,
    ranks: Ranks = ALONE,
) -> list[np.ndarray]:
    """Log-probabilities of every span token of `rows`, laid out like `TokenRow.logp_sampled`.

    Arguments are those of `measure_rows`.
    """
    measured = measure_rows(module, rows, temperature=temperature, token_budget=token_budget, ranks=ranks)
    return [logp_T for logp_T, _ in measured]


@torch.no_grad()
def measure_rows(
    module: nn.Module,
    rows: Sequence[TokenRow],
    *,
    temperature: float,
    token_budget: int,
    ranks: Ranks = ALONE,
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Scores every span token of `rows` and the distribution it was drawn from.

    With several ranks, all must call this with the same rows. Each scores its share of the micro-batches,
    in rounds as `Learner` trains them: a rank without a batch repeats another's, since weights that are
    sharded (ZeRO-3) are gathered by all ranks at once.

    Args:
        module: A `ResponseModel`, or an engine's wrapper of one.
        rows: In any order.
        temperature: Divides the logits.
        token_budget: Most tokens per forward pass.
        ranks: Who share the work.

    Returns:
        For each row, log-probabilities and entropies (nats), each laid out like `TokenRow.logp_sampled`;
        the same on every rank.
    """
    prepared = _all_spans(rows)
    device = next(module.parameters()).device
    mine: list[tuple[int, np.ndarray, np.ndarray]] = []
    for dealt in rounds([len(row.ids) for row in prepared], token_budget, ranks.size):
        numbers = dealt[ranks.rank] or dealt[0]
        batch = collate([prepared[i] for i in numbers], device)
        sizes = [len(prepared[i].target_T) for i in numbers]
        measured = module(batch.ids_N, batch.rows, batch.position_T, batch.target_T, temperature)
        if dealt[ranks.rank]:
            logps, entropies = (values_T.cpu().split(sizes) for values_T in measured)
            mine += [(i, p.numpy(), h.numpy()) for i, p, h in zip(numbers, logps, entropies, strict=True)]
    empty = np.empty(0, dtype=np.float32)
    result: list[tuple[np.ndarray, np.ndarray]] = [(empty, empty)] * len(rows)
    for part in ranks.gather(mine):
        for i, logp_T, entropy_T in part:
            result[i] = (logp_T, entropy_T)
    return result


def _all_spans(rows: Sequence[TokenRow]) -> list[LossRow]:
    steps = 1 + max((span[2] for row in rows for span in row.spans), default=-1)
    return loss_rows(rows, np.ones(steps), LossOptions())[0]
