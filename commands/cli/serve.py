"""`run.py serve` and `run.py serve-policy` on the command line; `commands.serve_environments` and
`commands.serve_policy` do the work.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from commands.cli.types import Certificate, Experiment, Host, Overrides, PrivateKey, Rate

serve_app = typer.Typer()


@serve_app.command(
    epilog="Examples: [bold]run.py serve alfworld[/] · [bold]run.py serve alfworld_cpu_long --port 8102[/] · "
    "[bold]run.py serve webshop --host 0.0.0.0 --token-file TOKEN env.data=data/webshop[/]. "
    "Then: [bold]run.py train alfworld_cpu env.urls=http://127.0.0.1:8101[/]. docs/envs.md",
)
def serve(
    what: Annotated[
        str,
        typer.Argument(
            metavar="EXPERIMENT", help="alfworld, webshop, or an experiment that has the environment."
        ),
    ],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="[env.key=value]…", help="Overrides of env options; later ones win."),
    ] = None,
    host: Host = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any free port.")] = 8101,
    workers: Annotated[
        int | None,
        typer.Option(min=0, help="Processes that play (default: one per core; 0: the server's own)."),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            help="File with the token that clients must send (default: the variable SIBLING_ENV_TOKEN)."
        ),
    ] = None,
    certificate: Certificate = None,
    private_key: PrivateKey = None,
    sessions: Annotated[int, typer.Option(min=1, help="Limit of trajectories open at once.")] = 4096,
    idle: Annotated[float, typer.Option(min=1.0, help="Seconds until an idle trajectory is closed.")] = 600.0,
    body: Annotated[int, typer.Option(min=1024, help="Limit of a request, in bytes.")] = 32 * 2**20,
    rate: Rate = 2000.0,
    drain: Annotated[
        float, typer.Option(min=0.0, help="Seconds that open trajectories may take to end after SIGTERM.")
    ] = 30.0,
) -> None:
    """Serve environments to training runs on this or other machines, over HTTP."""
    from commands.serve_environments import Address, SessionLimits, run

    run(
        what,
        overrides or [],
        address=Address(host, port, certificate, private_key),
        workers=workers,
        limits=SessionLimits(sessions, idle, body, rate),
        token_file=token_file,
        drain_seconds=drain,
    )


@serve_app.command(
    "serve-policy",
    epilog="Examples: [bold]run.py serve-policy alfworld_cpu[/] · [bold]run.py serve-policy alfworld_7b "
    "generator.backend=vllm --host 0.0.0.0 --token-file TOKEN[/]. Then: [bold]run.py train alfworld_cpu "
    "generator.backend=server generator.urls=http://127.0.0.1:8201[/]. docs/gpu.md",
)
def serve_policy(
    experiment: Experiment,
    overrides: Overrides = None,
    host: Host = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any free port.")] = 8201,
    token_file: Annotated[
        Path | None,
        typer.Option(
            help="File with the token that clients must send (default: the variable SIBLING_POLICY_TOKEN)."
        ),
    ] = None,
    certificate: Certificate = None,
    private_key: PrivateKey = None,
    conversations: Annotated[int, typer.Option(min=1, help="Limit of conversations open at once.")] = 16384,
    idle: Annotated[
        float, typer.Option(min=1.0, help="Seconds until a silent client's conversations are closed.")
    ] = 600.0,
    body: Annotated[int, typer.Option(min=2**17, help="Limit of a request, in bytes.")] = 256 * 2**20,
    rate: Rate = 2000.0,
    drain: Annotated[
        float, typer.Option(min=0.0, help="Seconds that responses in flight may take to end after SIGTERM.")
    ] = 30.0,
) -> None:
    """Serve a policy to training runs: it samples for them with the weights they send."""
    from commands.serve_policy import Address, ConversationLimits, run

    run(
        experiment,
        overrides or [],
        address=Address(host, port, certificate, private_key),
        limits=ConversationLimits(conversations, idle, body, rate),
        token_file=token_file,
        drain_seconds=drain,
    )
