"""Speed of an update: input tokens per second through forward, backward and the optimiser.

    python -m bench.training [--rows 32] [--threads 2]

A random model of the embedded policy's size. A row is a trajectory of 4 to 30 steps in the append form: a
prompt of 150 tokens, then 6 to 11 sampled tokens and 18 of observation a step. Compared are the learner, the
learner when half the rows have no advantage, and the plain loop one would write first (rows padded to the
longest, logits and log-softmax of every position). Tokens per CPU second are the figure to compare on a
machine that does other work.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence

import numpy as np
import torch
from transformers import Qwen2ForCausalLM

from bench.generation import VOCAB, make_model
from rl.learner.engine import OptimOptions
from rl.learner.fused import compile_layers
from rl.learner.learner import BatchOptions, Learner
from rl.learner.loss import LossOptions
from rl.learner.schedule import LearningRate
from rl.learner.torch_engine import TorchEngine
from rl.rows.assemble import TokenRow

BATCH = 8


def make_rows(count: int) -> list[TokenRow]:
    """Draws rows; every step is under the loss."""
    rng = np.random.default_rng(0)
    rows: list[TokenRow] = []
    step_row = 0
    for number in range(count):
        ids = rng.integers(0, VOCAB, 150).tolist()
        spans = []
        for _ in range(int(rng.integers(4, 31))):
            length = int(rng.integers(6, 12))
            spans.append((len(ids), len(ids) + length, step_row))
            ids += rng.integers(0, VOCAB, length + 18).tolist()
            step_row += 1
        logps = np.full(sum(end - start for start, end, _ in spans), -np.log(VOCAB), dtype=np.float32)
        rows.append(TokenRow(np.array(ids, dtype=np.int32), tuple(spans), logps, number))
    return rows


def learner_update(
    rows: Sequence[TokenRow], budget: int, zero: float, compiled: bool = False
) -> tuple[float, float, float]:
    """Updates once with the learner; returns (tokens trained on, seconds, CPU seconds)."""
    model = make_model()
    if compiled:  # by the first update, which is not timed
        compile_layers(model)
    learner = Learner(
        TorchEngine(model, OptimOptions()),
        loss=LossOptions(),
        batches=BatchOptions(token_budget=budget),
        lr=LearningRate(1e-5),
        temperature=1.0,
        seed=0,
    )
    advantage = np.random.default_rng(1).normal(size=rows[-1].spans[-1][2] + 1)
    for row in rows[: int(zero * len(rows))]:
        advantage[[step_row for _, _, step_row in row.spans]] = 0.0
    learner.update(rows[-2:], advantage, update=1)
    return _timed(lambda: learner.update(rows, advantage, update=2), rows)


def plain_update(rows: Sequence[TokenRow]) -> tuple[float, float, float]:
    """The same update by a plain loop; returns as `learner_update`."""
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)

    def update() -> None:
        for first in range(0, len(rows), BATCH):
            _plain_backward(model, rows[first : first + BATCH])
        optimizer.step()
        optimizer.zero_grad()

    _plain_backward(model, rows[:1])
    return _timed(update, rows)


def _plain_backward(model: Qwen2ForCausalLM, rows: Sequence[TokenRow]) -> None:
    width = max(len(row.ids) for row in rows)
    ids_BL = torch.zeros(len(rows), width, dtype=torch.long)
    mask_BL, trained_BL = torch.zeros_like(ids_BL), torch.zeros(len(rows), width)
    for b, row in enumerate(rows):
        ids_BL[b, : len(row.ids)] = torch.from_numpy(row.ids)
        mask_BL[b, : len(row.ids)] = 1
        for start, end, _ in row.spans:
            trained_BL[b, start:end] = 1.0
    logits_BLV = model(input_ids=ids_BL, attention_mask=mask_BL).logits[:, :-1]
    logp_BL = logits_BLV.log_softmax(-1).gather(-1, ids_BL[:, 1:, None]).squeeze(-1)
    ratio_BL = (logp_BL + np.log(VOCAB)).exp()
    loss_BL = torch.maximum(-ratio_BL, -ratio_BL.clamp(0.8, 1.2))
    (loss_BL * trained_BL[:, 1:]).sum().backward()


def _timed(call: Callable[[], object], rows: Sequence[TokenRow]) -> tuple[float, float, float]:
    began, cpu_began = time.perf_counter(), time.process_time()
    call()
    tokens = float(sum(len(row.ids) for row in rows))
    return tokens, time.perf_counter() - began, time.process_time() - cpu_began


def main() -> None:
    """Prints one line per variant."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows = make_rows(options.rows)
    variants = {
        **{f"learner, budget {b}": (lambda b=b: learner_update(rows, b, 0.0)) for b in (4096, 16384)},
        "learner, layers compiled": lambda: learner_update(rows, 16384, 0.0, compiled=True),
        "learner, half without advantage": lambda: learner_update(rows, 16384, 0.5),
        f"plain loop, {BATCH} rows per batch": lambda: plain_update(rows),
    }
    print(f"{'':<34}{'tokens':>8}{'tokens/s':>10}{'tokens/CPU s':>14}")
    for name, run in variants.items():
        tokens, seconds, cpu = run()
        print(f"{name:<34}{tokens:>8.0f}{tokens / seconds:>10.0f}{tokens / cpu:>14.0f}", flush=True)


if __name__ == "__main__":
    main()
