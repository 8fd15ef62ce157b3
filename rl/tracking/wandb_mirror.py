"""A run in Weights & Biases: one W&B run for its whole life, however often it is killed and resumed.

What has been sent stands in `wandb.jsonl` of the run folder: a first line with the W&B run's id, then a line
for each record. So a resumed run goes on in the same W&B run, does not send again the updates that it makes
again, and sends what is missing there. The x-axis of every metric is `update`. W&B's own step only counts
records, so it never runs backwards, which W&B would answer by dropping what is logged: an evaluation of
update 5 that comes after update 6 arrives.
"""

from __future__ import annotations

import json
import netrc
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import sleep, strftime
from typing import Any, Literal

from rl.learner.engine import STATE_FILE
from rl.tracking.metrics import METRICS
from rl.tracking.tracker import METRICS_FILE, Record
from rl.tracking.trajectory_files import TABLE_COLUMNS, read_trajectories, trajectories_file

Mode = Literal["auto", "online", "offline"]
SENT_FILE = "wandb.jsonl"
WANDB_HOST = "api.wandb.ai"
WANDB_TIMEOUT = 30.0  # s; an unreachable server must not hold up the first update for long
_BEST = "eval/success_best"


@dataclass(frozen=True)
class WandbOptions:
    """How a run is shown.

    Attributes:
        mode: `auto`: online with an account (WANDB_API_KEY or a netrc entry), else offline.
        project: W&B project; in a W&B sweep the sweep's.
        entity: Team or user; None: the account's own.
        group: Runs shown together.
        tags: Labels.
        table: Trajectories in the table of an update (0: no table).
        checkpoints: Uploaded as artifacts.
    """

    mode: Mode = "auto"
    project: str = "sibling"
    entity: str | None = None
    group: str | None = None
    tags: Sequence[str] = ()
    table: int = 8
    checkpoints: Literal["none", "last", "all"] = "none"


