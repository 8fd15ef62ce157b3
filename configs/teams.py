"""What else a run must be where processes hold one generator together (`generator.tensor_parallel`)."""

from __future__ import annotations


def check_team(size: int, backend: str, engine: str, staleness: int) -> None:
    """Raises a ValueError if the run's other options cannot go with teams of `size` processes."""
    if size == 1:
        return
    apart = "cards that wait for each other in a rollout and in training at once can wait for ever"
    for option, needed, got, why in (
        ("generator.backend", "vllm", backend, "no other splits a model"),
        ("train.engine", "deepspeed", engine, "the other trains what fits one card"),
        ("rollout.staleness", 0, staleness, apart),
    ):
        if got != needed:
            raise ValueError(
                f"generator.tensor_parallel={size} needs {option}={needed}, got {got} ({why}): set that, or "
                "generator.tensor_parallel=1"
            )
