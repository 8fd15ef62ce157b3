"""The checks of several processes: started, killed, and reported."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from queue import Empty
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress

from bench.check_gpu.checks import CHECKS, Bench, run_checks
from bench.check_gpu.report import Result, environment, markdown
from bench.check_gpu.single import SIZES
from bench.ranks import Case, Trained, train_case

KILLED = "killed rank"
PATIENCE_S = 900.0  # for one check: a first start of vLLM compiles for minutes
VICTIM = Path(__file__).with_name("victim.py")


def check_several(nproc: int, size: str, backend: str, out: Path) -> bool:
    """Runs all checks in `nproc` processes and writes the report; returns whether none failed.

    Args:
        nproc: Processes, one per GPU where there are any.
        size: Of the model: a key of `SIZES`.
        backend: Of the sampler: auto, vllm or torch.
        out: Folder of the report: report.md, results.json, environment.txt and a log per rank.
    """
    out.mkdir(parents=True, exist_ok=True)
    console = Console(highlight=False)
    facts, frozen = environment()
    (out / "environment.txt").write_text(frozen, encoding="utf-8")
    with Progress(console=console, transient=True) as progress:
        bar = progress.add_task("one process, for comparison", total=len(CHECKS) + 2)
        expected = {lora: train_case(Case(None, lora=lora, updates=2)) for lora in (False, True)}
        progress.advance(bar)
        results = _in_ranks(
            nproc,
            size,
            backend,
            expected,
            out,
            lambda name: progress.update(bar, advance=1, description=name),
        )
        results.append(_killed(nproc))
    command = f"python -m bench.check_gpu --size {size} --nproc {nproc} --backend {backend}"
    text = markdown(command, nproc, facts, results)
    (out / "report.md").write_text(text, encoding="utf-8")
    document = {"command": command, "facts": facts, "results": [asdict(one) for one in results]}
    (out / "results.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(text)
    print(f"all there is to reproduce it: {out}")
    return all(one.outcome != "failed" for one in results)


def _in_ranks(
    nproc: int, size: str, backend: str, expected: dict[bool, Trained], out: Path, tell: Any
) -> list[Result]:
    """The checks that all ranks run together; each has its worst outcome and longest time on any rank."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    said = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        SIZES[size].config().save_pretrained(folder)
        arguments = (said, nproc, port, size, backend, folder, expected, str(out))
        processes = [
            context.Process(target=_rank, args=(rank, *arguments), daemon=True) for rank in range(nproc)
        ]
        for process in processes:
            process.start()
        results: list[Result] = []
        early: list[Result] = []
        try:
            for name in CHECKS:
                results.append(_collect(name, said, processes, early))
                tell(name)
                if results[-1].outcome == "lost":
                    break
        finally:
            for process in processes:
                process.join(20)
                process.kill()
    ran = {one.name for one in results}
    rest = [Result(name, "skipped", "a rank was lost before", 0.0) for name in CHECKS if name not in ran]
    return [
        one if one.outcome != "lost" else Result(one.name, "failed", one.figure, one.seconds)
        for one in results
    ] + rest


def _collect(name: str, said: Any, processes: list[Any], early: list[Result]) -> Result:
    """What all ranks say of a check; `lost` if one is gone or silent.

    A queue keeps the order of one process's messages only, so what is said of later checks waits in `early`.
    """
    answers = [one for one in early if one.name == name]
    began = time.monotonic()
    while len(answers) < len(processes):
        try:
            one = said.get(timeout=1.0)
            (answers if one.name == name else early).append(one)
        except Empty:
            gone = [rank for rank, process in enumerate(processes) if process.exitcode not in (None, 0)]
            if gone or time.monotonic() - began > PATIENCE_S:
                why = f"rank {gone[0]} ended with {processes[gone[0]].exitcode}" if gone else "no answer"
                return Result(name, "lost", why, time.monotonic() - began)
    order = ("failed", "skipped", "passed")
    worst = min(answers, key=lambda one: order.index(one.outcome))
    return Result(name, worst.outcome, worst.figure, max(one.seconds for one in answers))


def _rank(
    rank: int, said: Any, nproc: int, port: int, size: str, backend: str, folder: str, expected: Any, out: str
) -> None:
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(nproc),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    log = open(Path(out) / f"rank-{rank}.log", "w", buffering=1)  # noqa: SIM115  (until the process ends)
    os.dup2(log.fileno(), 1)
    os.dup2(log.fileno(), 2)
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // nproc))
    run_checks(
        Bench(SIZES[size], backend, Path(folder), expected),
        lambda name, outcome, figure, seconds: said.put(Result(name, outcome, figure, seconds)),
    )


def _killed(nproc: int) -> Result:
    """A rank that is killed ends all, and is named."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        code = "import sys; from pathlib import Path; from commands.launch import launch; "
        code += f"sys.exit(launch({nproc}, [{folder!r}], Path({str(VICTIM)!r})))"
        paths = os.pathsep.join(filter(None, (os.getcwd(), os.environ.get("PYTHONPATH"))))
        running = subprocess.Popen(
            [sys.executable, "-c", code],
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": paths},
        )
        try:
            pids = _pids(Path(folder), nproc, running)
            os.kill(pids[nproc - 1], signal.SIGKILL)
            killed = time.perf_counter()
            _, errors = running.communicate(timeout=120)
        except (OSError, RuntimeError, subprocess.TimeoutExpired) as error:
            return Result(KILLED, "failed", f"{type(error).__name__}: {error}", time.perf_counter() - began)
        finally:
            running.kill()
    seconds = time.perf_counter() - began
    last = (errors.strip().splitlines() or [""])[-1]
    left = [pid for pid in pids if Path(f"/proc/{pid}").exists()]
    if running.returncode == 0 or f"rank {nproc - 1}" not in last or left:
        return Result(KILLED, "failed", f"exit {running.returncode}, {len(left)} left, said: {last}", seconds)
    return Result(KILLED, "passed", f"all ended {time.perf_counter() - killed:.1f} s later; {last}", seconds)


def _pids(folder: Path, nproc: int, running: subprocess.Popen[str]) -> list[int]:
    """Process ids of the ranks, once all have met."""
    deadline = time.monotonic() + 120
    while running.poll() is None and time.monotonic() < deadline:
        texts = [(folder / str(rank)).read_text() for rank in range(nproc) if (folder / str(rank)).exists()]
        if len(texts) == nproc and all(texts):
            return [int(text) for text in texts]
        time.sleep(0.1)
    raise RuntimeError("the ranks did not meet")
