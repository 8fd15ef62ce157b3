"""`run.py train`."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from agent.policy import Policy
from agent.prompts.builder import PromptBuilder
from agent.ranks import Ranks
from agent.steering.choose import steering
from commands.build.declared import check_world, credit_pipeline
from commands.build.evaluation import evaluation, rollout_options
from commands.build.learner import contract, join, make_learner, starting_policy
from commands.build.mirrors import mirrors
from commands.build.models import check_window, model_and_tokenizer, prompt_builder, tell_thinking
from commands.build.policy import make_policy
from commands.build.pools import open_pool
from commands.build.services import credit_services
from commands.build.tasks import check_begun, eval_tasks, train_tasks, write_manifests
from commands.build.teams import check_team_credit
from commands.build.terminal import check_accelerator, open_console, use_threads
from commands.processes import process_count
from commands.run_folder import record, start
from configs.check import validate
from configs.load import Loaded, plain
from configs.old_keys import recorded
from configs.schema import Config
from configs.text import ConfigError
from credit.pipeline import Pipeline
from credit.stages.tree_search import TreeSearch
from envs.base import Task
from envs.pools.pool import EnvPool
from envs.worlds import open_world
from eval.report.run_report import write_report
from eval.result import save_eval
from eval.runfolder import RunFolder
from eval.summary import result_line, write_summary
from rl.checkpoint import Checkpoints, TrainState
from rl.contract import Contract
from rl.learner.reference import Reference
from rl.loop import train
from rl.probes.probes import ProbeOptions
from rl.settings import Evaluate, Outputs, RolloutSettings, RunSchedule
from rl.tracking.progress import ProgressPanel
from rl.tracking.tracker import NoTracker, Tracker
from rl.tracking.trajectory_store import TrajectoryStore


def run(
    experiment: str | None,
    overrides: Sequence[str],
    resume: Path | None,
    out: Path | None = None,
    nproc: int | None = None,
) -> None:
    """Trains an experiment into `out` (or a new folder), or goes on with a run; prints its result at the end.

    `nproc` is the number of processes; without, `commands.processes` decides.
    """
    loaded, run_dir = start(experiment, overrides, resume, out)
    check_world(loaded)
    pipeline = credit_pipeline(loaded)
    check_accelerator(loaded.config)
    processes = process_count(loaded.config, pipeline, nproc)
    if processes > 1 and "RANK" not in os.environ:
        _launch(processes, experiment, overrides, resume, run_dir)
        return
    loaded = replace(loaded, config=loaded.config.model_copy(update={"processes": processes}))
    _train(loaded, pipeline, run_dir, resumed=resume is not None)


def _launch(
    nproc: int, experiment: str | None, overrides: Sequence[str], resume: Path | None, run_dir: Path
) -> None:
    """Starts `nproc` processes that train; exits with their code if they fail."""
    from commands.launch import launch

    place = ["--resume", str(run_dir)] if resume else ["--out", str(run_dir)]
    code = launch(nproc, ["train", *filter(None, [experiment]), *overrides, *place])
    if code and (run_dir / "checkpoints").is_dir():
        print(f"go on with: python run.py train --resume {run_dir} --nproc {nproc}", file=sys.stderr)
    if code:
        raise SystemExit(code)


def _train(loaded: Loaded, pipeline: Pipeline, run_dir: Path, *, resumed: bool) -> None:
    """Trains, in every process of a run; only the first process writes files."""
    config = loaded.config
    use_threads(config.threads)
    ranks = join(config)
    services = credit_services(config, pipeline, ranks)
    _check_ranks(config, pipeline, ranks)
    _check_votes(config, pipeline)
    check_team_credit(config, pipeline)
    run_dir = Path(ranks.share(str(run_dir)))
    lead = ranks.rank == 0
    console = open_console() if lead else Console(quiet=True)
    for note in loaded.notes:
        console.print(note, markup=False)
    model, tokenizer = model_and_tokenizer(config)
    size = sum(p.numel() for p in model.parameters())
    prompts = prompt_builder(config, tokenizer)
    tell_thinking(prompts, console)
    # Copies of the weights come before the engine, which may shard the model.
    policy = make_policy(config, model, prompts, run=ranks.share(secrets.token_hex(8)), sends=lead)
    probed = contract(config, model)
    reference = starting_policy(config, model, pipeline)
    learner = make_learner(config, model, reference)
    probing = _probing(config, model, learner.reference)
    console.print(f"making tasks ({config.env.name}, {config.env.data}) …")
    world = open_world(config.env)
    tasks, trained_on = train_tasks(config, world)
    held_out, evaluated_on = eval_tasks(config, world)
    manifests = {"train": trained_on, "eval": evaluated_on}
    if resumed:
        check_begun(run_dir, manifests)

    checkpoints = _checkpoints(config, run_dir, tokenizer, ranks)
    newest = checkpoints.latest()
    state = checkpoints.restore(newest, learner) if newest else TrainState()
    outputs = _outputs(loaded, run_dir, checkpoints, console, state.update if resumed else None, lead=lead)
    if lead:
        write_manifests(run_dir, manifests)
    console.print(
        f"{run_dir} · {pipeline.name.upper()} · {len(tasks)} tasks · {size / 1e6:.1f} M parameters"
        + (f" · {ranks.size} processes" if ranks.size > 1 else "")
        + (f" · resumed after update {state.update}" if newest else "")
    )
    if newest and config.checkpoint.keep_best and not state.best:
        console.print(
            f"no checkpoint of a best {config.checkpoint.keep_best} is kept so far: it is chosen among the "
            "evaluations from here on"
        )
    pool = open_pool(config.env, world)
    try:
        train(
            policy,
            learner,
            pipeline,
            settings=_settings(config, tasks.tasks, pool, prompts, pipeline, learner.engine.channel()),
            schedule=_schedule(config, probed),
            outputs=outputs,
            state=state,
            services=services,
            probing=probing,
            evaluate=_evaluator(config, run_dir, held_out.tasks, pool, prompts, ranks),
        )
    except KeyboardInterrupt:
        outputs.progress.say(f"stopped; go on with: python run.py train --resume {run_dir}")
        raise
    finally:
        pool.close()
        policy.close()
        outputs.progress.close()
        outputs.tracker.close()
    if lead:
        _finish(run_dir, console)


def _check_ranks(config: Config, pipeline: Pipeline, ranks: Ranks) -> None:
    """Refuses a tree search in several processes or with stale weights."""
    if not any(isinstance(stage, TreeSearch) for stage in pipeline.steers):
        return
    if ranks.size > 1 or config.rollout.staleness:
        raise ConfigError(
            f"credit method {pipeline.name!r} trains after every step of its search: it needs one process "
            f"and rollout.staleness=0, got {ranks.size} processes and {config.rollout.staleness}"
        )


def _check_votes(config: Config, pipeline: Pipeline) -> None:
    """Refuses filters that would choose groups before the mismatch mask is known."""
    train = config.train
    if pipeline.filters and train.mismatch == "mask" and train.masked_rows == "abstain":
        raise ConfigError(
            f"credit method {pipeline.name!r}: {pipeline.filters[0].name()} chooses groups while they are "
            "rolled out, before train.mismatch=mask knows which responses it leaves out: set "
            "train.masked_rows=vote, or another train.mismatch"
        )


def _checkpoints(
    config: Config, run_dir: Path, tokenizer: PreTrainedTokenizerBase, ranks: Ranks
) -> Checkpoints:
    return Checkpoints(
        run_dir / "checkpoints",
        keep=config.checkpoint.keep,
        tokenizer=tokenizer,
        config=plain(config),
        keep_best=config.checkpoint.keep_best,
        upgrade=lambda saved: plain(validate(recorded(saved), {}, where="its newest checkpoint")),
        ranks=ranks,
    )


def _outputs(
    loaded: Loaded,
    run_dir: Path,
    checkpoints: Checkpoints,
    console: Console,
    resume_update: int | None,
    *,
    lead: bool,
) -> Outputs:
    """Where a process's results go; only the first process writes more than checkpoints."""
    config = loaded.config
    progress = ProgressPanel(config.train.updates, config.trajectories, console)
    tracker = NoTracker()
    if lead:
        record(loaded, run_dir)
        tracker = Tracker(
            run_dir,
            mirrors=mirrors(config, run_dir, progress.say),
            resume_update=resume_update,
            report=progress.say,
        )
    store = TrajectoryStore(run_dir / "trajectories", config.logging.trajectories if lead else 0)
    return Outputs(tracker, checkpoints, store, progress)


