"""Tokens a cross-encoder reads for SCPO, and seconds, beside the naive way in the same run.

    python -m bench.scorer [--groups 6] [--steps 30] [--seed 0]

Rollouts of the ALFWorld demonstrator with mistakes, so that groups hold successes and failures. The scorer
is a tiny random XLM-RoBERTa reranker with a tokenizer made for these texts: what is counted is tokens, which
do not depend on its size, and what is compared is credit. The naive way scores the matrix of each failed
trajectory pair by pair in batches of 64, padded to their longest, as they come; the second line sorts each
matrix's pairs by length, as FlagEmbedding does. FlagEmbedding is not needed.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    XLMRobertaConfig,
    XLMRobertaForSequenceClassification,
    XLMRobertaTokenizer,
)
from transformers.utils import logging

from credit.parts.siblings import step_texts
from credit.scorer import around_model, bge
from credit.signals import Context, Shaped, Signals
from credit.stages.scpo import SCPO
from credit.table import StepTable
from envs.alfworld.demonstrate import demonstrate
from envs.alfworld.generate import generate_games

GROUP = 8
BATCH = 64


def rollouts(groups: int, steps: int, seed: int) -> StepTable:
    """Groups of eight attempts at a full-size game, each with more mistakes than the one before."""
    columns: dict[str, list[Any]] = {name: [] for name in ("group", "trajectory", "t", "success", "reward")}
    columns |= {name: [] for name in ("outcome", "observation", "anchor", "action", "valid")}
    for group, game in enumerate(generate_games("train", groups, seed=seed)):
        for k in range(GROUP):
            number = group * GROUP + k
            walk = demonstrate(game, seed=seed + number, mistakes=0.1 + 0.08 * k, max_steps=steps)
            won = walk.outcome.success
            for t, step in enumerate(walk.steps):
                reward = 10.0 * (won and t == len(walk.steps) - 1)
                row = (group, number, t, won, reward, 10.0 * won, step.observation.text)
                row += (step.observation.anchor, step.action, step.action in step.observation.admissible)
                for column, value in zip(columns.values(), row, strict=True):
                    column.append(value)
    return StepTable(**columns)


def write_reranker(folder: Path, texts: Sequence[str], *, hidden: int = 32, seed: int = 0) -> Path:
    """Saves a random XLM-RoBERTa reranker and a tokenizer made for these texts; returns the folder."""
    specials = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    maker = Tokenizer(models.Unigram())
    maker.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
    )
    trainer = trainers.UnigramTrainer(
        vocab_size=800, special_tokens=specials, unk_token="<unk>", show_progress=False
    )
    maker.train_from_iterator(sorted(set(texts)), trainer)
    scores = dict(json.loads(maker.to_str())["model"]["vocab"])
    pieces = [(piece, 0.0) for piece in specials]
    pieces += [(piece, score) for piece, score in scores.items() if piece not in specials]
    tokenizer = XLMRobertaTokenizer(vocab=pieces)
    tokenizer.save_pretrained(folder)
    torch.manual_seed(seed)
    network = XLMRobertaForSequenceClassification(
        XLMRobertaConfig(
            vocab_size=len(tokenizer),
            hidden_size=hidden,
            intermediate_size=2 * hidden,
            num_hidden_layers=2,
            num_attention_heads=4,
            max_position_embeddings=514,
            type_vocab_size=1,
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            num_labels=1,
            initializer_range=0.3,  # at the usual 0.02 all pairs score nearly the same
        )
    )
    network.save_pretrained(folder)
    return folder


def load_reranker(source: str, device: str, precision: str) -> tuple[Any, Any]:
    """What `credit.scorer.bge.load` returns, without FlagEmbedding."""
    network = AutoModelForSequenceClassification.from_pretrained(source)
    return network, AutoTokenizer.from_pretrained(source)


class Remembered:
    """Scores known beforehand, 1 for equal texts if asked to."""

    canonical = None

    def __init__(self, scores: Mapping[tuple[str, str], float], one: bool) -> None:
        self.scores = {pair: 1.0 if one and pair[0] == pair[1] else score for pair, score in scores.items()}

    def score(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        """float [len(pairs)]."""
        return np.array([self.scores[pair] for pair in pairs])


def pair_by_pair(
    table: StepTable, stage: SCPO, scorer: bge.Scorer, by_length: bool
) -> dict[tuple[str, str], float]:
    """Scores the whole matrix of each failed trajectory in batches, as the pairs come or sorted."""
    scores: dict[tuple[str, str], float] = {}
    for references, failed in stage.families(table, Context()):
        pairs = [(a, b) for b in failed.texts for a in references[0].texts]
        if by_length:
            pairs = [pairs[i] for i in np.argsort(-scorer.lengths(pairs), kind="stable")]
        for first in range(0, len(pairs), BATCH):
            batch = pairs[first : first + BATCH]
            scores |= zip(batch, scorer.score(batch).tolist(), strict=True)
    return scores


def shape(table: StepTable, stage: SCPO, scorer: Any) -> Shaped:
    """The stage's result on a canonical table with this scorer."""
    nothing = np.zeros(len(table))
    return stage.shape(table, Signals(nothing, nothing, nothing), Context({"pair_scorer": scorer}))


