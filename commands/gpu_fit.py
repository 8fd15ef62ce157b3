"""`run.py plan`: whether a configuration fits its accelerators, from the model's configuration alone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path

from rich.console import Console
from rich.table import Table

from commands import gpu_tune
from commands.build.models import ROOT
from commands.build.terminal import open_console
from commands.gpu_cards import CARDS
from commands.gpu_memory import GIB, Memory, memory_of, training_of
from commands.gpu_models import model_shape
from commands.gpu_time import Lengths, phases
from configs.load import Loaded, load
from configs.schema import Config
from configs.text import ConfigError
from rl.learner.memory import training_state

EVIDENCE = ROOT / "docs" / "gpu_evidence.md"
COUNTS = (1, 2, 4, 8, 16, 32)
"""Ranks that are tried where none are named."""


def run(
    experiment: str,
    overrides: Sequence[str],
    *,
    gpus: int | None,
    memory: float,
    lengths: Lengths,
    markdown: bool = False,
    tune: bool = False,
    card: str = "h100",
) -> bool:
    """Prints the memory table, or writes it into docs/gpu_evidence.md; returns whether everything fits.

    Args:
        experiment: As in `train`.
        overrides: As in `train`.
        gpus: Ranks; None: the fewest of `COUNTS` that fit.
        memory: GiB of each accelerator.
        lengths: Of trajectories.
        markdown: Write into docs/gpu_evidence.md instead.
        tune: Print the fastest setting that fits instead.
        card: Whose speed is counted with, of `CARDS`.

    Raises:
        ConfigError: There is no such model, or the options cannot run together.
    """
    loaded = load(experiment, overrides)
    budget = int(memory * GIB)
    ranks = gpus or _fewest(loaded, budget)
    _check(loaded)
    if tune:
        return _tune(loaded, ranks, budget, card, lengths, [experiment, *overrides])
    found = memory_of(loaded, ranks, budget)
    hints = [] if found.fits else would_fit(experiment, overrides, ranks, budget)
    if markdown:
        _write(loaded.config.name, _markdown(loaded, found, ranks, lengths, hints))
    else:
        _print(loaded, found, ranks, lengths, hints)
    return found.fits


def _tune(loaded: Loaded, ranks: int, budget: int, card: str, lengths: Lengths, words: Sequence[str]) -> bool:
    found = gpu_tune.settings(loaded, ranks, budget, CARDS[card], lengths)
    console: Console = open_console()
    if not found:
        console.print(
            f"no setting fits {ranks} × {budget / GIB:g} GiB with {gpu_tune.SPARE:.0%} to spare: use more "
            "--gpus, model.lora.r=64, or a lower prompt.window",
            style="bold red",
        )
        return False
    console.print(f"{loaded.config.name} on {ranks} × {card}, {budget / GIB:g} GiB: the fastest that fits")
    gpu_tune.show(console, loaded, found, ranks, CARDS[card], words)
    return True


def _fewest(loaded: Loaded, budget: int) -> int:
    """The fewest ranks with which it fits; one, if it fits with none of `COUNTS`."""
    return next((n for n in COUNTS if memory_of(loaded, n, budget).fits), COUNTS[0])


def _check(loaded: Loaded) -> None:
    config = loaded.config
    window = model_shape(config.model.path).window
    if window is not None and config.prompt.window > window:
        raise ConfigError(
            f"prompt.window={config.prompt.window}, but the model reads at most {window} tokens: lower it"
        )


def would_fit(experiment: str, overrides: Sequence[str], ranks: int, budget: int) -> list[str]:
    """Returns the changes that make it fit: single ones, else pairs, else none; `--gpus` is a change too.

    Of several values of one option only the mildest is named.
    """
    changes = _changes(load(experiment, overrides).config, ranks)
    for size in (1, 2):
        found: dict[frozenset[str], str] = {}
        for chosen in combinations(changes, size):
            options = frozenset(re.split("[ =]", change)[0] for change in chosen)
            if len(options) < size or options in found:
                continue
            words = [word for change in chosen if not change.startswith("--gpus") for word in change.split()]
            if "train.reference=cpu" in words and "model.lora.r=64" in words:
                continue  # with adapters there is no copy to move
            counts = [int(change.split()[1]) for change in chosen if change.startswith("--gpus")]
            loaded = load(experiment, [*overrides, *words])
            if memory_of(loaded, counts[0] if counts else ranks, budget).fits:
                found[options] = " ".join(chosen)
        if found:
            return list(found.values())
    return []


def _changes(config: Config, ranks: int) -> list[str]:
    train, model = config.train, config.model
    changes = []
    if train.engine == "deepspeed":
        changes += [f"--gpus {n}" for n in (2 * ranks, 4 * ranks)]
        changes += [f"train.zero_stage={n}" for n in (2, 3) if n > train.zero_stage]
        changes += [] if train.offload else ["train.offload=true"]
        changes += [] if train.reference == "cpu" or model.lora.r else ["train.reference=cpu"]
    changes += [] if model.gradient_checkpointing else ["model.gradient_checkpointing=true"]
    longest = max(config.prompt.window, 64)
    changes += [f"train.token_budget={n}" for n in (8192, 4096) if longest <= n < train.token_budget]
    if config.generator.backend == "vllm":
        changes += [f"generator.memory={m}" for m in (0.45, 0.35, 0.25, 0.15) if m < config.generator.memory]
    adapters = "model.lora.r=64" + (" train.reference=gpu" if train.reference == "cpu" else "")
    return changes if model.lora.r else [*changes, adapters]


def _facts(loaded: Loaded, found: Memory, ranks: int, lengths: Lengths) -> list[tuple[str, str]]:
    """The lines below the table: name and text."""
    config = loaded.config
    shape, training = model_shape(config.model.path), training_of(config, ranks)
    b, psi, trained = training.b, shape.parameters, training.trained(shape)
    # Merged weights; adapters, or DeepSpeed's copy of what is trained; the optimiser's state of all ranks.
    copied = 4 if training.r else 0 if training.stage is None else b
    kept = training_state(shape, replace(training, ranks=1, offload=False)).optimizer
    saved = b * psi + copied * trained + kept
    facts = [
        ("parameters", f"{psi / 1e6:,.0f} M" + (f", {trained / 1e6:,.1f} M trained" if training.r else ""))
    ]
    if found.sequences is not None:
        waiting = "" if found.sequences >= found.in_flight else ", the others wait"
        text = (
            f"{shape.kv_bytes(b):,} bytes of keys and values per token, {found.cache / GIB:.1f} GiB: "
            f"{found.sequences} rows of {config.prompt.window} tokens at once; "
            f"{found.in_flight} trajectories in flight per generator{waiting}"
        )
        facts.append(("generator", text))
    facts += [
        ("an update", _tokens(loaded, found, ranks, lengths)),
        ("a checkpoint", _checkpoints(config, saved)),
        ("weights sent", f"{b * psi / GIB:.2f} GiB to every generator, after every update"),
    ]
    if found.host:
        facts.append(("main memory", f"{found.host / GIB:.1f} GiB per rank for what is moved there"))
    return facts


def _checkpoints(config: Config, saved: int) -> str:
    """A new checkpoint is written beside those kept, and the best one may be older than all of them."""
    keep, best = config.checkpoint.keep, bool(config.checkpoint.keep_best)
    text = f"{saved / GIB:.1f} GiB, {keep} are kept{', and the best' if best else ''}"
    return f"{text}: {(keep + 1 + best) * saved / GIB:.1f} GiB of disk while one is written"


def _tokens(loaded: Loaded, found: Memory, ranks: int, lengths: Lengths) -> str:
    """Says how many tokens an update takes, and how many operations of the learner's."""
    config = loaded.config
    steps, prompt, response = lengths.assumed(config)
    turns = config.trajectories * steps
    learning = ("reference", "old log-probs", "update")
    work = phases(loaded, found, ranks, lengths)
    operations = sum(phase.operations for phase in work if phase.name in learning)
    known = all((lengths.steps, lengths.prompt, lengths.response))
    return (
        f"{config.trajectories} trajectories × {steps:g} steps × ({prompt:,.0f} prompt + {response:,.0f} "
        f"response tokens){'' if known else ' (assumed)'} = {turns * (prompt + response) / 1e6:.1f} M tokens "
        f"read, {turns * response / 1e6:.2f} M sampled; "
        f"learner {operations / 1e15:.1f}e15 operations per rank"
    )


