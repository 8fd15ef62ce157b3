"""`run.py warmstart`: makes an embedded policy from an expert's walks, with its provenance."""

from __future__ import annotations

import hashlib
import json
import platform
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from commands.build.evaluation import evaluation
from commands.build.models import ROOT, prompt_builder
from commands.build.policy import ready_policy
from commands.build.tasks import eval_tasks
from commands.build.terminal import open_console, quiet_libraries, use_threads
from configs.load import load
from configs.seeds import derive
from configs.text import ConfigError
from envs.worlds import open_world, world_class
from eval.result import EvalResult
from rl.warmstart.embedded import Architecture, build_model, train_tokenizer
from rl.warmstart.training import STATE_FILE, Warmstart, WarmstartOptions, corpus

TOKENIZER_SHARDS = 4
ASSETS = ROOT / "agent" / "assets"
PROVENANCE = "provenance.json"
LOG = "warmstart.jsonl"


def run(
    experiment: str,
    work: Path | None,
    out: Path | None,
    *,
    tokens: int | None,
    seed: int,
    threads: int,
    shards: int | None,
) -> None:
    """Trains, evaluates on the experiment's held-out games and writes a Hugging Face folder.

    Args:
        experiment: Whose prompts and held-out tasks are used; its world has the lessons.
        work: Holds the state after each shard; a run found there is continued. None: a folder in runs/.
        out: Folder of the finished policy; `work`/policy if None.
        tokens: Tokens to train on, in all; as shipped if None.
        seed: Seeds everything.
        threads: CPU threads (0: all cores).
        shards: Stop after this many shards, unfinished; None runs to the end.

    Raises:
        ConfigError: Nobody demonstrates this environment.
    """
    config = load(experiment).config
    name = config.env.name
    curriculum = world_class(name).lessons()
    if curriculum is None:
        raise ConfigError(f"there is no expert to learn from for env.name={name}: its world has no `lessons`")
    work = work or Path("runs") / f"warmstart-{name}-s{seed}"
    use_threads(threads)
    quiet_libraries()
    options = WarmstartOptions(tokens or curriculum.tokens, seed=seed)
    arch = Architecture(**curriculum.policy)
    console = open_console()
    console.print(f"tokenizer: {arch.vocab} tokens, from {TOKENIZER_SHARDS} shards of demonstrations")
    tokenizer = train_tokenizer(corpus(curriculum.lessons, seed, TOKENIZER_SHARDS), arch)
    model = build_model(arch, tokenizer, derive(seed, "warmstart", "weights"))
    prompts = prompt_builder(config, tokenizer)
    warmstart = Warmstart(model, tokenizer, prompts, curriculum.lessons, options)
    if (work / STATE_FILE).exists():
        _go_on(warmstart, work)
        console.print(f"going on after shard {warmstart.shard} ({warmstart.seen / 1e6:.1f} M tokens)")
    record = _Record(warmstart, work, shards, console)
    try:
        warmstart.run(record)
    except _Stopped:
        console.print(f"stopped after shard {warmstart.shard}; the same command goes on")
        return
    policy = ready_policy(config, model.eval(), prompts)
    world = open_world(config.env)
    tasks = eval_tasks(config, world)[0].tasks
    result = evaluation(config, policy, prompts, tasks, world.make_env)
    console.print(result.table(f"held-out tasks of {experiment}, temperature {result.temperature}"))
    folder = out or work / "policy"
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    document = _provenance(folder, experiment, warmstart, arch, result, record)
    text = json.dumps(document, indent=2)
    (folder / PROVENANCE).write_text(f"{text}\n", encoding="utf-8")
    print(f"{_compare(json.loads(text), ASSETS / f'{name}-tiny')} · {folder}")


class _Stopped(Exception):
    """The requested number of shards is done, and there are more."""


