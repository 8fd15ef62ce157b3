"""Opens what a run's metrics are copied to: the log of alarms, W&B and TensorBoard."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from configs.load import plain
from configs.schema import Config
from rl.tracking.alarms import AlarmLog
from rl.tracking.tracker import Mirror


def mirrors(config: Config, run_dir: Path, report: Callable[[str], None]) -> list[Mirror]:
    """Opens the log of alarms, and W&B and TensorBoard if the configuration asks for them."""
    logging = config.logging
    found: list[Mirror] = [AlarmLog(run_dir, report)]
    if logging.wandb != "off":
        from rl.tracking.wandb_mirror import WandbMirror, WandbOptions

        options = WandbOptions(
            mode=logging.wandb,
            project=logging.project,
            entity=logging.entity,
            group=logging.group or config.name,
            tags=[config.env.label, config.credit.name, config.scorer.name, *logging.tags],
            table=logging.table,
            checkpoints=logging.checkpoints,
        )
        found.append(WandbMirror(run_dir, options, plain(config), report))
    if logging.tensorboard:
        from rl.tracking.tensorboard_mirror import TensorboardMirror

        found.append(TensorboardMirror(run_dir, report))
    return found
