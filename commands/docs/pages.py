"""The generated pages of docs/: credit.md, metrics.md and options.md. A test keeps them current."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from commands.build.declared import stage_docs, world_docs
from commands.docs import credit
from configs.check import is_section
from configs.load import experiments
from configs.methods import methods
from configs.neutral import NEUTRAL
from configs.protocol import protocols
from configs.schema import Config, Section
from configs.show import as_typed
from configs.worlds import WORLDS
from credit.registry import all_stages
from rl.tracking.metrics import render_table

DOCS = Path(__file__).resolve().parents[2] / "docs"
_NEUTRAL = """\
## Options that do not change what a run is

Runs that differ only in these count as one method in reports, and a run may be resumed with other values.
Every other option matters.

- `nothing`: all figures are the same to the last bit.
- `measured`: the run is the same to the last bit, but other things are measured during it. A sweep makes such
  a run again.
- `rounding`: sums are made in another order, as on another machine, so after some updates other words may be
  sampled. `run.py compare` and reports name the difference.
"""
_NOTE = "\n<!-- Written by `make docs` (`python -m commands.docs`); edits here are lost. -->\n\n"


def main() -> None:
    """Rewrites every generated page and names it."""
    for name, text in pages().items():
        (DOCS / name).write_text(text, encoding="utf-8")
        print(f"wrote docs/{name}")


def pages() -> dict[str, str]:
    """Returns the generated pages by file name."""
    return {
        "credit.md": f"# Credit\n{_NOTE}{credit.render()}",
        "metrics.md": _metrics(),
        "options.md": _options(),
    }


def _metrics() -> str:
    about = "What `runs/ID/metrics.jsonl` (and Weights & Biases) holds: one record per update."
    return f"# Metrics\n{_NOTE}{about}\n\n{render_table()}"


def _options() -> str:
    shipped = (
        f"Experiments: {_list(p.stem for p in experiments())}. Protocols: {_list(protocols())}. "
        f"Methods: {_list(methods())}."
    )
    parts = [f"# Options\n{_NOTE}`key.path=value` on the command line, nested keys in YAML. {shipped}\n"]
    parts += [f"## {title}\n\n{_table(rows)}" for title, rows in _sections(Config())]
    for name in WORLDS:
        rows = [(f"env.options.{key}", value, text) for key, (value, text) in world_docs(name).items()]
        if rows:
            parts.append(f"## World `{name}`\n\n{_table(rows)}")
    for name in all_stages():
        rows = [(f"credit.{name}.{key}", value, text) for key, (value, text) in stage_docs(name).items()]
        parts.append(f"## Credit stage `{name}`\n\n{_table(rows)}")
    return "\n".join([*parts, _neutral()])


def _neutral() -> str:
    """The options that do not change what a run is."""
    lines = [f"| `{option}` | {changed} | {why} |" for option, (changed, why) in NEUTRAL.items()]
    return "\n".join([_NEUTRAL, "| option or section | changes | why |", "|---|---|---|", *lines, ""])


def _sections(config: Config) -> Iterator[tuple[str, list[tuple[str, object, str]]]]:
    yield "Run", _rows(config, "")
    for key, info in Config.model_fields.items():
        if is_section(info.annotation) and key != "credit":
            yield f"`{key}`", _rows(getattr(config, key), f"{key}.")


def _rows(section: Section, prefix: str) -> list[tuple[str, object, str]]:
    return [
        (f"{prefix}{key}", getattr(section, key), info.description or "")
        for key, info in type(section).model_fields.items()
        if not is_section(info.annotation)
    ]


def _table(rows: list[tuple[str, object, str]]) -> str:
    lines = [f"| `{path}` | `{as_typed(value)}` | {_cell(text)} |" for path, value, text in rows]
    return "| option | default | meaning |\n|---|---|---|\n" + "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _list(names: Iterator[str] | list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