def _schedule(config: Config, probed: Contract | None) -> RunSchedule:
    return RunSchedule(
        config.train.updates,
        config.seed,
        config.eval.every,
        config.checkpoint.every,
        config.rollout.staleness,
        probed,
        config.logging.trajectories if config.logging.learner_logp else 0,
    )


def _settings(
    config: Config,
    tasks: Sequence[Task],
    pool: EnvPool,
    prompts: PromptBuilder,
    pipeline: Pipeline,
    ranks: Ranks,
) -> RolloutSettings:
    return RolloutSettings(
        environments=pool,
        tasks=tasks,
        prompts=prompts,
        groups=config.rollout.groups,
        group_size=config.rollout.group_size,
        temperature=config.rollout.temperature,
        max_parallel=config.rollout.max_parallel,
        mask_truncated=config.train.mask_truncated,
        masked_rows=config.train.masked_rows,
        options=rollout_options(config, config.rollout.on_failure),
        early_stop=config.rollout.early_stop,
        steering=steering(pipeline.steers),
        ranks=ranks,
    )


def _probing(config: Config, model: PreTrainedModel, reference: Reference | None) -> ProbeOptions:
    probes = config.probes
    if probes.window is not None:
        check_window("probes.window", probes.window, config, model)
    return ProbeOptions(
        peer=probes.peer,
        window=probes.window,
        token_budget=config.train.token_budget,
        reference=reference,
        exact_sampler=config.generator.backend == "torch" and config.model.dtype == "float32",
    )


def _evaluator(
    config: Config,
    run_dir: Path,
    held_out: Sequence[Task],
    pool: EnvPool,
    prompts: PromptBuilder,
    ranks: Ranks,
) -> Evaluate:
    def evaluator(policy: Policy, update: int) -> Mapping[str, float]:
        result = evaluation(config, policy, prompts, held_out, pool, ranks=ranks)
        if ranks.rank == 0:
            save_eval(run_dir, update, result)
        return result.metrics()

    return evaluator


def _finish(run_dir: Path, console: Console) -> None:
    report = write_report(run_dir)
    write_summary(run_dir)
    run = RunFolder.read(run_dir)
    console.print(run.after.table(f"held-out, after {run.updates} updates"))
    print(result_line(run, report))
