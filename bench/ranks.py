"""Does the number of processes change what is learned? The learner on 1, 2 and 4 ranks against one process.

    python -m bench.ranks [--ranks 1 2 4]

Each case is five updates of a small model; the plain torch engine in one process is the truth.
Said are the largest difference of an update's loss, of a weight after the last update, and the distance of
the weights as a share of the way they went. The table goes between `<!-- ranks -->` and `<!-- /ranks -->` of
docs/gpu_evidence.md.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import re
import socket
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import Empty
from typing import Any, TypeVar

import numpy as np
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from rl.learner.engine import OptimOptions
from rl.learner.learner import BatchOptions, Learner
from rl.learner.lora import LoraOptions, add_adapters
from rl.learner.loss import LossOptions
from rl.learner.schedule import LearningRate
from rl.learner.torch_engine import TorchEngine
from rl.rows.assemble import TokenRow

PAGE = Path(__file__).resolve().parent.parent / "docs" / "gpu_evidence.md"
BLOCK = re.compile(r"(<!-- ranks -->\n).*?(<!-- /ranks -->)", re.DOTALL)
VOCAB = 64
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Case:
    """One way to train.

    Attributes:
        stage: ZeRO stage; None is the torch engine.
        lora: Whether only adapters are trained.
        dtype: Of the weights.
        budget: Tokens per micro-batch: 120 gives 7 of them an optimiser step, 4096 one.
        offload: Whether the optimiser's state lies in main memory.
        updates: How many, two optimiser steps each.
    """

    stage: int | None
    lora: bool = False
    dtype: str = "float32"
    budget: int = 120
    offload: bool = False
    updates: int = 5


@dataclass(frozen=True, slots=True)
class Trained:
    """Loss of every update, and the weights after the last, merged."""

    losses: list[float]
    weights: dict[str, np.ndarray]


def make_model(dtype: str = "float32") -> Qwen2ForCausalLM:
    """The same small model every time: 2 layers, tied embeddings, peaked distributions."""
    config = Qwen2Config(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        initializer_range=0.2,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=None,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Qwen2ForCausalLM(config).eval().to(getattr(torch, dtype))


def make_rows(count: int = 13) -> list[TokenRow]:
    """Rows of 20 to 60 tokens; their number divides by no number of ranks."""
    rng = np.random.default_rng(0)
    rows, step_row = [], 0
    for number in range(count):
        ids = rng.integers(0, VOCAB, rng.integers(20, 60)).astype(np.int32)
        middle = len(ids) // 2
        spans = ((5, middle - 2, step_row), (middle, len(ids), step_row + 1))
        step_row += 2
        length = sum(end - start for start, end, _ in spans)
        rows.append(TokenRow(ids, spans, np.full(length, -np.log(VOCAB), dtype=np.float32), number))
    return rows


def make_learner(case: Case) -> Learner:
    """The learner of a case; under a launcher's environment it joins the other ranks."""
    cuda = torch.cuda.is_available()
    model = make_model(case.dtype).to(torch.device("cuda", torch.cuda.current_device()) if cuda else "cpu")
    if case.lora:
        add_adapters(model, LoraOptions(r=4, alpha=8.0))
    options = OptimOptions(grad_clip=0.5)
    if case.stage is None:
        engine: Any = TorchEngine(model, options)
    else:
        from rl.learner.deepspeed_engine import DeepSpeedEngine

        engine = DeepSpeedEngine(model, options, zero_stage=case.stage, offload=case.offload, timeout_s=120.0)
    return Learner(
        engine,
        loss=LossOptions(entropy_coef=0.01),
        batches=BatchOptions(minibatches=2, token_budget=case.budget),
        lr=LearningRate(1e-3),
        temperature=1.0,
        seed=0,
    )


def make_update(learner: Learner, update: int) -> float:
    """One update on rows that are scored with the weights of now; returns the loss."""
    rows = make_rows()
    advantage = np.random.default_rng(update).normal(size=rows[-1].spans[-1][2] + 1)
    return learner.update(rows, advantage, update=update)["train/loss"]


def weights_of(learner: Learner) -> dict[str, np.ndarray]:
    """Copies of the weights, merged, as float32."""
    return {name: tensor.float().cpu().numpy().copy() for name, tensor in learner.named_weights()}


def train_case(case: Case) -> Trained:
    """Trains one case from the beginning."""
    learner = make_learner(case)
    losses = [make_update(learner, update) for update in range(1, case.updates + 1)]
    return Trained(losses, weights_of(learner))


def train_cases(cases: Sequence[Case]) -> list[Trained]:
    """Trains cases one after the other."""
    return [train_case(case) for case in cases]


