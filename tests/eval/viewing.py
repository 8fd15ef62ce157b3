"""A viewer over made run folders, for the tests of its pages."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import uvicorn
from fastapi import FastAPI
from starlette.testclient import TestClient

from commands.replay import methods_of
from commands.view import offered, problem
from eval.view.app import create_app
from tests.eval.synthetic import RunWriter, result, toy_groups

HOSTILE = "<script>window.spoiled = 1</script><img src=x onerror='window.spoiled = 1'>"


def make_runs(root: Path) -> RunWriter:
    """Writes two runs: `alpha` finished, with an observation that tries to run a script, and `beta`, GRPO."""
    alpha = RunWriter(root / "alpha", overrides=["seed=3", "train.updates=2"])
    alpha.evaluate(0, result([1, 0, 0, 0], families=2))
    for update in (1, 2):
        groups = toy_groups(update)
        step = groups[0][0].steps[0]
        groups[0][0].instruction = HOSTILE
        for name, value in {"text": HOSTILE, "anchor": HOSTILE, "admissible": (HOSTILE,)}.items():
            object.__setattr__(step.observation, name, value)
        step.response, step.thought, step.action = f"<think>{HOSTILE}", HOSTILE, HOSTILE
        alpha.update(update, groups)
    alpha.evaluate(2, result([1, 1, 1, 0], families=2, version=2))
    beta = RunWriter(root / "beta", method="grpo", overrides=["seed=4", "train.updates=5"])
    beta.update(1, toy_groups(7))
    return alpha


def application(root: Path) -> FastAPI:
    """The application as `run.py view` makes it."""
    return create_app(root, methods_of, offered(), problem)


def client(root: Path) -> TestClient:
    """Asks the application as a browser on this machine would."""
    return TestClient(application(root), base_url="http://127.0.0.1")


@contextmanager
def serving(root: Path) -> Iterator[str]:
    """Serves the application on a free port of this machine; yields its address."""
    server = uvicorn.Server(uvicorn.Config(application(root), port=0, log_level="warning"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


def rows(path: Path) -> list[dict]:
    """The rows of a parquet file."""
    return pq.read_table(path).to_pylist()


def rewrite(path: Path, **columns: list) -> None:
    """Adds columns to a parquet file, or takes away those given as None."""
    table = pq.read_table(path)
    for name, values in columns.items():
        if name in table.column_names:
            table = table.drop_columns([name])
        if values is not None:
            table = table.append_column(name, pa.array(values))
    pq.write_table(table, path)
