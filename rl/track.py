"""Where a run's figures go: `metrics.jsonl` always, Weights & Biases if wanted and possible."""

from __future__ import annotations

import json
import math
import netrc
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from rl.metrics import describe

Mode = Literal["auto", "online", "offline", "off"]
METRICS_FILE = "metrics.jsonl"
WANDB_HOST = "api.wandb.ai"
WANDB_TIMEOUT = 30.0  # s; an unreachable server must not hold up the first update for long


class Tracker:
    """Appends one record a call to `metrics.jsonl` and mirrors it to W&B.

    Trouble with W&B is reported and never ends a run: an online run that cannot be opened goes on
    offline, one that breaks later goes on in metrics.jsonl alone.
    """

    def __init__(
        self,
        run_dir: Path,
        *,
        mode: Mode = "off",
        project: str = "sibling",
        config: Mapping[str, Any] | None = None,
        resume_update: int | None = None,
        report: Callable[[str], None] = print,
    ) -> None:
        """Opens the run's record.

        Args:
            run_dir: The run folder; its name is the W&B run's id.
            mode: Of W&B. `auto`: online with an account (WANDB_API_KEY or a netrc entry), else offline.
            project: W&B project.
            config: Shown by W&B.
            resume_update: Continue the record after this update: later ones are dropped, because they
                will be made again; 0 drops all. None starts a new record.
            report: Gets one sentence when W&B is not what was asked for.

        Raises:
            FileExistsError: a new record where one exists.
        """
        self._path = run_dir / METRICS_FILE
        self._report = report
        run_dir.mkdir(parents=True, exist_ok=True)
        if resume_update is not None:
            _drop_after(self._path, resume_update)
        elif self._path.exists():
            raise FileExistsError(f"{self._path} exists: resume that run, or choose another run folder")
        self._run = self._open(run_dir, mode, project, config or {}) if mode != "off" else None

    def log(self, update: int, metrics: Mapping[str, float]) -> None:
        """Records an update's metrics; one that is not a finite number is left out.

        Raises:
            KeyError: a metric without an entry in `rl.metrics.METRICS`.
        """
        for name in metrics:
            describe(name)
        finite = {name: value for name, value in metrics.items() if math.isfinite(value)}
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"update": update, **finite}) + "\n")
        self._mirror(lambda run: run.log(finite, step=update))

    def close(self) -> None:
        """Lets W&B finish its uploads."""
        self._mirror(lambda run: run.finish())
        self._run = None

    def _open(self, run_dir: Path, mode: Mode, project: str, config: Mapping[str, Any]) -> Any:
        try:
            import wandb
        except ImportError as error:
            self._report(f"W&B is not installed ({error}); metrics go to {self._path} only")
            return None
        wanted = ("online" if has_account() else "offline") if mode == "auto" else mode
        for attempt in (wanted, "offline"):
            try:
                return wandb.init(
                    project=project,
                    id=run_dir.name,
                    name=run_dir.name,
                    dir=run_dir,
                    config=dict(config),
                    mode=attempt,
                    resume="allow" if attempt == "online" else None,
                    settings=wandb.Settings(init_timeout=WANDB_TIMEOUT, silent=True, console="off"),
                )
            except (wandb.errors.Error, OSError) as error:
                self._report(f"W&B could not be opened {attempt} ({error})")
        self._report(f"metrics go to {self._path} only")
        return None

    def _mirror(self, call: Callable[[Any], None]) -> None:
        if self._run is None:
            return
        import wandb

        try:
            call(self._run)
        except (wandb.errors.Error, OSError) as error:
            self._report(f"W&B failed ({error}); from here on metrics go to {self._path} only")
            self._run = None


def has_account() -> bool:
    """Whether W&B would find a key without asking: in the environment or in the netrc file."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    path = Path(os.environ.get("NETRC") or Path.home() / ".netrc")
    if not path.is_file():
        return False
    try:
        return netrc.netrc(str(path)).authenticators(WANDB_HOST) is not None
    except netrc.NetrcParseError:
        return False


def read_metrics(path: Path) -> list[dict[str, float]]:
    """Reads a metrics.jsonl; half a line at the end (a killed run) is left out."""
    text = path.read_text(encoding="utf-8")
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def _drop_after(path: Path, update: int) -> None:
    if not path.exists():
        return
    # After update 0 means from the start: the first evaluation, logged as update 0, is made again too.
    kept = [json.dumps(record) + "\n" for record in read_metrics(path) if 0 < update >= record["update"]]
    partial = path.with_suffix(".partial")
    partial.write_text("".join(kept), encoding="utf-8")
    partial.replace(path)