def _verdict(found: Memory, hints: Sequence[str]) -> list[str]:
    top = max(found.totals)
    if found.fits:
        lines = [f"fits: {top / GIB:.1f} of {found.budget / GIB:g} GiB"]
        if top > 0.95 * found.budget:
            lines.append(
                "with less than 5 % to spare: a lower train.token_budget or generator.memory is safer"
            )
        return lines
    lines = [f"does not fit: {top / GIB:.1f} of {found.budget / GIB:g} GiB"]
    if found.sequences == 0:
        lines = ["does not fit: vLLM has no room for one row: raise generator.memory or lower prompt.window"]
    return [*lines, *(["it would with any of: " + " | ".join(hints)] if hints else [])]


def _rows(found: Memory) -> list[tuple[str, ...]]:
    parts = [
        (
            part.name,
            *(
                f"{n / GIB:.1f}" if n else ""
                for n in (part.backward, part.step, part.scoring, part.generating)
            ),
            part.how,
        )
        for part in found.parts
    ]
    training, step, generating, scoring = (f"{n / GIB:.1f}" for n in found.totals)
    return [*parts, ("total", training, step, scoring, generating, f"of {found.budget / GIB:g}")]


_COLUMNS = ("GiB per GPU", "training", "its step", "scoring", "generating", "")


