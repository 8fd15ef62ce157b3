"""`run.py eval` and `run.py report`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from commands.build import checkpoints
from commands.build.evaluation import evaluation
from commands.build.models import model_and_tokenizer, prompt_builder, tell_thinking
from commands.build.policy import ready_policy
from commands.build.pools import open_pool
from commands.build.tasks import FOLDER, eval_tasks
from commands.build.terminal import open_console, use_threads
from commands.provenance import provenance
from configs.load import load, load_run
from configs.text import ConfigError
from envs.worlds import open_world
from eval.manifest import Manifest
from eval.summary import passes_text, played_text, score_text, success_text


def run(
    experiment: str | None,
    overrides: Sequence[str],
    run_dir: Path | None,
    out: Path | None,
    *,
    best: bool = False,
) -> None:
    """Evaluates an experiment's starting policy, or the newest or best checkpoint of a run."""
    if (experiment is None) == (run_dir is None):
        raise ConfigError(
            "evaluate either an experiment (`run.py eval alfworld_cpu`) or a run (`--run runs/ID`)"
        )
    if best and run_dir is None:
        raise ConfigError("--best is a checkpoint of a run: say which, with --run runs/ID")
    loaded = load(experiment, overrides) if run_dir is None else load_run(run_dir, overrides)
    config = loaded.config
    checkpoint = None if run_dir is None else (checkpoints.best if best else checkpoints.newest)(run_dir)
    use_threads(config.threads)
    world = open_world(config.env)
    chosen, manifest = eval_tasks(config, world)
    tasks = chosen.tasks
    model, tokenizer = model_and_tokenizer(config, checkpoint and checkpoint.path)
    prompts = prompt_builder(config, tokenizer)
    console = open_console()
    tell_thinking(prompts, console)
    listed = manifest.write(_manifest_file(config.name, manifest, run_dir, out))
    console.print(f"{manifest.n} of {manifest.of} tasks of {manifest.split}: {manifest.counts}")
    absent = f"absent families: {', '.join(manifest.absent)}" if manifest.absent else None
    if absent:
        console.print(absent)
    console.print(f"manifest {listed}, hash {manifest.hash}")
    if checkpoint is not None:
        console.print(str(checkpoint), markup=False)
    name = str(checkpoint.path if checkpoint else config.model.path)
    attempts, noun = len(tasks) * config.eval.samples, "tasks" if config.eval.samples == 1 else "attempts"
    with (
        open_pool(config.env, world) as pool,
        console.status(f"{name}: {attempts} {noun}") as status,
    ):
        result = evaluation(
            config,
            ready_policy(config, model, prompts),
            prompts,
            tasks,
            pool,
            lambda done, tokens: status.update(f"{name}: {done}/{attempts} {noun}, {tokens} tokens"),
        )
    table = result.table(f"{name} on {config.eval.split}")
    table.caption = absent
    console.print(table)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        told = {"provenance": provenance(config, checkpoint and checkpoint.path, run_dir, manifest, listed)}
        document = told | json.loads(result.to_json())
        out.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    if checkpoint is not None and best:
        console.print(checkpoints.splits(run_dir, checkpoint, config.eval.split), markup=False)
    score = f", score {score_text(result)}" if result.graded else ""
    played = played_text(result, world.noun)
    figures = f"{success_text(result)}{score}{passes_text(result)}"
    print(f"held-out success {figures} on {played} of {config.eval.split}")


def report(run_dirs: Sequence[Path], out: Path | None) -> None:
    """Writes the report of a run and its summary again, or one report on several runs."""
    if len(run_dirs) == 1 and out is None:
        from eval.report.run_report import write_report
        from eval.summary import write_summary

        path = write_report(run_dirs[0])
        write_summary(run_dirs[0])
    else:
        from eval.report.variants_report import write_comparison

        path = write_comparison(run_dirs, out or Path("runs") / "report.html")
    print(f"wrote {path}")


def _manifest_file(experiment: str, manifest: Manifest, run_dir: Path | None, out: Path | None) -> Path:
    """Where the list of tasks is written: next to `out`, else into the run's folder, else into runs/."""
    if out is not None:
        return out.with_name(f"{out.stem}.manifest.json")
    tasks = f"{manifest.split}-{manifest.n}-{manifest.hash[:8]}.json"
    if run_dir is not None:
        return run_dir / FOLDER / f"eval-{tasks}"
    return Path("runs") / FOLDER / f"{experiment}-{tasks}"
