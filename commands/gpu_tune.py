"""The fastest setting that fits: every combination of the options that change memory and speed alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

from rich.console import Console
from rich.table import Table

from commands.gpu_cards import Card, Phase
from commands.gpu_memory import GIB, Memory, has_reference, memory_of, scored_columns
from commands.gpu_time import Lengths, phases
from configs.load import Loaded

SPARE = 0.05
"""Share of a card's memory that a setting must leave: several parts of the sum are assumed."""
BUDGETS = (4096, 8192, 16384, 32768)
SHARES = tuple(round(0.05 * n, 2) for n in range(2, 19))
NEXT = 5
"""How many more settings are shown."""

Options = dict[str, int | float | bool | str]


@dataclass(frozen=True, slots=True)
class Setting:
    """One combination that fits.

    Attributes:
        options: Option to value, all that were varied.
        memory: What it takes.
        phases: What it does.
        seconds: Of an update.
    """

    options: Options
    memory: Memory
    phases: tuple[Phase, ...]
    seconds: float

    @property
    def learner(self) -> tuple[object, ...]:
        """All but the generator's share of memory."""
        return tuple(value for name, value in self.options.items() if name != "generator.memory")


def choices(loaded: Loaded) -> Iterator[Options]:
    """Every combination worth a look; none changes what is learned beyond rounding."""
    config = loaded.config
    sharded = config.train.engine == "deepspeed"
    longest = max(config.prompt.window, 64)
    copied = has_reference(config, scored_columns(loaded)) and not config.model.lora.r
    varied: dict[str, Sequence[int | float | bool | str]] = {
        "train.token_budget": sorted({n for n in BUDGETS if n >= longest} | {config.train.token_budget}),
        "model.gradient_checkpointing": (False, True),
    }
    if sharded:
        varied |= {"train.zero_stage": (1, 2, 3), "train.offload": (False, True)}
    if copied:
        varied["train.reference"] = ("gpu", "cpu")
    if config.generator.backend == "vllm":
        varied["generator.memory"] = sorted({*SHARES, config.generator.memory})
    for values in product(*varied.values()):
        yield dict(zip(varied, values, strict=True))


def changed(loaded: Loaded, options: Options) -> Loaded:
    """Returns the configuration with `options` set; their values must be allowed."""
    config = loaded.config
    for path, value in options.items():
        section, name = path.split(".")
        part = getattr(config, section).model_copy(update={name: value})
        config = config.model_copy(update={section: part})
    return replace(loaded, config=config)


def settings(loaded: Loaded, ranks: int, budget: int, card: Card, lengths: Lengths) -> list[Setting]:
    """Returns all settings that fit with `SPARE` to spare, the fastest first.

    Of equally fast ones the one that changes least comes first, then the one that takes least memory.
    """
    found = []
    columns = scored_columns(loaded)
    for options in choices(loaded):
        varied = changed(loaded, options)
        memory = memory_of(varied, ranks, budget, columns)
        if not memory.fits or max(memory.totals) > (1 - SPARE) * budget:
            continue
        work = phases(varied, memory, ranks, lengths, columns)
        seconds = round(sum(phase.seconds(card) for phase in work), 3)
        found.append(Setting(options, memory, work, seconds))
    return sorted(found, key=lambda s: (s.seconds, len(departures(loaded, s.options)), max(s.memory.totals)))


def departures(loaded: Loaded, options: Options) -> list[str]:
    """Returns `key=value` for those of `options` that differ from the configuration."""
    now = {path: getattr(getattr(loaded.config, path.split(".")[0]), path.split(".")[1]) for path in options}
    return [
        f"{path}={str(value).lower() if isinstance(value, bool) else value}"
        for path, value in options.items()
        if value != now[path]
    ]


def command(loaded: Loaded, setting: Setting, ranks: int, words: Sequence[str]) -> str:
    """Returns the command line that trains with it; `words` are the experiment and overrides given."""
    return " ".join(["run.py train", *words, f"--nproc {ranks}", *departures(loaded, setting.options)])


def next_best(found: Sequence[Setting]) -> list[Setting]:
    """The settings after the first that differ in more than the generator's share: the best of each."""
    best: dict[tuple[object, ...], Setting] = {}
    for setting in found:
        best.setdefault(setting.learner, setting)
    return list(best.values())[1 : NEXT + 1]


_SHORT = {
    "train.token_budget": "token_budget",
    "model.gradient_checkpointing": "checkpointing",
    "train.zero_stage": "zero_stage",
    "train.offload": "offload",
    "train.reference": "reference",
    "generator.memory": "generator.memory",
}


def show(
    console: Console, loaded: Loaded, found: Sequence[Setting], ranks: int, card: Card, words: Sequence[str]
) -> None:
    """Prints the fastest of `found`, which are in order, its phases, its command, and the next best."""
    best = found[0]
    table = Table(
        "phase", "1e15 operations", "GiB in memory", "GiB to cards", "GiB over PCIe", "rounds", "seconds"
    )
    for column in table.columns[1:]:
        column.justify = "right"
    for phase in best.phases:
        table.add_row(*phase_row(phase, card))
    table.add_row("total", *[""] * 5, f"{best.seconds:.1f}", style="bold")
    console.print(table)
    peak = max(best.memory.totals) / GIB
    console.print(
        f"fits: {peak:.1f} of {best.memory.budget / GIB:g} GiB. Seconds are computed: none was run."
    )
    console.print(command(loaded, best, ranks, words), style="bold", soft_wrap=True)
    others = Table(*[_SHORT[name] for name in best.options], "GiB", "seconds", title="the next best")
    for setting in next_best(found):
        values = [str(value) for value in setting.options.values()]
        others.add_row(*values, f"{max(setting.memory.totals) / GIB:.1f}", f"{setting.seconds:.1f}")
    console.print(others)


def phase_row(phase: Phase, card: Card) -> tuple[str, ...]:
    """Cells: name, operations, three kinds of bytes, rounds, seconds."""
    moved = (phase.hbm, phase.link, phase.pcie)
    return (
        phase.name,
        f"{phase.operations / 1e15:.1f}" if phase.operations else "",
        *(f"{n / GIB:,.1f}" if n else "" for n in moved),
        f"{phase.rounds:,.0f}" if phase.rounds else "",
        f"{phase.seconds(card):.1f}",
    )