def difference(first: Shaped, second: Shaped) -> str:
    """Whether two results credit the same steps at the same positions, and how far credits differ."""
    moved = int((first.columns["sibling_t"] != second.columns["sibling_t"]).sum())
    far = np.abs(first.columns["credit"] - second.columns["credit"]).max()
    credited = int((second.columns["sibling_t"] >= 0).sum())
    return f"{moved} of {credited} matches differ, credits by {far:.0e}"


def compare(table: StepTable, source: str, cache: Path) -> None:
    """Prints what each way of scoring costs, and whether its credit is that of the naive way."""
    scorer = bge.Scorer(source, device="cpu")
    baseline = 0
    for name, by_length in (("pair by pair", False), ("sorted within a matrix", True)):
        read, padded, began = scorer.tokens_read, scorer.tokens_padded, time.perf_counter()
        scores = pair_by_pair(table, SCPO(), scorer, by_length)
        seconds, read = time.perf_counter() - began, scorer.tokens_read - read
        computed = read + scorer.tokens_padded - padded
        baseline = baseline or computed
        print(_line(name, read, computed, baseline, seconds))
    theta = float(np.quantile(list(scores.values()), 0.9))
    for order in ("similarity_desc", "chronological"):
        for identical in bge.IDENTICAL:
            stage = SCPO(theta=theta, lam=theta, order=order)
            whole = shape(table, stage, Remembered(scores, identical == "one"))
            for name in (f"{order}, identical: {identical}", "    again, from the file"):
                # a new scorer each time: the file is all that they share
                reranker = bge.Scorer(source, device="cpu", identical=identical)
                result = shape(table, stage, around_model(reranker, cache=str(cache)))
                got = result.metrics
                computed = got["tokens_scored"] + got["tokens_padding"]
                line = _line(name, got["tokens_scored"], computed, baseline, got["scorer_seconds"])
                print(f"{line}  {difference(whole, result)}")
                saved = {key.rpartition("_")[2]: got[key] for key in got if key.startswith("tokens_saved")}
                print("    saved: " + ", ".join(f"{cause} {count:,.0f}" for cause, count in saved.items()))
            cache.unlink()


def _line(name: str, read: float, computed: float, baseline: float, seconds: float) -> str:
    ratio = f"{baseline / computed:.1f}" if computed else "-"
    return f"{name:<40}{read:>11,.0f}{computed:>11,.0f}{ratio:>7}{seconds:>9.1f}"


def main(argv: Sequence[str] | None = None) -> None:
    """Prints one line per way of scoring."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--groups", type=int, default=6)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    logging.disable_progress_bar()
    table = rollouts(options.groups, options.steps, options.seed)
    lost = 1 - table.success[table.t == 0].mean()
    print(f"{options.groups} groups of {GROUP}, {len(table)} steps, {lost:.0%} of trajectories failed")
    print(f"{'':<40}{'read':>11}{'computed':>11}{'ratio':>7}{'seconds':>9}  credit against pair by pair")
    with tempfile.TemporaryDirectory() as folder:
        stage = SCPO()
        texts = step_texts(table, stage.step_text, stage.max_pair_len).tolist()
        source = write_reranker(Path(folder) / "model", texts)
        bge.load = load_reranker
        compare(table, str(source), Path(folder) / "scores.sqlite")


if __name__ == "__main__":
    main()
