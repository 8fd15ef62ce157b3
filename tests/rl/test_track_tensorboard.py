"""TensorBoard: event files read back by TensorBoard's own reader."""

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from rl.tracking.tensorboard_mirror import TensorboardMirror
from rl.tracking.tracker import Tracker
from tests.rl.test_track_wandb import write_trajectories


def tracked(folder, resume=None):
    return Tracker(folder, mirrors=[TensorboardMirror(folder, print)], resume_update=resume, report=str)


def test_a_resumed_run_has_every_update_once(tmp_path):
    write_trajectories(tmp_path, 2)
    tracker = tracked(tmp_path)
    for update in range(1, 6):
        tracker.log(update, {"rollout/success": update / 8, "credit/advantage_std": 1.0})
    tracker.close()
    resumed = tracked(tmp_path, resume=3)
    for update in (4, 5, 6):
        resumed.log(update, {"rollout/success": -update / 8})
    resumed.log(5, {"eval/success": 0.5})
    resumed.close()
    events = EventAccumulator(str(tmp_path / "tensorboard"), {"scalars": 0, "histograms": 0})
    events.Reload()
    points = [(event.step, event.value) for event in events.Scalars("rollout/success")]
    assert points == [(1, 0.125), (2, 0.25), (3, 0.375), (4, -0.5), (5, -0.625), (6, -0.75)]
    assert [(event.step, event.value) for event in events.Scalars("eval/success")] == [(5, 0.5)]
    (histogram,) = events.Histograms("credit/advantage")
    assert (histogram.step, histogram.histogram_value.num) == (2, 8)
