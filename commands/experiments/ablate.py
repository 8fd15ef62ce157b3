"""`run.py ablate`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from commands.build.declared import credit_pipeline
from commands.build.services import credit_services
from commands.build.terminal import open_console
from commands.experiments.launching import Options, list_commands, run_all, slots, tell_missing
from commands.experiments.one_run import make_run
from configs.load import CONFIGS, Loaded, find
from configs.text import ConfigError
from eval.experiments.ablation import Ablated
from eval.experiments.ablation_file import AblationFile, DeclaredVariant, read_ablation
from eval.experiments.folder import Run
from eval.experiments.points import overrides
from eval.experiments.runner import Listed

FOLDER = CONFIGS / "ablations"
ABLATIONS = Path("runs") / "ablations"
METRIC = "eval/success"


def run(file: str, shared: Sequence[str], seeds: Sequence[int], options: Options) -> int:
    """Runs or resumes every variant with every seed and writes the tables; returns how many runs are missing.

    Args:
        file: A file in configs/ablations/, or a path.
        shared: Overrides that all runs share.
        seeds: Seeds of every variant; if empty, the file's.
        options: See `Options`.
    """
    console = open_console()
    path = find(file, FOLDER)
    spec = read_ablation(path)
    if seeds:
        spec = spec.model_copy(update={"seeds": list(seeds)})
    folder = options.out or ABLATIONS / path.stem
    runs, first, missing = checked(spec, shared, folder)
    parallel = slots(options.parallel, options.launcher, first.config.threads)
    console.print(f"{folder} · {len(runs)} runs, {parallel} at a time · {spec.title}")
    for name, why in missing.items():
        console.print(f"{name}: left out, {why}", markup=False)
    if options.dry_run:
        list_commands(runs, console)
        return 0
    folder.mkdir(parents=True, exist_ok=True)
    run_all(Listed(runs), folder, options, parallel=parallel, metric=METRIC, console=console)
    return finish(Ablated(spec, runs, missing), folder, console)


def checked(
    spec: AblationFile, shared: Sequence[str], folder: Path
) -> tuple[list[Run], Loaded, dict[str, str]]:
    """Returns the runs, one configuration, and why which variants are left out.

    The runs are ordered by seed, so that variants can be compared early.

    Raises:
        ConfigError: A variant's configuration or scorer cannot be used.
    """
    fixed = [*overrides(spec.overrides), *shared]
    logging = [f"logging.group={folder.name}", "logging.tags=[ablation]"]
    made: dict[tuple[str, int], tuple[Run, Loaded]] = {}
    missing: dict[str, str] = {}
    for name, variant in spec.variants.items():
        for seed in spec.seeds:
            options = {**variant.set, "seed": seed}
            point = {"variant": name, "seed": seed}
            made[name, seed] = make_run(
                spec.experiment, fixed, point, folder=folder, label=name, options=options, logging=logging
            )
        why = _unavailable(made[name, spec.seeds[0]][1], variant)
        if why:
            missing[name] = why
    _check_distinct(made)
    runs = [made[name, seed][0] for seed in spec.seeds for name in spec.variants if name not in missing]
    return runs, next(iter(made.values()))[1], missing


def _unavailable(loaded: Loaded, variant: DeclaredVariant) -> str | None:
    """Returns why the variant's scorer is not available here; raises unless the variant may be left out."""
    try:
        credit_services(loaded.config, credit_pipeline(loaded))
    except ConfigError as error:
        if not variant.if_available:
            raise
        return str(error).partition("\n")[0]
    return None


def _check_distinct(made: dict[tuple[str, int], tuple[Run, Loaded]]) -> None:
    """Refuses two variants with the same configuration: they would compare a run with itself."""
    digests: dict[str, str] = {}
    for (name, _), (one, _) in made.items():
        digest = one.name.rpartition("-")[2]
        if digests.setdefault(digest, name) != name:
            raise ConfigError(
                f"the variants {digests[digest]!r} and {name!r} have the same configuration, but for options "
                "that change no result"
            )


def finish(found: Ablated, folder: Path, console: Console) -> int:
    """Writes and prints the tables and the picture; returns how many runs did not finish."""
    table, families = found.table(), found.families()
    written = [*table.write(folder / "table.md"), *families.write(folder / "families.md")]
    if found.evals:
        written += found.write_picture(folder / "picture.svg")
    console.print(table.rich())
    console.print(families.rich())
    console.print(f"written: {', '.join(map(str, written))}", markup=False)
    missing = sum(run.state != "finished" for run in found.runs)
    if missing:
        tell_missing(missing, len(found.runs), folder, console)
    return missing