def on_ranks(
    ranks: int, work: Callable[..., Result], *args: object, timeout_s: float = 900.0
) -> list[Result]:
    """Runs `work(*args)` in as many new processes, joined as a launcher would, and returns all results.

    Raises:
        RuntimeError: one of them failed, with its traceback, or did not end well after its result.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    processes = [
        context.Process(target=_on_rank, args=(results, rank, ranks, port, work, args), daemon=True)
        for rank in range(ranks)
    ]
    for process in processes:
        process.start()
    answers: dict[int, Result] = {}
    try:
        for _ in processes:
            rank, answer, error = results.get(timeout=timeout_s)
            if error:
                raise RuntimeError(f"rank {rank} of {ranks}:\n{error}")
            answers[rank] = answer
        for process in processes:
            process.join(60)
        codes = [process.exitcode for process in processes]
        if any(code != 0 for code in codes):
            raise RuntimeError(f"{ranks} ranks gave their results, but ended with exit codes {codes}")
    except Empty as error:
        codes = [process.exitcode for process in processes]
        raise RuntimeError(
            f"{ranks} ranks were not done within {timeout_s:g} s; exit codes {codes}"
        ) from error
    finally:
        for process in processes:
            process.kill()
    return [answers[rank] for rank in range(ranks)]


def _on_rank(
    results: Any, rank: int, ranks: int, port: int, work: Callable[..., Any], args: Sequence[object]
) -> None:
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    torch.set_num_threads(1)
    try:
        results.put((rank, work(*args), ""))
    except BaseException:
        results.put((rank, None, traceback.format_exc()))


def differences(got: Trained, expected: Trained) -> tuple[float, float]:
    """Largest differences of a loss and of a weight."""
    losses = max(abs(a - b) for a, b in zip(got.losses, expected.losses, strict=True))
    weights = max(float(np.abs(got.weights[name] - value).max()) for name, value in expected.weights.items())
    return losses, weights


def drift(got: Trained, expected: Trained) -> float:
    """Distance between two ways' weights, as a share of how far the expected ones moved."""
    start = {name: weight.detach().numpy() for name, weight in make_model().named_parameters()}
    off = sum(float(((got.weights[name] - value) ** 2).sum()) for name, value in expected.weights.items())
    moved = sum(float(((value - start[name]) ** 2).sum()) for name, value in expected.weights.items())
    return (off / moved) ** 0.5


CASES = [
    *(Case(None, lora=lora, dtype=dtype) for dtype in ("float32", "bfloat16") for lora in (False, True)),
    *(Case(stage, lora=lora) for lora in (False, True) for stage in (1, 2, 3)),
    *(Case(stage, budget=4096) for stage in (1, 3)),
    *(Case(stage, offload=True) for stage in (1, 2, 3)),
    *(Case(stage, dtype="bfloat16", lora=lora) for lora in (False, True) for stage in (1, 2, 3)),
]


def truth(case: Case) -> Case:
    """The case whose result `case` must have: one process, no DeepSpeed.

    With all weights in bfloat16 the engines round gradients and their sums at other places, so neither is the
    other's truth: that is float32 throughout.
    """
    dtype = case.dtype if case.lora else "float32"
    return Case(None, lora=case.lora, dtype=dtype, updates=case.updates)


def table(rank_counts: Sequence[int], cases: Sequence[Case] = CASES) -> str:
    """Trains every case on every number of ranks; returns the Markdown table."""
    expected = {one: train_case(one) for one in {truth(case) for case in cases}}
    columns = [on_ranks(count, train_cases, cases) for count in rank_counts]
    head = ["case", *(f"{count} rank{'s' * (count > 1)}: loss, weight, drift" for count in rank_counts)]
    lines = [head, ["---"] * len(head)]
    for number, case in enumerate(cases):
        cells = []
        for column in columns:
            right = expected[truth(case)]
            every = [(*differences(answer[number], right), drift(answer[number], right)) for answer in column]
            cells.append(", ".join(f"{max(values):.1e}" for values in zip(*every, strict=True)))
        lines.append([_name(case), *cells])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _name(case: Case) -> str:
    engine = "torch" if case.stage is None else f"ZeRO-{case.stage}"
    parts = [engine, "adapters" if case.lora else "all weights"]
    parts += ["bfloat16"] * (case.dtype == "bfloat16") + ["offload"] * case.offload
    parts += ["one micro-batch"] * (case.budget >= 4096)
    return ", ".join(parts)


def main() -> None:
    """Writes the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4])
    made = table(parser.parse_args().ranks)
    print(made, end="")
    text = PAGE.read_text(encoding="utf-8") if PAGE.exists() else "<!-- ranks -->\n<!-- /ranks -->\n"
    if not BLOCK.search(text):
        raise SystemExit(f"{PAGE.name} has no <!-- ranks --> … <!-- /ranks -->: put them where it should go")
    PAGE.write_text(BLOCK.sub(lambda found: found[1] + made + found[2], text), encoding="utf-8")


if __name__ == "__main__":
    main()
