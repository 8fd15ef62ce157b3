"""`run.py view`: starts the viewer on 127.0.0.1."""

from __future__ import annotations

import socket
import webbrowser
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

import uvicorn

from commands.replay import SERVICES, methods_of
from configs.load import CONFIGS, read_config
from configs.text import ConfigError
from credit.pipeline import Pipeline
from eval.replay.recorded import RUN_TOKENS
from eval.view.app import create_app

HOST = "127.0.0.1"
PORT = 8765
"""The default port, if it is free."""


def run(folder: Path, port: int | None, open_browser: bool) -> None:
    """Serves the runs below `folder`, or the one run that `folder` is, until it is interrupted."""
    if not folder.is_dir():
        raise ConfigError(f"there is no folder {folder}: give the folder of your runs (`run.py view runs/`)")
    alone = (folder / "config.json").is_file()
    root = folder.resolve().parent if alone else folder
    app = create_app(root, methods_of, offered(), problem)
    listener = _listen(port)
    url = f"http://{HOST}:{listener.getsockname()[1]}/" + (
        f"runs/{quote(folder.resolve().name)}" if alone else ""
    )
    print(f"viewer of {folder} at {url} (Ctrl-C ends it)", flush=True)
    if open_browser:
        webbrowser.open(url)
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])


def offered() -> Mapping[str, str]:
    """Returns {credit method: why it cannot be computed from a recording, "" if it can}."""
    return {path.stem: _reason(path) for path in sorted((CONFIGS / "credit").glob("*.yaml"))}


def problem(run_dir: Path) -> str | None:
    """Returns why this version cannot read a run's configuration, None if it can."""
    try:
        read_config(run_dir / "config.json")
    except ConfigError as error:
        return f"made by another version, so methods cannot be recomputed: {error}"
    return None


def _reason(path: Path) -> str:
    try:
        pipeline = Pipeline.from_yaml(path)
    except ValueError as error:  # one broken method file must not stop the viewer
        return str(error)
    needs = sorted({*(pipeline.requires - SERVICES), *(pipeline.token_columns - RUN_TOKENS)})
    return f"needs {', '.join(needs)}, which no recording has" if needs else ""


def _listen(port: int | None) -> socket.socket:
    """Opens a socket on `port`; if that is None, on the default port or else on any free one."""
    for number in (port,) if port is not None else (PORT, 0):
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, number))
        except OSError:
            listener.close()
            continue
        return listener
    raise ConfigError(f"port {port} is taken on {HOST}: leave --port out, and a free one is found")