def _title(loaded: Loaded, found: Memory, ranks: int) -> str:
    return f"{loaded.config.name} on {ranks} × {found.budget / GIB:g} GiB"


def _print(loaded: Loaded, found: Memory, ranks: int, lengths: Lengths, hints: Sequence[str]) -> None:
    console: Console = open_console()
    table = Table(*_COLUMNS, title=_title(loaded, found, ranks), title_justify="left")
    for column in table.columns[1:5]:
        column.justify = "right"
    rows = _rows(found)
    for row in rows:
        table.add_row(*row, end_section=row is rows[-2], style="bold" if row is rows[-1] else None)
    console.print(table)
    for name, text in _facts(loaded, found, ranks, lengths):
        console.print(f"{name}: {text}")
    first, *others = _verdict(found, hints)
    console.print(first, style="bold green" if found.fits else "bold red")
    for line in others:
        console.print(line)


def _markdown(loaded: Loaded, found: Memory, ranks: int, lengths: Lengths, hints: Sequence[str]) -> str:
    rows = [_COLUMNS, ("---", *["---:"] * 4, "---"), *_rows(found)]
    lines = [f"**{_title(loaded, found, ranks)}**", ""]
    lines += [f"| {' | '.join(row)} |" for row in rows] + [""]
    lines += [f"- {name}: {text}" for name, text in _facts(loaded, found, ranks, lengths)]
    return "\n".join([*lines, *(f"- {line}" for line in _verdict(found, hints))])


def _write(name: str, text: str, path: Path = EVIDENCE) -> None:
    """Puts `text` between the markers of `name`.

    Raises:
        ConfigError: There are none.
    """
    page = path.read_text(encoding="utf-8")
    block = re.compile(rf"(<!-- plan {re.escape(name)} -->\n).*?(<!-- /plan -->)", re.DOTALL)
    if not block.search(page):
        raise ConfigError(f"{path} has no block <!-- plan {name} --> … <!-- /plan -->: add one first")
    path.write_text(block.sub(lambda match: f"{match[1]}{text}\n{match[2]}", page), encoding="utf-8")