class WandbMirror:
    """Mirrors a run folder to W&B.

    Trouble is reported once and never ends a run: an online run that cannot be opened goes on offline, one
    that breaks later goes on in metrics.jsonl alone, and the next resume sends what is missing.
    """

    def __init__(
        self, run_dir: Path, options: WandbOptions, config: Mapping[str, Any], report: Callable[[str], None]
    ) -> None:
        """Opens the W&B run.

        Args:
            run_dir: The run folder; its name is the W&B run's name.
            options: How it is shown.
            config: Shown as the run's configuration.
            report: Gets a sentence when W&B is not what was asked for.
        """
        run_dir.mkdir(parents=True, exist_ok=True)
        self._dir, self._options, self._report = run_dir, options, report
        self._sent = _Sent(run_dir / SENT_FILE)
        self._shown: set[str] = set()  # checkpoints
        self._best = -1.0
        self._run = self._open(config)

    def begin(self, kept: Sequence[Record], resume_update: int | None) -> None:
        """Sends what the record holds and W&B does not."""
        for record in kept:
            self.log(record)

    def log(self, record: Record) -> None:
        """Sends a record with its update's histograms and table, unless it has been sent."""
        if self._run is None:
            return
        self._artifacts(final=False)
        self._best = max(self._best, record.get("eval/success", -1.0))
        if record in self._sent:
            return
        data = {**record, **self._media(record)}
        step = len(self._sent)
        if self._try(lambda run: run.log(data, step=step, commit=True)):
            self._sent.add(record)
        if "eval/success" in record:
            self._try(lambda run: run.summary.update({_BEST: self._best}))

    def close(self) -> None:
        """Lets W&B finish its uploads."""
        self._artifacts(final=True)
        self._try(lambda run: run.finish())
        self._run = None

    def _open(self, config: Mapping[str, Any]) -> Any:
        try:
            import wandb
        except ImportError as error:
            self._report(f"W&B is not installed ({error}); metrics go to {self._dir / METRICS_FILE} only")
            return None
        wanted = self._mode()
        for mode in dict.fromkeys((wanted, "offline")):
            try:
                run = self._init(wandb, mode, config)
            except (wandb.errors.Error, OSError) as error:
                self._report(f"W&B could not be opened {mode} ({error})")
                continue
            self._sent.open(run.id, mode)
            return run
        self._report(f"metrics go to {self._dir / METRICS_FILE} only")
        return None

    def _mode(self) -> str:
        wanted = self._options.mode
        later = f"upload it with `wandb sync {self._dir}/wandb/offline-run-*`"
        if wanted == "auto":
            wanted = "online" if has_account() else "offline"
            if wanted == "offline" and self._sent.mode is None:
                self._report(f"no W&B account (`wandb login`): the run is recorded offline; {later}")
        if wanted == "online" and self._sent.mode == "offline":
            self._report(f"this run was begun offline and goes on offline, in order; {later}")
            return "offline"
        return wanted

    def _init(self, wandb: Any, mode: str, config: Mapping[str, Any]) -> Any:
        options = self._options
        # W&B names an offline folder by the second, and would write over one of the same name.
        while any(self._dir.glob(f"wandb/offline-run-{strftime('%Y%m%d_%H%M%S')}-*")):
            sleep(0.1)
        run = wandb.init(
            project=options.project,
            entity=options.entity,
            id=self._sent.id,  # None: W&B makes one, or the agent of a W&B sweep has chosen one
            name=self._dir.name,
            group=options.group,
            job_type="train",
            tags=list(options.tags),
            dir=self._dir,
            config=dict(config)
            | {"metrics": {name: f"{unit}: {text}" for name, (unit, text) in METRICS.items()}},
            mode=mode,
            resume="allow",
            settings=wandb.Settings(init_timeout=WANDB_TIMEOUT, silent=True, console="off"),
        )
        run.define_metric("update")
        for prefix in sorted({name.partition("/")[0] for name in METRICS}):
            run.define_metric(f"{prefix}/*", step_metric="update")
        return run

    def _media(self, record: Record) -> dict[str, Any]:
        """Histograms and the table of an update whose trajectories were written."""
        update = int(record["update"])
        path = trajectories_file(self._dir, update)
        if _kind(record) == "eval" or not path.is_file():
            return {}
        import wandb

        try:
            found = read_trajectories(path, self._options.table)
        except ValueError as error:
            self._report(str(error))
            return {}
        shown: dict[str, Any] = {
            f"{name}_histogram": wandb.Histogram(v) for name, v in found.histograms.items()
        }
        if found.table:
            shown["trajectories"] = wandb.Table(columns=list(TABLE_COLUMNS), data=found.table)
        return shown

    def _artifacts(self, final: bool) -> None:
        """Uploads complete checkpoints: every one, or at the end the newest."""
        wanted = self._options.checkpoints
        if self._run is None or wanted == "none" or (wanted == "last" and not final):
            return
        import wandb

        found = sorted(path.parent for path in (self._dir / "checkpoints").glob(f"[0-9]*/{STATE_FILE}"))
        for path in found[-1:] if wanted == "last" else found:
            key = f"checkpoint {path.name}"
            if key in self._sent.names:
                continue
            artifact = wandb.Artifact(
                f"checkpoint-{self._run.id}", type="model", metadata={"update": int(path.name)}
            )
            artifact.add_dir(str(path))
            aliases = ["latest", f"update-{int(path.name)}"]
            if self._try(
                lambda run, artifact=artifact, aliases=aliases: run.log_artifact(artifact, aliases=aliases)
            ):
                self._sent.name(key)

    def _try(self, call: Callable[[Any], Any]) -> bool:
        """Whether a call to W&B went well; the first that does not is the last."""
        if self._run is None:
            return False
        import wandb

        try:
            call(self._run)
        except (wandb.errors.Error, OSError) as error:
            self._report(f"W&B failed ({error}); from here on metrics go to {METRICS_FILE} only")
            self._run = None
            return False
        return True


class _Sent:
    """What W&B has, as lines of a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        lines = [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
        head = lines[0] if lines else {}
        self.id: str | None = head.get("id")
        self.mode: str | None = head.get("mode")
        self.names = {line["name"] for line in lines if "name" in line}
        self._keys = {(line["update"], line["kind"]) for line in lines if "kind" in line}
        if lines and not text.endswith("\n"):
            path.write_text(text[: text.rfind("\n") + 1], encoding="utf-8")

    def __contains__(self, record: Record) -> bool:
        return (record["update"], _kind(record)) in self._keys

    def __len__(self) -> int:
        return len(self._keys)

    def open(self, number: str, mode: str) -> None:
        if self.id is None:
            self.id, self.mode = number, mode
            self._append({"id": number, "mode": mode})

    def add(self, record: Record) -> None:
        self._keys.add((record["update"], _kind(record)))
        self._append({"update": record["update"], "kind": _kind(record)})

    def name(self, name: str) -> None:
        self.names.add(name)
        self._append({"name": name})

    def _append(self, line: Mapping[str, Any]) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def _kind(record: Record) -> str:
    """Whether a record is about an evaluation alone, which may come late, or about the update."""
    return "eval" if all(name == "update" or name.startswith("eval/") for name in record) else "update"


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
