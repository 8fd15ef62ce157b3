"""metrics.jsonl: appended, finite, and on a resume without what is made again."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rl.tracking.tracker import Tracker, read_metrics


class Mirror:
    """Remembers what it is told."""

    def __init__(self):
        self.kept, self.resume_update, self.logged, self.closed = None, "untold", [], False

    def begin(self, kept, resume_update):
        self.kept, self.resume_update = list(kept), resume_update

    def log(self, record):
        self.logged.append(record)

    def close(self):
        self.closed = True


def test_records_are_appended_and_finite_and_mirrored(tmp_path):
    mirror = Mirror()
    tracker = Tracker(tmp_path / "run", mirrors=[mirror])
    tracker.log(0, {"eval/success": 0.5})
    tracker.log(1, {"rollout/success": 0.25, "train/loss": float("nan")})
    tracker.close()
    expected = [{"update": 0, "eval/success": 0.5}, {"update": 1, "rollout/success": 0.25}]
    assert read_metrics(tmp_path / "run" / "metrics.jsonl") == expected == mirror.logged
    assert (mirror.kept, mirror.resume_update, mirror.closed) == ([], None, True)


def test_unknown_metrics_are_refused(tmp_path):
    with pytest.raises(KeyError, match="'rollout/mood' has no entry"):
        Tracker(tmp_path).log(1, {"rollout/mood": 1.0})


def test_an_existing_record_is_not_overwritten(tmp_path):
    Tracker(tmp_path).log(1, {})
    with pytest.raises(FileExistsError, match="resume that run"):
        Tracker(tmp_path)


@pytest.mark.parametrize(("resume", "kept"), [(2, [0, 1, 2]), (1, [0, 1]), (0, [])])
def test_resume_drops_what_will_be_made_again_and_says_what_was_lost(tmp_path, resume, kept):
    tracker = Tracker(tmp_path)
    for update in range(4):
        tracker.log(update, {"rollout/success": 0.5})
    with (tmp_path / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"update": 4, "rollo')
    said, mirror = [], Mirror()
    again = Tracker(tmp_path, mirrors=[mirror], resume_update=resume, report=said.append)
    assert [record["update"] for record in read_metrics(tmp_path / "metrics.jsonl")] == kept
    assert [record["update"] for record in mirror.kept] == kept and mirror.resume_update == resume
    assert "half a record (20 bytes" in said[0]
    assert said[1].startswith(f"{4 - len(kept)} records after update {resume}")
    again.log(9, {})
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["update"] for line in lines] == [*kept, 9]


def test_a_file_of_trajectories_cut_off_by_a_crash_is_set_aside(tmp_path):
    folder = tmp_path / "trajectories"
    folder.mkdir()
    pq.write_table(pa.table({"t": [0, 1]}), folder / "0001.parquet")
    whole = (folder / "0001.parquet").read_bytes()
    (folder / "0002.parquet").write_bytes(whole[:-9])
    said = []
    Tracker(tmp_path, resume_update=2, report=said.append)
    assert sorted(path.name for path in folder.iterdir()) == ["0001.parquet", "0002.damaged"]
    assert len(said) == 1 and "0002.parquet is cut off" in said[0]


def test_a_clean_resume_says_nothing(tmp_path):
    Tracker(tmp_path).log(1, {})
    Tracker(tmp_path, resume_update=1, report=pytest.fail).log(2, {})
    assert len(read_metrics(tmp_path / "metrics.jsonl")) == 2


def test_resume_without_a_record(tmp_path):
    Tracker(tmp_path, resume_update=3).log(4, {})
    assert len(read_metrics(tmp_path / "metrics.jsonl")) == 1


def test_a_tail_cut_inside_a_letter_is_no_error(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes('{"update": 1}\n{"µ'.encode()[:-1])
    assert read_metrics(path) == [{"update": 1}]
