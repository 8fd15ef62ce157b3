"""Following a page of CONTRIBUTING.md to the letter, in a copy of the project.

A code block whose first line is `# PATH` is a file of the walk-through; `# PATH, one line more` says that its
line goes into a file there is.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_BLOCK = re.compile(r"^( *)```\w+\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_FIRST = re.compile(r"# (?P<path>[\w./-]+)(?P<more>, one line more)?\n")


def section(title: str, page: str = "CONTRIBUTING.md") -> str:
    """The text below the heading `title`, up to the next heading of its level."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = re.search(rf"^(#+) {re.escape(title)}\n(.*?)(?=^#{{1,2}} |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found, f"{page} has no section {title!r}"
    return found[2]


def blocks(text: str) -> list[tuple[str, str, bool]]:
    """(path, content, whether it is a line to add) of every block of a section that names its file."""
    found = []
    for block in _BLOCK.finditer(text):
        indent = len(block[1])
        body = "".join(line[indent:] or "\n" for line in block[2].splitlines(keepends=True))
        first = _FIRST.match(body)
        if first:
            found.append((first["path"], body[first.end() :], bool(first["more"])))
    return found


def copy_of_the_project(folder: Path) -> Path:
    """Copies what git tracks, and new files it does not ignore, into `folder`/project."""
    tree = folder / "project"
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, capture_output=True, check=True
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        source = ROOT / name
        if source.is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, tree / name)
    return tree


def follow(tree: Path, title: str) -> list[str]:
    """Writes what a section's blocks say into the copy; returns the paths of the new files.

    A line more goes in before the file's first closing brace that stands one level to the left of it.
    """
    made = []
    for path, content, more in blocks(section(title)):
        file = tree / path
        if more:
            lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
            closing = content[: len(content) - len(content.lstrip())][4:] + "}\n"
            lines.insert(lines.index(closing), content)
            file.write_text("".join(lines), encoding="utf-8")
        else:
            assert not file.exists(), f"{path} is there already"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content, encoding="utf-8")
            made.append(path)
    assert made, f"{title!r} has no block that names a file"
    return made


def walked(folder: Path, title: str) -> tuple[Path, list[str]]:
    """A copy of the project in which a section has been followed and `make docs` run; and the new files."""
    tree = copy_of_the_project(folder)
    made = follow(tree, title)
    run_in(tree, "-m", "commands.docs")
    return tree, made


def lint(tree: Path, *paths: str) -> None:
    """Lints files of the copy as `make lint` does."""
    python = [path for path in paths if path.endswith(".py")]
    run_in(tree, "-m", "ruff", "check", *python)
    run_in(tree, "-m", "ruff", "format", "--check", *python)


def run_in(tree: Path, *command: str, timeout: float = 300.0) -> str:
    """Runs `python COMMAND` in the copy; returns what it printed, and fails with it on an error."""
    done = subprocess.run(
        [sys.executable, *command],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree)},
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout
