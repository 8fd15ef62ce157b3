"""`run.py replay`: computes credit methods on recorded trajectories, without a model."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.status import Status

from commands.build.declared import credit_pipeline
from commands.build.services import credit_services
from commands.build.terminal import open_console
from configs.check import validate
from configs.layers import COMMAND_LINE, Layer, credit_layers
from configs.load import Loaded, read_config
from configs.merge import Merged
from configs.old_keys import recorded_key, renamed
from configs.schema import Config
from configs.text import ConfigError, read_yaml, suggest
from credit.pipeline import Pipeline
from eval.replay.page import write_page
from eval.replay.recorded import RUN_TOKENS, Method, Recorded, read_run, run_files
from eval.replay.replay import Replayed, replay
from eval.replay.trajectory_file import TrajectoryFile
from eval.result import EvalError

SERVICES = frozenset({"pair_scorer"})
"""Services that need neither a model nor an environment."""
SECTIONS = ("credit", "scorer", "seed")
"""Sections of options that a replay uses."""


@dataclass(frozen=True)
class Source:
    """A recording.

    Attributes:
        title: Its name on the page.
        where: Its file or folder, for messages.
        tokens: Its token columns.
        folder: Where results are written by default.
        config: Of the run; None for a file made elsewhere.
        chosen: Stage → the options that the run's experiment or command line set.
    """

    title: str
    where: Path
    tokens: frozenset[str]
    folder: Path
    config: Config | None = None
    chosen: Mapping[str, Mapping[str, Any]] | None = None


def run(
    run_dir: str | None,
    overrides: Sequence[str],
    *,
    file: Path | None,
    credit: str | None,
    update: str | None,
    out: Path | None,
    show: int,
) -> None:
    """Replays a run or a file; writes replay.parquet and replay.html and prints their paths."""
    if (run_dir is None) == (file is None):
        raise ConfigError("replay either a run (`run.py replay runs/ID`) or a file (`--from FILE.parquet`)")
    updates = _updates(update)
    opened = None if file is None else TrajectoryFile(file)
    source = _file_source(opened) if opened else _run_source(Path(run_dir or ""))
    tree, hints = renamed(_tree(overrides), COMMAND_LINE)
    seed, methods = _methods(source, _names(credit, source), tree)
    recording = _read(opened, source, updates, methods)

    folder = out or source.folder
    with open_console().status("replaying") as status:
        watched = _watched(recording, status)
        replayed = replay(watched, methods, folder / "replay.parquet", seed=seed, most=show)
    own = source.config.credit.name if source.config else ""
    notes = [*hints, *_notes(replayed, opened)]
    page = folder / "replay.html"
    write_page(page, replayed, methods, title=source.title, own=own, notes=notes)
    for line in (*notes, *_summary(replayed, own)):
        print(line)
    print(f"wrote {replayed.table} and {page}")


def methods_of(run_dir: Path, names: Sequence[str]) -> tuple[int, list[Method]]:
    """Returns the seed of a run, and the methods named with the options its experiment would give them."""
    return _methods(_run_source(run_dir), names, {})


def _file_source(file: TrajectoryFile) -> Source:
    return Source(file.path.name, file.path, file.tokens, Path("runs") / f"replay-{file.path.stem}")


def _run_source(run_dir: Path) -> Source:
    config = read_config(run_dir / "config.json")
    return Source(
        run_dir.resolve().name, run_dir, RUN_TOKENS, run_dir / "replay", config, _chosen(run_dir, config)
    )


def _chosen(run_dir: Path, config: Config) -> dict[str, dict[str, Any]]:
    """Returns the options that do not come from the method's own file; all, if sources were not recorded.

    They apply to the same stages of other methods too, as they would in training.
    """
    path = run_dir / "sources.json"
    sources = None
    if path.is_file():
        said = json.loads(path.read_text(encoding="utf-8"))
        sources = {recorded_key(key): label for key, label in said.items()}

    def counts(stage: str, key: str) -> bool:
        label = "" if sources is None else sources.get(f"credit.stages.{stage}.{key}", "credit/")
        return not label.startswith("credit/")

    return {
        stage: {key: value for key, value in options.items() if counts(stage, key)}
        for stage, options in config.credit.stages.items()
    }


def _names(credit: str | None, source: Source) -> list[str]:
    names = [name.strip() for name in (credit or "").split(",") if name.strip()]
    if names:
        return names
    if source.config is None:
        raise ConfigError("say which methods: --credit scpo,gigpo")
    return [source.config.credit.name]


def _updates(text: str | None) -> range | None:
    """Reads `N` or `N-M`."""
    if text is None:
        return None
    first, dash, last = text.partition("-")
    if not first.isdecimal() or (dash and not last.isdecimal()) or (dash and int(last) < int(first)):
        raise ConfigError(f"cannot read --update {text!r}: write one update (7) or a span (5-12)")
    return range(int(first), int(last or first) + 1)


def _tree(overrides: Sequence[str]) -> dict[str, Any]:
    """Returns the overrides as a tree; only sections that a replay uses are allowed."""
    tree: dict[str, Any] = {}
    for item in overrides:
        path, equals, text = item.partition("=")
        keys = path.split(".")
        if not equals or not all(keys) or (keys[0] == "credit" and len(keys) != 3):
            raise ConfigError(
                f"cannot read the override {item!r}: write credit.STAGE.option=value, for example "
                "credit.scpo.theta=0.8; methods are named by --credit"
            )
        if keys[0] not in SECTIONS:
            raise ConfigError(
                f"the override {item!r} has no effect on a replay{suggest(keys[0], SECTIONS)} "
                f"It uses {', '.join(SECTIONS)} only."
            )
        node = tree
        for key in keys[:-1]:
            node = node.setdefault(key, {})
        node[keys[-1]] = read_yaml(text, f"the override {item!r}")
    return tree


def _methods(source: Source, names: Sequence[str], tree: Mapping[str, Any]) -> tuple[int, list[Method]]:
    """Returns the seed, and the methods with the options of the run's experiment and the overrides."""
    loaded = [_loaded(source, name, tree) for name in names]
    stages = {stage for one in loaded for stage in one.config.credit.stages}
    for stage in tree.get("credit", {}):
        if stage not in stages:
            raise ConfigError(
                f"the override credit.{stage}: none of {', '.join(names)} has this stage"
                f"{suggest(stage, stages, prefix='credit.')} Their stages: {', '.join(sorted(stages))}."
            )
    methods: list[Method] = []
    services: dict[str, Any] = {}  # shared by all methods: a scorer may load a model
    for one in loaded:
        pipeline = credit_pipeline(one)
        _refuse(pipeline, source)
        if pipeline.name in [method.name for method in methods]:
            raise ConfigError(f"--credit names the method {pipeline.name!r} twice; name it once")
        if pipeline.requires - set(services):
            services |= credit_services(one.config, pipeline)
        methods.append(Method(pipeline.name, pipeline, services, one.config.credit.stages))
    return loaded[0].config.seed, methods


