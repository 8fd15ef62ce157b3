"""Reading a run folder: configuration, metrics, evaluations and trajectories, whatever exists yet."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from configs.old_keys import recorded, recorded_key
from eval.result import EvalError, EvalResult, load_evals

DEFAULT = "default"


@dataclass(frozen=True)
class RunFolder:
    """The files of a run.

    Attributes:
        path: The folder.
        config: Nested configuration as written in config.json.
        sources: Dotted key → layer the value came from (sources.json); None if that was not recorded.
        metrics: One record per update, in order, each with its `update`; a resumed update counts once.
        evals: Update → evaluation made after it, in order.
        trajectories: Parquet files, oldest first.
    """

    path: Path
    config: dict[str, Any]
    sources: dict[str, str] | None
    metrics: list[dict[str, float]]
    evals: dict[int, EvalResult]
    trajectories: list[Path]

    @classmethod
    def read(cls, run_dir: Path | str) -> RunFolder:
        """Reads `run_dir`.

        Raises:
            EvalError: it is no run folder (no config.json), or a file in it is broken.
        """
        path = Path(run_dir)
        if not (path / "config.json").is_file():
            raise EvalError(f"{path} is not a run folder (no config.json): give the folder of a run, runs/ID")
        return cls(
            path=path,
            config=recorded(_json(path / "config.json")),
            sources=_sources(path / "sources.json"),
            metrics=read_metrics(path / "metrics.jsonl"),
            evals=load_evals(path),
            trajectories=sorted((path / "trajectories").glob("*.parquet")),
        )

    def get(self, key: str) -> Any:
        """Returns the value at a dotted key of the configuration, None if absent."""
        value: Any = self.config
        for part in key.split("."):
            if not isinstance(value, dict) or part not in value:
                return None
            value = value[part]
        return value

    def source(self, key: str) -> str:
        """Returns the layer that set a dotted key: `default` if none did, "" if that was not recorded."""
        return "" if self.sources is None else self.sources.get(key, DEFAULT)

    @property
    def method(self) -> str:
        """Name of the credit method."""
        return str(self.get("credit.name") or "?")

    @property
    def updates(self) -> int:
        """Updates made so far."""
        return int(max((record["update"] for record in self.metrics), default=0))

    @property
    def before(self) -> EvalResult | None:
        """Evaluation of the starting policy."""
        return self.evals.get(0)

    @property
    def after(self) -> EvalResult | None:
        """Latest evaluation of a trained policy."""
        trained = [result for update, result in self.evals.items() if update > 0]
        return trained[-1] if trained else None

    def series(self, name: str) -> tuple[list[int], list[float]]:
        """Returns (updates, values) of one metric where it was logged."""
        points = [(int(record["update"]), record[name]) for record in self.metrics if name in record]
        return [update for update, _ in points], [value for _, value in points]

    def total(self, name: str) -> float | None:
        """Returns a metric summed over the updates, None if it was never logged."""
        values = self.series(name)[1]
        return sum(values) if values else None

    @property
    def seconds(self) -> float | None:
        """Wall-clock of the updates and of the first evaluation; None before the first update."""
        updates = self.total("time/update")
        return None if updates is None else updates + (self.before.seconds if self.before else 0.0)

    @property
    def tokens(self) -> float | None:
        """Tokens sampled while training; None before the first update."""
        return self.total("rollout/tokens")


def leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields (dotted path, value) of every leaf of a nested configuration."""
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _sources(path: Path) -> dict[str, str] | None:
    if not path.is_file():
        return None
    return {recorded_key(key): source for key, source in _json(path).items()}


def _json(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise EvalError(f"{path} is not JSON ({error})") from error


def read_metrics(path: Path) -> list[dict[str, float]]:
    """Reads metrics.jsonl; records of one update are merged, later ones win.

    Raises:
        EvalError: a line of it is broken.
    """
    if not path.is_file():
        return []
    text = path.read_text(encoding="utf-8")
    merged: dict[int, dict[str, float]] = {}
    # A run that is being written, or was killed, may end in half a line: read up to the last line break.
    for number, line in enumerate(text[: text.rfind("\n") + 1].splitlines(), start=1):
        try:
            record = json.loads(line)
            merged.setdefault(int(record["update"]), {}).update(record)
        except (ValueError, KeyError, TypeError) as error:
            raise EvalError(f"{path}, line {number} is not a metrics record ({error!r})") from error
    return [merged[update] for update in sorted(merged)]
