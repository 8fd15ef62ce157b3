"""One-line messages for errors in a user's own file: where, what, and what to change."""

from __future__ import annotations

import importlib.util
import traceback
from pathlib import Path


def in_words(error: Exception, file: Path | None = None) -> str:
    """Returns the line.

    Args:
        error: As it was raised.
        file: The file whose line is named; None: the innermost one.
    """
    where = _where(error, file)
    if isinstance(error, ModuleNotFoundError) and error.name:
        return f"{where}: there is no module {error.name!r} here: {_remedy(error.name, file)}"
    told = str(error).strip().partition("\n")[0]
    return f"{where}: {type(error).__name__}{f': {told}' if told else ''}"


def _where(error: Exception, file: Path | None) -> str:
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}, line {error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    frames = [frame for frame in frames if not frame.filename.startswith("<frozen")]
    own = [frame for frame in frames if file is not None and Path(frame.filename) == file]
    last = (own or frames)[-1]
    return f"{last.filename}, line {last.lineno}"


def _remedy(module: str, file: Path | None) -> str:
    package, _, below = module.partition(".")
    if below and importlib.util.find_spec(package) is not None:
        return f"{package} is installed, but has no such part; is it the version you mean?"
    is_neighbour = file is not None and (
        (file.parent / f"{package}.py").is_file() or (file.parent / package).is_dir()
    )
    if is_neighbour:
        return (
            f"{package} lies next to the file, but a file is loaded by itself. Put it into the file, or make "
            "a package of both, install it and name it: env.name=package.module:Class"
        )
    return f"install what brings it (`pip install {package}`, if it is called so), or correct the name"