def _loaded(source: Source, name: str, tree: Mapping[str, Any]) -> Loaded:
    """A method's configuration: the run's own as recorded, another from its file and the run's options."""
    merged = Merged()
    if source.config is not None:
        merged.add(Layer(str(source.where / "config.json"), source.config.model_dump(mode="json")))
    if source.config is None or name != source.config.credit.name:
        merged.add(Layer("--credit", {"credit": {"method": name}}))
        for layer in () if source.config is None else credit_layers(name, source.config):
            merged.add(layer)
    for layer, label in (({"credit": source.chosen or {}}, str(source.where)), (tree, COMMAND_LINE)):
        stages = merged.values["credit"]["stages"]
        credit = {stage: options for stage, options in layer.get("credit", {}).items() if stage in stages}
        merged.add(Layer(label, {**layer, "credit": credit}))
    return Loaded(validate(merged.values, merged.sources), merged.sources)


def _refuse(pipeline: Pipeline, source: Source) -> None:
    """Raises a ConfigError that names what a method needs and this recording does not have."""
    for stage in pipeline.stages:
        for column in sorted(stage.token_columns - source.tokens):
            raise ConfigError(
                f"credit method {pipeline.name!r}: stage {stage.name()} reads the token column {column!r}; "
                f"{source.where} has {_list(source.tokens)}. Leave the method out, or bring the numbers "
                f"in a column `tokens.{column}` of a file (--from, see docs/replay.md)"
            )
        for service in sorted(stage.requires - SERVICES):
            raise ConfigError(
                f"credit method {pipeline.name!r}: stage {stage.name()} needs {service!r}, which takes a "
                "model or an environment and no recording can give; leave the method out"
            )


def _read(
    file: TrajectoryFile | None, source: Source, updates: range | None, methods: Sequence[Method]
) -> Iterator[Recorded]:
    if file is None:
        tokens = any(method.pipeline.token_columns for method in methods)
        return read_run(run_files(source.where, updates), tokens=tokens)
    known = file.updates()
    if updates is not None and not any(number in updates for number in known):
        raise EvalError(f"{file.path} has none of the updates asked for; it has {_list(map(str, known))}")
    return file.read(updates)


def _watched(recording: Iterable[Recorded], status: Status) -> Iterator[Recorded]:
    """Yields the recording and shows which update is being replayed."""
    for recorded in recording:
        status.update(f"update {recorded.update}: {len(recorded.table)} steps")
        yield recorded


def _notes(replayed: Replayed, file: TrajectoryFile | None) -> list[str]:
    """Returns warnings about the figures."""
    notes = []
    if file and file.ignored:
        columns = ", ".join(f"{name!r}{hint.rstrip(';')}" for name, hint in file.ignored.items())
        notes.append(f"Columns that a replay does not know and did not read: {columns}.")
    if replayed.broken_state:
        notes.append(
            f"{', '.join(replayed.broken_state)}: carries a state from update to update and did not see "
            "all of them from the first, so its advantages are not those of training."
        )
    return notes


def _summary(replayed: Replayed, own: str) -> Iterator[str]:
    names = ", ".join(method.name for method in replayed.agreement.methods)
    yield (
        f"{names} on {replayed.steps} steps of {replayed.trajectories} trajectories "
        f"in {len(replayed.updates)} updates"
    )
    for method in replayed.agreement.methods:
        if method.name == own and method.unlike is not None:
            unlike = (
                f"{method.unlike} steps differ from the recorded advantages, "
                f"by {method.unlike_by:.3g} at most"
            )
            yield f"{own}: {unlike if method.unlike else 'exactly the recorded advantages'}"
    for name, changed in replayed.effects.items():
        for one in changed:
            yield f"{name} with and without {one}"
    for pair in replayed.agreement.pairs:
        rank = "none" if pair.rank_correlation is None else f"{pair.rank_correlation:.2f}"
        opposite = f"opposite signs in {100 * pair.opposite / pair.steps:.1f} % of steps"
        yield f"{pair.first} and {pair.second}: {opposite}, rank correlation {rank}"


def _list(names: Collection[str] | Iterator[str]) -> str:
    return ", ".join(sorted(names)) or "none"
