"""A model of the cluster: seconds of an update by phase on 2, 4 and 8 cards, and what a published run took.

    python -m bench.cluster

Nothing is run: `commands.gpu_time` counts operations, bytes and rounds, `commands.gpu_cards` turns them into
seconds. The tables go between `<!-- cluster -->` and `<!-- /cluster -->` of docs/gpu.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from commands import gpu_cards, gpu_time, gpu_tune
from commands.gpu_cards import CARDS, MFU, Phase
from commands.gpu_memory import GIB, memory_of
from commands.gpu_time import Lengths, phases
from configs.load import load

PAGE = Path(__file__).resolve().parent.parent / "docs" / "gpu.md"
BLOCK = re.compile(r"(<!-- cluster -->\n).*?(<!-- /cluster -->)", re.DOTALL)
SLOW = 0.10
"""The MFU that the published run below had, by its own tokens."""
COUNTS = (2, 4, 8)
NAMES = ("generation", "scorer", "reference", "update", "between cards", "optimiser", "transfer")

PUBLISHED = {"generation": 424.643, "old log-probs": 179.292, "reference": 175.364, "update": 773.553}
"""Seconds, ZJU-REAL/SDAR issue 51: Qwen2.5-3B on 4 A100 80G, its first step."""
PUBLISHED_TOKENS = 3_830_959
"""`perf/total_num_tokens` of that step."""
AS_PUBLISHED = (
    "model.path=Qwen/Qwen2.5-3B-Instruct",
    "model.gradient_checkpointing=true",
    "credit=grpo",
    "scorer.name=lexical",
    "train.mismatch=recompute",
    "train.minibatch_rows=64",
    "train.zero_stage=3",
    "train.token_budget=9576",
    "train.reference=cpu",
    "generator.memory=0.45",
)
"""Its settings, as far as this project has them: 8 rows a card and micro-batch, weights sharded (FSDP), the
reference's in main memory."""


def cluster(name: str, card: str) -> Iterator[str]:
    """Yields a row of the table for each of `COUNTS`: the fastest setting that fits."""
    loaded = load(name)
    for ranks in COUNTS:
        budget = int(CARDS[card].memory * GIB)
        found = gpu_tune.settings(loaded, ranks, budget, CARDS[card], Lengths())
        if not found:
            yield f"| {name} | {ranks} × {card} | {' | '.join('–' for _ in NAMES)} | does not fit | | |"
            continue
        work = {phase.name: phase for phase in found[0].phases}
        seconds = [work[phase].seconds(CARDS[card]) for phase in NAMES]
        slow = sum(phase.seconds(CARDS[card], SLOW) for phase in work.values())
        cells = " | ".join(f"{value:.1f}" for value in seconds)
        changes = " ".join(gpu_tune.departures(loaded, found[0].options)) or "as it is"
        yield f"| {name} | {ranks} × {card} | {cells} | **{sum(seconds):.0f}** | {slow:.0f} | {changes} |"


def published() -> dict[str, Phase]:
    """What the published run would do by this project's count, phase by phase."""
    loaded = load("alfworld_1.5b", AS_PUBLISHED)
    steps, _, response = Lengths().assumed(loaded.config)
    prompt = PUBLISHED_TOKENS / (loaded.config.trajectories * steps) - response
    memory = memory_of(loaded, 4, int(CARDS["a100"].memory * GIB))
    work = phases(loaded, memory, 4, Lengths(steps, prompt, response))
    return {phase.name: phase for phase in work}


def against_published() -> Iterator[str]:
    """Yields the rows of the comparison."""
    work, card = published(), CARDS["a100"]
    for name, measured in PUBLISHED.items():
        parts = [work[name], *([work["between cards"], work["optimiser"]] if name == "update" else [])]
        usual, slow = (sum(part.seconds(card, mfu) for part in parts) for mfu in (MFU, SLOW))
        yield f"| {name} | {measured:.0f} | {usual:.0f} | {measured / usual:.1f} | {slow:.0f} |"


def assumptions() -> Iterator[str]:
    """Yields a line of every constant with its meaning."""
    for module in (gpu_cards, gpu_time):
        text = Path(module.__file__).read_text(encoding="utf-8")
        for name, value, meaning in re.findall(
            r'^([A-Z_]+) = ([\d.e]+)\n"""(.*?)"""', text, re.M | re.DOTALL
        ):
            yield f"- `{name} = {value}`: {' '.join(meaning.split())}"


def made() -> str:
    """Returns the block of docs/gpu.md."""
    lines = [f"| preset | cards | {' | '.join(NAMES)} | update, s | at {SLOW:.0%} MFU | setting |"]
    lines.append("| --- | --- |" + " ---: |" * (len(NAMES) + 2) + " --- |")
    lines += [
        row for name in ("alfworld_1.5b", "alfworld_7b") for card in CARDS for row in cluster(name, card)
    ]
    lines += ["", *assumptions(), ""]
    lines.append(
        f"| 3B, 4 × A100 | published, s | model, {MFU:.0%} MFU | published / model | {SLOW:.0%} MFU |"
    )
    lines += ["| --- | ---: | ---: | ---: | ---: |", *against_published()]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Writes the tables."""
    page = PAGE.read_text(encoding="utf-8")
    if not BLOCK.search(page):
        raise SystemExit(
            f"{PAGE.name} has no <!-- cluster --> … <!-- /cluster -->: put them where it should go"
        )
    PAGE.write_text(BLOCK.sub(lambda found: found[1] + made() + found[2], page), encoding="utf-8")


if __name__ == "__main__":
    main()
