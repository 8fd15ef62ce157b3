"""Worlds that are not part of this project: `env.name: FILE.py:Class` or `module:Class`.

The class is called as the built-in worlds are, with the section `env`, and with `env.options` as keyword
arguments. docs/environments.md says what it has to offer.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from configs.text import ConfigError, suggest
from envs.base import Env, EnvError, Task
from envs.own_errors import in_words
from envs.subset import Roster
from envs.world import Section, World

if TYPE_CHECKING:
    from envs.wire.description import Description

ROOT = Path(__file__).resolve().parent.parent


class OwnWorld(World):
    """A class of one's own as a `World`; what it returns is compared with what a `World` promises.

    Raises:
        ConfigError: There is no such file, module or class, or it is no world; or an option it does not have.
    """

    def __init__(self, env: Section) -> None:
        self.env, self._name = env, env.name
        self.options = self.read_options(env)
        self._world = find_class(env.name)(env, **self.options)
        splits = getattr(self._world, "splits", None)
        if isinstance(splits, str) or not isinstance(splits, Iterable):
            raise ConfigError(f"{env.name}: `splits` must list the names of its splits, is {splits!r}")
        self.splits = tuple(splits)

    @classmethod
    def read_options(cls, env: Section) -> Mapping[str, Any]:
        """See `World.read_options`: the constructor's keyword arguments."""
        _check_options(find_class(env.name), env)
        return env.options

    def roster(self, split: str, n: int | None = None) -> Roster:
        """See `World.roster`."""
        return Roster.of(self._all(split))

    def source(self) -> Mapping[str, Any]:
        """See `World.source`."""
        return {key: getattr(self.env, key) for key in ("data", "data_seed", "difficulty", "options")}

    def make_env(self) -> Env:
        """See `World.make_env`."""
        env = self._world.make_env()
        if not isinstance(env, Env):
            wrap = " Wrap it in envs.from_gymnasium.FromGymnasium." if hasattr(env, "action_space") else ""
            raise EnvError(
                f"{self._name}: make_env returns a {type(env).__name__}, which is no envs.base.Env.{wrap}"
            )
        return env

    @classmethod
    def description(cls, env: Section) -> Description:
        """See `World.description`: the options, and the source of the world."""
        from envs.wire.description import describe, module_digest

        options = {
            key: json.dumps(getattr(env, key), sort_keys=True)
            for key in ("max_steps", "anchor", "data_seed", "difficulty", "options")
        }
        own = find_class(env.name)
        return describe(own.__name__, options, code=module_digest(own))

    def _all(self, split: str) -> Sequence[Task]:
        """All tasks of a split, checked; in older classes, `tasks` takes a number too: None for all."""
        self.check_split(split)
        takes_n = len(inspect.signature(self._world.tasks).parameters) > 1
        found = self._world.tasks(split, None) if takes_n else self._world.tasks(split)
        if found is not None and not isinstance(found, Sequence):
            kind = type(found).__name__
            raise EnvError(f"{self._name}: tasks({split!r}) gives a {kind}: return a list of tasks.")
        if not found:
            raise EnvError(f"{self._name}: the split {split!r} has no tasks.")
        strange = [task for task in found if not isinstance(task, Task)]
        if strange:
            raise EnvError(
                f"{self._name}: a task has an id, a family and a split; {type(strange[0]).__name__} has not."
            )
        for name in ("id", "family", "split"):
            other = [value for task in found if not isinstance(value := getattr(task, name), str)]
            if other:
                raise EnvError(f"{self._name}: a task's {name} is a string, got {other[0]!r}.")
        ids = {task.id for task in found}
        if len(ids) < len(found):
            raise EnvError(
                f"{self._name}: the split {split!r} has {len(found)} tasks with {len(ids)} different ids: "
                "every task needs its own."
            )
        return found


def find_class(name: str) -> type:
    """Returns the class that `FILE.py:Class` or `module:Class` names.

    A file is looked for from the current folder, then from the project's.

    Raises:
        ConfigError: There is none, or it is no world.
    """
    place, _, wanted = name.rpartition(":")
    module = _load_file(place) if place.endswith(".py") else _load_module(place)
    cls = getattr(module, wanted, None)
    classes = [key for key, value in vars(module).items() if _defined_in(value, module)]
    if not isinstance(cls, type):
        there = ", ".join(classes) or "none"
        raise ConfigError(
            f"env.name={name}: {place} has no class {wanted!r}{suggest(wanted, classes)} There are: {there}"
        )
    missing = [method for method in ("tasks", "make_env") if not callable(getattr(cls, method, None))]
    if missing:
        what = "is an environment" if issubclass(cls, Env) else f"has no {' and no '.join(missing)}"
        raise ConfigError(
            f"env.name={name}: {wanted} {what}. Name a world: a class with `splits`, `tasks(split)` and "
            "`make_env()` (docs/environments.md)."
        )
    return cls


def _load_file(place: str) -> ModuleType:
    path = next((p.resolve() for p in (Path(place), ROOT / place) if p.is_file()), None)
    if path is None:
        raise ConfigError(f"env.name: there is no file {place}, neither from here nor from {ROOT}")
    # Worker processes load the file themselves, and look for the classes of pickled tasks under this name.
    name = f"{path.stem}_{hashlib.blake2b(str(path).encode(), digest_size=4).hexdigest()}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        sys.modules[name] = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(sys.modules[name])
        except BaseException as error:
            del sys.modules[name]
            if isinstance(error, Exception) and not isinstance(error, ConfigError):
                raise ConfigError(f"env.name: {in_words(error, path)}") from error
            raise
    return sys.modules[name]


def _load_module(place: str) -> ModuleType:
    try:
        return importlib.import_module(place)
    except ConfigError:
        raise
    except Exception as error:
        absent = error.name if isinstance(error, ModuleNotFoundError) else None
        if absent is None or not f"{place}.".startswith(f"{absent}."):
            raise ConfigError(f"env.name={place}: {in_words(error)}") from error  # it is there, and broken
        raise ConfigError(
            f"env.name: there is no module {place!r}. Install it, or name a file: path/to/FILE.py:Class"
        ) from error


def _check_options(cls: type, env: Section) -> None:
    parameters = list(inspect.signature(cls).parameters.values())[1:]
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return
    known = [p.name for p in parameters]
    for option in env.options:
        if option not in known:
            there = ", ".join(known) or "none"
            raise ConfigError(
                f"{env.name} has no option `env.options.{option}`{suggest(option, known, 'env.options.')} "
                f"There are: {there}"
            )
    needed = [p.name for p in parameters if p.default is p.empty and p.kind is not p.VAR_POSITIONAL]
    missing = [name for name in needed if name not in env.options]
    if missing:
        raise ConfigError(f"{env.name} needs env.options.{missing[0]}: set it")


def _defined_in(value: Any, module: ModuleType) -> bool:
    return isinstance(value, type) and value.__module__ == module.__name__
