"""A table once, written as Markdown, CSV and LaTeX and shown on the terminal.

CSV holds the numbers as they are; the others what people read.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table as RichTable

from eval.format import NONE

Row = dict[str, Any]
_LATEX = {
    "&": r"\&",
    "%": r"\%",
    "_": r"\_",
    "#": r"\#",
    "$": r"\$",
    "{": r"\{",
    "}": r"\}",
    "\\": r"\textbackslash{}",
}
_SYMBOLS = {
    "−": "$-$",
    "±": r"$\pm$",
    "Δ": r"$\Delta$",
    "–": "--",
    "→": r"$\to$",
    "≥": r"$\geq$",
    "<": "$<$",
    ">": "$>$",
    "\u202f": r"\,",
    "λ": r"$\lambda$",
    "θ": r"$\theta$",
    "α": r"$\alpha$",
}


@dataclass(frozen=True)
class TableColumn:
    """A column: its heading, what it shows of a row, and the row's numbers behind it.

    Attributes:
        title: Heading.
        show: Row → text.
        keys: Columns of the CSV.
        text: Left-aligned.
        files_only: Not shown on the terminal, which is narrow.
    """

    title: str
    show: Callable[[Row], str]
    keys: tuple[str, ...]
    text: bool = False
    files_only: bool = False


def plain(title: str, key: str, form: Callable[[Any], str] = str, **flags: bool) -> TableColumn:
    """Returns a column that shows one value of the row; None as a dash."""
    return TableColumn(title, lambda row: NONE if row.get(key) is None else form(row[key]), (key,), **flags)


@dataclass(frozen=True)
class Table:
    """Rows under columns, with a title and notes below."""

    title: str
    columns: Sequence[TableColumn]
    rows: Sequence[Row]
    notes: Sequence[str] = ()

    def markdown(self) -> str:
        """Returns it as GitHub Markdown."""
        head = "| " + " | ".join(column.title for column in self.columns) + " |"
        rule = "|" + "|".join("---" if column.text else "---:" for column in self.columns) + "|"
        body = ["| " + " | ".join(cell.replace("|", r"\|") for cell in row) + " |" for row in self._cells()]
        notes = ["", *(f"{note}  " for note in self.notes)] if self.notes else []
        return "\n".join([f"**{self.title}**", "", head, rule, *body, *notes]) + "\n"

    def latex(self) -> str:
        """Returns it as a LaTeX table (needs booktabs)."""
        align = "".join("l" if column.text else "r" for column in self.columns)
        lines = [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{_tex(self.title)}}}",
            rf"\begin{{tabular}}{{{align}}}",
            r"\toprule",
            " & ".join(_tex(column.title) for column in self.columns) + r" \\",
            r"\midrule",
            *(" & ".join(map(_tex, row)) + r" \\" for row in self._cells()),
            r"\bottomrule",
            r"\end{tabular}",
            *(rf"\\[2pt] \footnotesize {_tex(note)}" for note in self.notes),
            r"\end{table}",
        ]
        return "\n".join(lines) + "\n"

    def csv(self) -> str:
        """Returns its numbers as CSV."""
        keys = [key for column in self.columns for key in column.keys]
        file = io.StringIO()
        writer = csv.DictWriter(file, keys, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows)
        return file.getvalue()

    def rich(self) -> RichTable:
        """Returns it for the terminal."""
        table = RichTable(title=self.title, caption="\n".join(self.notes) or None, caption_justify="left")
        shown = [column for column in self.columns if not column.files_only]
        for column in shown:
            table.add_column(column.title, justify="left" if column.text else "right")
        for row in self.rows:
            table.add_row(*(column.show(row) for column in shown))
        return table

    def write(self, path: Path) -> list[Path]:
        """Writes `path` with .md, .csv and .tex in place of its suffix."""
        texts = {".md": self.markdown(), ".csv": self.csv(), ".tex": self.latex()}
        for suffix, text in texts.items():
            path.with_suffix(suffix).write_text(text, encoding="utf-8")
        return [path.with_suffix(suffix) for suffix in texts]

    def _cells(self) -> list[list[str]]:
        return [[column.show(row) for column in self.columns] for row in self.rows]


def _tex(text: str) -> str:
    """Escapes what LaTeX would read as its own, and writes symbols so that pdflatex knows them."""
    escaped = re.sub(r"[&%_#${}\\]", lambda match: _LATEX[match[0]], text)
    for symbol, command in _SYMBOLS.items():
        escaped = escaped.replace(symbol, command)
    return escaped
