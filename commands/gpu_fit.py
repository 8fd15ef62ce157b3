"""`run.py plan`: whether a configuration fits its accelerators, from the model's configuration alone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

from rich.console import Console
from rich.table import Table

from commands.build.models import ROOT
from commands.build.terminal import open_console
from commands.gpu_memory import GIB, Memory, memory_of, model_shape, training_of
from configs.load import Loaded, load
from configs.schema import Config
from configs.text import ConfigError
from rl.learner.memory import training_state

GPUS = ROOT / "docs" / "gpu.md"
COUNTS = (1, 2, 4, 8, 16, 32)
"""Ranks that are tried where none are named."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """Lengths of a trajectory, from which tokens are counted; where None, `assumed` fills in.

    Attributes:
        steps: Mean steps.
        prompt: Mean prompt tokens per step (append form: tokens that a step adds).
        response: Mean response tokens per step.
    """

    steps: float | None = None
    prompt: float | None = None
    response: float | None = None

    def assumed(self, config: Config) -> tuple[float, float, float]:
        """Returns steps, prompt and response tokens: half the step limit, half the longest prompt, a quarter
        of the longest response.

        In the append form all steps share one row, taken to fill half the window: what the responses leave
        of it, divided by the steps, is the prompt of each.
        """
        steps = self.steps or config.env.max_steps / 2
        response = self.response or config.prompt.max_response_tokens / 4
        room = config.prompt.window - config.prompt.max_response_tokens
        added = max(1.0, config.prompt.window / 2 / steps - response)
        return steps, self.prompt or (room / 2 if config.prompt.form == "stepwise" else added), response


def run(
    experiment: str,
    overrides: Sequence[str],
    *,
    gpus: int | None,
    memory: float,
    lengths: Lengths,
    markdown: bool = False,
) -> bool:
    """Prints the memory table, or writes it into docs/gpu.md; returns whether everything fits.

    Args:
        experiment: As in `train`.
        overrides: As in `train`.
        gpus: Ranks; None: the fewest of `COUNTS` that fit.
        memory: GiB of each accelerator.
        lengths: Of trajectories.
        markdown: Write into docs/gpu.md instead.

    Raises:
        ConfigError: There is no such model, or the options cannot run together.
    """
    loaded = load(experiment, overrides)
    budget = int(memory * GIB)
    ranks = gpus or _fewest(loaded, budget)
    _check(loaded, ranks)
    found = memory_of(loaded, ranks, budget)
    hints = [] if found.fits else would_fit(experiment, overrides, ranks, budget)
    if markdown:
        _write(loaded.config.name, _markdown(loaded, found, ranks, lengths, hints))
    else:
        _print(loaded, found, ranks, lengths, hints)
    return found.fits


def _fewest(loaded: Loaded, budget: int) -> int:
    """The fewest ranks with which it fits; one, if it fits with none of `COUNTS`."""
    counts = COUNTS if loaded.config.train.engine == "deepspeed" else COUNTS[:1]
    return next((n for n in counts if memory_of(loaded, n, budget).fits), counts[0])


def _check(loaded: Loaded, ranks: int) -> None:
    config = loaded.config
    if config.train.engine == "torch" and ranks > 1:
        raise ConfigError(f"train.engine=torch trains in one process, got --gpus {ranks}: use deepspeed")
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
            words = [change for change in chosen if not change.startswith("--gpus")]
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
    changes += [] if model.gradient_checkpointing else ["model.gradient_checkpointing=true"]
    longest = max(config.prompt.window, 64)
    changes += [f"train.token_budget={n}" for n in (8192, 4096) if longest <= n < train.token_budget]
    if config.generator.backend == "vllm":
        changes += [f"generator.memory={m}" for m in (0.45, 0.35, 0.25, 0.15) if m < config.generator.memory]
    return changes if model.lora.r else [*changes, "model.lora.r=64"]


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
            f"{found.in_flight} trajectories in flight per rank{waiting}"
        )
        facts.append(("generator", text))
    best = ", and the best" if config.checkpoint.keep_best else ""
    facts += [
        ("an update", _tokens(config, psi, ranks, lengths)),
        ("a checkpoint", f"{saved / GIB:.1f} GiB, {config.checkpoint.keep} are kept{best}"),
        ("weights sent", f"{b * psi / GIB:.2f} GiB to every generator, after every update"),
    ]
    if found.host:
        facts.append(("main memory", f"{found.host / GIB:.1f} GiB per rank for the optimiser"))
    return facts


def _tokens(config: Config, parameters: int, ranks: int, lengths: Lengths) -> str:
    """Says how many tokens and operations an update takes.

    A forward pass is 2 Ψ operations per token, a backward pass 4 Ψ (Kaplan et al. 2020, arXiv 2001.08361,
    §2.1; attention is not counted); checkpointing, the reference and a mismatch correction each add a
    forward pass. A row of the append form is read once;
    step-wise, every step is a row of its own.
    """
    steps, prompt, response = lengths.assumed(config)
    turns = config.trajectories * steps
    read = turns * (prompt + response)
    train = config.train
    more = (config.model.gradient_checkpointing, train.kl_coef > 0, train.mismatch != "off")
    operations = (6 + 2 * sum(more)) * parameters * read / ranks
    known = all((lengths.steps, lengths.prompt, lengths.response))
    return (
        f"{config.trajectories} trajectories × {steps:g} steps × ({prompt:,.0f} prompt + {response:,.0f} "
        f"response tokens){'' if known else ' (assumed)'} = {read / 1e6:.1f} M tokens read, "
        f"{turns * response / 1e6:.2f} M sampled; learner {operations / 1e15:.1f}e15 operations per rank"
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


def _rows(found: Memory) -> list[tuple[str, str, str, str, str]]:
    parts = [
        (
            part.name,
            *(f"{n / GIB:.1f}" if n else "" for n in (part.backward, part.step, part.generating)),
            part.how,
        )
        for part in found.parts
    ]
    return [*parts, ("total", *(f"{n / GIB:.1f}" for n in found.totals), f"of {found.budget / GIB:g}")]


_COLUMNS = ("GiB per GPU", "training", "its step", "generating", "")


def _title(loaded: Loaded, found: Memory, ranks: int) -> str:
    return f"{loaded.config.name} on {ranks} × {found.budget / GIB:g} GiB"


def _print(loaded: Loaded, found: Memory, ranks: int, lengths: Lengths, hints: Sequence[str]) -> None:
    console: Console = open_console()
    table = Table(*_COLUMNS, title=_title(loaded, found, ranks), title_justify="left")
    for column in table.columns[1:4]:
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
    rows = [_COLUMNS, ("---", "---:", "---:", "---:", "---"), *_rows(found)]
    lines = [f"**{_title(loaded, found, ranks)}**", ""]
    lines += [f"| {' | '.join(row)} |" for row in rows] + [""]
    lines += [f"- {name}: {text}" for name, text in _facts(loaded, found, ranks, lengths)]
    return "\n".join([*lines, *(f"- {line}" for line in _verdict(found, hints))])


def _write(name: str, text: str, path: Path = GPUS) -> None:
    """Puts `text` between the markers of `name`.

    Raises:
        ConfigError: There are none.
    """
    page = path.read_text(encoding="utf-8")
    block = re.compile(rf"(<!-- plan {re.escape(name)} -->\n).*?(<!-- /plan -->)", re.DOTALL)
    if not block.search(page):
        raise ConfigError(f"{path} has no block <!-- plan {name} --> … <!-- /plan -->: add one first")
    path.write_text(block.sub(lambda match: f"{match[1]}{text}\n{match[2]}", page), encoding="utf-8")
