"""Which tasks a configuration trains on and evaluates, and the manifests that say so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from configs.schema import Config
from configs.text import ConfigError
from envs.subset import Chosen
from envs.world import World
from eval.manifest import Manifest
from eval.result import EvalError

FOLDER = "manifests"
"""In a run's folder: train.json, eval.json, and one more of every other list its policies were played on."""


def train_tasks(config: Config, world: World) -> tuple[Chosen, Manifest]:
    """Chooses the tasks to train on."""
    chosen = world.choose(config.env.split, config.env.train_tasks)
    return chosen, _describe(config, world, config.env.split, chosen)


def eval_tasks(config: Config, world: World) -> tuple[Chosen, Manifest]:
    """Chooses the tasks to evaluate on: `eval.tasks` of the split, or those of `eval.manifest`.

    Raises:
        ConfigError: The manifest is of another world or split, or lists no tasks.
        EvalError: It cannot be read, or some of its tasks are missing or have another content.
    """
    if config.eval.manifest is not None:
        return _listed(config, world, Path(config.eval.manifest))
    chosen = world.choose(config.eval.split, config.eval.tasks)
    return chosen, _describe(config, world, config.eval.split, chosen)


def check_begun(run_dir: Path, manifests: Mapping[str, Manifest]) -> None:
    """Checks that a run goes on with the tasks it began with.

    Raises:
        EvalError: It does not; or nothing says which tasks it began with, and they were others.
    """
    for name, manifest in manifests.items():
        path = run_dir / FOLDER / f"{name}.json"
        if path.is_file():
            manifest.check_same(Manifest.read(path), path)
        elif manifest.n < manifest.of:
            raise EvalError(
                f"{run_dir} has no {FOLDER}/{name}.json: it was begun by a version that played the first "
                f"{manifest.n} of the {manifest.of} tasks of split {manifest.split!r}, and this one would "
                "play others of them. Start a new run."
            )


def write_manifests(run_dir: Path, manifests: Mapping[str, Manifest]) -> None:
    """Writes what a run plays into its folder; what is there already stays."""
    for name, manifest in manifests.items():
        path = run_dir / FOLDER / f"{name}.json"
        if not path.exists():
            manifest.write(path)


def _listed(config: Config, world: World, path: Path) -> tuple[Chosen, Manifest]:
    manifest = Manifest.read(path)
    for option, meant, here in (
        ("env.name", manifest.world, config.env.name),
        ("eval.split", manifest.split, config.eval.split),
    ):
        if meant != here:
            raise ConfigError(f"{path} lists tasks of {option}={meant}, and {option} is {here}: set it")
    if manifest.tasks is None:
        raise ConfigError(
            f"{path} has the counts of {manifest.n} tasks and does not list them: choose them with eval.tasks"
        )
    roster = world.roster(manifest.split, manifest.of)
    places = {name: place for place, name in enumerate(roster.names()[0])}
    chosen = Chosen(roster, [places[entry.id] for entry in manifest.tasks if entry.id in places])
    manifest.check_played({task.id: task for task in chosen.tasks}, path)
    return chosen, replace(manifest, of=chosen.of, source=world.source())


def _describe(config: Config, world: World, split: str, chosen: Chosen) -> Manifest:
    return Manifest.of_tasks(
        chosen,
        world=config.env.name,
        split=split,
        source=world.source(),
        subset_seed=config.env.subset_seed,
        families=world.families(chosen.roster),
    )
