"""Many runs: `run.py sweep | ablate | list | compare` on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

experiments_app = typer.Typer()

Shared = Annotated[
    list[str] | None, typer.Argument(metavar="[key=value]…", help="Overrides that all runs share.")
]
Parallel = Annotated[
    int | None,
    typer.Option(
        min=1, help="Runs at a time (default: one per GPU; without GPUs, cores / the experiment's threads)."
    ),
]
LauncherName = Annotated[
    str, typer.Option("--launcher", help="local, slurm (needs submitit) or ray (needs a Ray cluster).")
]
LauncherOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--launcher-option",
        metavar="KEY=VALUE",
        help="For slurm: slurm_partition, gpus_per_node, timeout_min, …; for ray: gpus (per run), address.",
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", help="Folder of all runs (default: a folder in runs/sweeps/ or runs/ablations/)."
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Check every run and print its command; start none.")]


@experiments_app.command(
    epilog="Examples: [bold]run.py sweep scpo_theta_lambda_alpha[/] · "
    "[bold]run.py sweep FILE.yaml --parallel 4 train.updates=20[/] · "
    "[bold]run.py sweep FILE.yaml --wandb[/]. "
    "If it is killed, the same command goes on; finished runs are never repeated. docs/experiments.md"
)
def sweep(
    file: Annotated[
        str, typer.Argument(help="A file in configs/sweeps/, or a path: the format of W&B sweeps.")
    ],
    overrides: Shared = None,
    parallel: Parallel = None,
    count: Annotated[
        int | None,
        typer.Option(
            min=1, help="Number of points, each run with every seed (random and bayes need a limit)."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the points that random and bayes draw.")] = 0,
    out: Out = None,
    launcher: LauncherName = "local",
    launcher_option: LauncherOptions = None,
    wandb: Annotated[
        bool, typer.Option("--wandb", help="Register the file as a W&B sweep and start its agents instead.")
    ] = False,
    dry_run: DryRun = False,
) -> None:
    """Run every point of a sweep with every seed; write its table and picture."""
    from commands.experiments import sweep as command
    from commands.experiments.launching import Options

    options = Options(parallel, count, seed, out, launcher, launcher_option or [], dry_run)
    if wandb:
        from commands.experiments.wandb_sweep import run

        raise typer.Exit(run(file, overrides or [], options))
    raise typer.Exit(1 if command.run(file, overrides or [], options) else 0)


@experiments_app.command(
    epilog="Examples: [bold]run.py ablate configs/ablations/scpo.yaml[/] · "
    "[bold]run.py ablate scpo --seeds 0,1,2,3,4 train.updates=80[/]. Resumable as sweeps are."
)
def ablate(
    file: Annotated[str, typer.Argument(help="A file in configs/ablations/, or a path.")],
    overrides: Shared = None,
    seeds: Annotated[
        str | None, typer.Option(metavar="N,N,…", help="Seeds of every variant, instead of the file's.")
    ] = None,
    parallel: Parallel = None,
    out: Out = None,
    launcher: LauncherName = "local",
    launcher_option: LauncherOptions = None,
    dry_run: DryRun = False,
) -> None:
    """Run named variants on matched seeds; write the table with intervals, paired tests and effect sizes."""
    from commands.experiments import ablate as command
    from commands.experiments.launching import Options

    try:
        chosen = [int(seed) for seed in (seeds or "").split(",") if seed.strip()]
    except ValueError as error:
        raise typer.BadParameter(f"--seeds takes whole numbers with commas between, got {seeds!r}") from error
    options = Options(
        parallel, out=out, launcher=launcher, launcher_options=launcher_option or [], dry_run=dry_run
    )
    raise typer.Exit(1 if command.run(file, overrides or [], chosen, options) else 0)


@experiments_app.command("list")
def list_runs(
    folder: Annotated[Path, typer.Argument(help="Folder to search for runs, with all folders below.")] = Path(
        "runs"
    ),
) -> None:
    """List runs: method, seed, success before and after, updates done, and records a crash has damaged."""
    from commands.experiments.runs import list_runs

    list_runs(folder)


@experiments_app.command(epilog="Example: [bold]run.py compare runs/ID runs/OTHER[/]")
def compare(
    a: Annotated[Path, typer.Argument(metavar="A", help="A run's folder.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="Another run's folder.")],
) -> None:
    """Compare two runs: options that differ, paired tests on the same tasks, last metrics."""
    from commands.experiments.runs import compare_runs

    compare_runs(a, b)