class _Record:
    """Called after each shard: saves the state, appends a line to the log, prints progress."""

    def __init__(self, warmstart: Warmstart, work: Path, shards: int | None, console: Any) -> None:
        self._work, self._shards, self._console = work, shards, console
        self._log = work / LOG
        lines = self._log.read_text(encoding="utf-8").splitlines() if self._log.exists() else []
        kept = [json.loads(line) for line in lines][: warmstart.shard]
        self.losses = [line["loss"] for line in kept]
        self.seconds = kept[-1]["seconds"] if kept else 0.0
        self._before, self._began, self._seen = self.seconds, time.monotonic(), warmstart.seen

    def __call__(self, warmstart: Warmstart, loss: float) -> None:
        """Raises `_Stopped` after the last shard asked for."""
        warmstart.save(self._work)
        elapsed = time.monotonic() - self._began
        self.seconds = self._before + elapsed
        self.losses.append(loss)
        line = {"shard": warmstart.shard, "tokens": warmstart.seen, "loss": loss, "seconds": self.seconds}
        with self._log.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        speed = (warmstart.seen - self._seen) / elapsed
        left = max(0, warmstart.options.tokens - warmstart.seen) / speed
        self._console.print(
            f"shard {warmstart.shard:4d}  {warmstart.seen / 1e6:6.2f} M tokens  loss {loss:.4f}  "
            f"{speed:,.0f} tokens/s  {left / 60:.0f} min left"
        )
        if self._shards is not None and warmstart.shard >= self._shards and left > 0:
            raise _Stopped


def _go_on(warmstart: Warmstart, work: Path) -> None:
    try:
        warmstart.load(work)
    except ValueError as error:
        raise ConfigError(str(error)) from error


def _provenance(
    folder: Path,
    experiment: str,
    warmstart: Warmstart,
    arch: Architecture,
    result: EvalResult,
    record: _Record,
) -> dict[str, Any]:
    """Everything needed to make the folder again and to see that it is the same."""
    import torch
    import transformers

    weights = folder / "model.safetensors"
    low, high = result.ci
    options = asdict(warmstart.options)
    return {
        "command": f"python run.py warmstart --experiment {experiment} --tokens {options['tokens']} "
        f"--seed {options['seed']}",
        "options": options,
        "lessons": asdict(warmstart.lessons),
        "architecture": asdict(arch),
        "parameters": sum(p.numel() for p in warmstart.model.parameters()),
        "shards": warmstart.shard,
        "tokens_seen": warmstart.seen,
        "minutes": round(record.seconds / 60, 1),
        "losses": [round(loss, 4) for loss in record.losses],
        "evaluation": {
            "experiment": experiment,
            "tasks": result.n,
            "temperature": result.temperature,
            "success": round(result.success, 4),
            "lo": round(low, 4),
            "hi": round(high, 4),
            "score": round(result.overall.score, 4),
            "per_family": {family: round(counted.rate, 4) for family, counted in result.per_family.items()},
        },
        "tolerance": "another machine's rounding gives other weights; success agrees within the interval",
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        },
        "sha256": {weights.name: hashlib.sha256(weights.read_bytes()).hexdigest()},
    }


def _compare(made: Mapping[str, Any], folder: Path) -> str:
    """The result in one line, with the shipped policy's if that was made with the same options."""
    figures = made["evaluation"]
    rate = f"{figures['success']:.2f} [{figures['lo']:.2f},{figures['hi']:.2f}]"
    line = f"success {rate} on {figures['tasks']} tasks"
    shipped = folder / PROVENANCE
    if not shipped.exists():
        return line
    theirs = json.loads(shipped.read_text(encoding="utf-8"))
    if any(made[key] != theirs[key] for key in ("options", "lessons", "architecture")):
        return f"{line} (the shipped policy has other options)"
    success = theirs["evaluation"]["success"]
    inside = figures["lo"] <= success <= figures["hi"]
    same = made["sha256"] == theirs["sha256"]
    verdict = "the same weights" if same else "inside the interval" if inside else "OUTSIDE the interval"
    return f"{line}; shipped: {success:.2f}, {verdict}"
