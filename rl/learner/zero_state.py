"""What DeepSpeed keeps for a resume: its shards, and how they become those of another number of ranks."""

from __future__ import annotations

import json
import shutil
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from os import devnull
from pathlib import Path
from typing import Any

from agent.ranks import Ranks
from rl.learner.engine import StateError

FOLDER, TAG, ABOUT = "deepspeed", "state", "shards.json"


class ZeroState:
    """Saves and loads the optimiser's state of a DeepSpeed engine.

    The shards are those of DeepSpeed: one per rank. Another number of ranks, and ZeRO-2 for ZeRO-1 or the
    other way round, go through DeepSpeed's universal format, made when it is needed and deleted when it is
    loaded. ZeRO-0 has no shards, so it loads into any number of ranks; the state of ZeRO-3 is cut differently
    from that of 1 and 2, and no converter of the library leads from one to the other.
    """

    def __init__(
        self,
        engine: Any,
        zero_stage: int,
        ranks: Ranks,
        *,
        adapted: bool,
        convert: Callable[[Namespace], object],
    ) -> None:
        """Keeps hold of the engine.

        Args:
            engine: A `deepspeed.DeepSpeedEngine`.
            zero_stage: Its stage.
            ranks: A channel of the engine's ranks.
            adapted: Whether only adapters are trained: then the frozen weights are left out.
            convert: `deepspeed.checkpoint.ds_to_universal.main`.
        """
        self._engine, self._zero_stage, self._ranks = engine, zero_stage, ranks
        self._adapted, self._convert = adapted, convert

    def save(self, folder: Path) -> None:
        """Writes every rank's shard below `folder`."""
        self._engine.save_checkpoint(
            str(folder / FOLDER), tag=TAG, save_latest=False, exclude_frozen_parameters=self._adapted
        )
        if self._ranks.rank == 0:
            masters = self._engine.bfloat16_enabled()
            about = {"ranks": self._ranks.size, "zero_stage": self._zero_stage, "masters": masters}
            (folder / FOLDER / ABOUT).write_text(json.dumps(about) + "\n", encoding="utf-8")

    def load(self, folder: Path) -> None:
        """Reads what `save` wrote.

        Raises:
            StateError: it is another engine's, or of a stage that cannot become this one's; or without ZeRO,
                it is of float32 adapters beside bfloat16 weights, as older versions had them.
        """
        shards = folder / FOLDER
        if not (shards / TAG).is_dir() or not (shards / ABOUT).is_file():
            raise StateError(f"{folder} holds no DeepSpeed state ({FOLDER}/): another engine wrote it")
        about = json.loads((shards / ABOUT).read_text(encoding="utf-8"))
        ranks, stage = about["ranks"], about["zero_stage"]
        old = self._adapted and self._engine.bfloat16_enabled() and not about.get("masters")
        if old and stage == 0:
            raise StateError(
                f"{folder} holds float32 adapters beside bfloat16 weights, written without ZeRO "
                "(train.zero_stage=0), which only older versions read. Start a new run from its weights "
                f"(model.path={folder})"
            )
        if stage == self._zero_stage and (ranks == self._ranks.size or stage == 0):
            self._load(shards, TAG)
            return
        if _family(stage) != _family(self._zero_stage) or stage == 0 or self._zero_stage == 0:
            raise StateError(
                f"{folder} was written with train.zero_stage={stage}, and DeepSpeed cannot turn that into "
                f"{self._zero_stage}: go on with {stage}" + (" (or 1 ↔ 2)" if stage in (1, 2) else "")
            )
        self._load_converted(shards / TAG, folder.parent / f".{folder.name}.universal")

    def _load_converted(self, source: Path, target: Path) -> None:
        """Converts on rank 0 into `target`, which every rank must see; deletes it when all have read it."""
        problem = self._ranks.share(self._universal(source, target) if self._ranks.rank == 0 else None)
        if problem:
            raise StateError(f"{source} cannot be converted for {self._ranks.size} ranks: {problem}")
        config = self._engine._config
        config.load_universal_checkpoint = True
        try:
            self._load(target.parent, target.name)
        finally:
            config.load_universal_checkpoint = False
        self._ranks.gather(None)  # all have read it
        if self._ranks.rank == 0:
            shutil.rmtree(target)

    def _universal(self, source: Path, target: Path) -> str:
        """Writes the universal form of `source`; returns what went wrong, nothing if nothing did."""
        shutil.rmtree(target, ignore_errors=True)
        options = Namespace(
            input_folder=str(source),
            output_folder=str(target),
            num_extract_workers=1,
            num_merge_workers=1,
            keep_temp_folder=False,
            strict=True,
            inject_missing_state=True,
        )
        try:
            with open(devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
                self._convert(options)
        except Exception as error:  # said on every rank, else the others would wait for this one
            shutil.rmtree(target, ignore_errors=True)
            return f"{type(error).__name__}: {error}"
        (target.parent / "latest_universal").unlink(missing_ok=True)
        return ""

    def _load(self, folder: Path, tag: str) -> None:
        with self._float32_names(folder / tag):
            self._engine.load_checkpoint(str(folder), tag=tag, load_module_strict=not self._adapted)

    @contextmanager
    def _float32_names(self, shards: Path) -> Iterator[None]:
        """Inside, the shards of adapters are found that were float32 when they were saved.

        Their masters are those adapters: the shards hold the same under other names.
        """
        engine = self._engine
        if not (self._adapted and engine.bfloat16_enabled()) or any(shards.glob("bf16_*")):
            yield
            return
        names = engine._get_all_zero_checkpoint_names
        engine._get_all_zero_checkpoint_names = lambda folder, tag, _: names(folder, tag, False)
        try:
            yield
        finally:
            engine._get_all_zero_checkpoint_names = names


def _family(stage: int) -> int:
    """Stages of one family are cut alike."""
    return {0: 0, 1: 1, 2: 1, 3: 3}[stage]
