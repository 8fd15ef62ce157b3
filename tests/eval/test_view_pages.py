"""The viewer's pages over HTTP: what they say, what they refuse, and that bad folders spoil nothing else."""

import json
import re
import time
from html.parser import HTMLParser

import pytest

from tests.eval.synthetic import RunWriter, toy_groups
from tests.eval.viewing import HOSTILE, client, make_runs, rewrite, rows


class Page(HTMLParser):
    """Text, links and elements of a page."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.links, self.text, self.attributes = [], [], "", []
        self.feed(text)
        self.text = " ".join(self.text.split())

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, key, value) for key, value in attrs]
        self.links += [value for key, value in attrs if key in ("href", "src", "action", "data-src")]

    def handle_data(self, data):
        self.text += data


@pytest.fixture(scope="module")
def web(root):
    return client(root)


def get(web, address, status=200):
    answer = web.get(address)
    assert answer.status_code == status, answer.text
    return Page(answer.text)


@pytest.fixture
def own(tmp_path):
    """Runs that a test may spoil."""
    make_runs(tmp_path)
    return tmp_path


def test_runs_with_their_progress(web):
    page = get(web, "/")
    assert "2 of 2 updates" in page.text and "1 of 5 updates" in page.text
    assert "finished" in page.text and "running" in page.text
    assert "0.25 → 0.75" in page.text and "not evaluated yet" in page.text
    assert "/runs/alpha" in page.links and "/report/beta" in page.links


def test_a_running_run_moves(own):
    web, run = client(own), RunWriter(own / "gamma", overrides=["train.updates=3"])
    assert "0 of 3 updates" in get(web, "/").text
    run.update(1, toy_groups(1))
    assert "1 of 3 updates" in get(web, "/").text
    assert "16 trajectories" in get(web, "/runs/gamma").text
    run.update(2, toy_groups(2))
    assert "32 trajectories" in get(web, "/runs/gamma").text


def test_a_trajectory_shows_its_steps_as_recorded(web, root):
    recorded = [row for row in rows(root / "alpha/trajectories/0002.parquet") if row["trajectory"] == 5]
    page = get(web, "/runs/alpha?u=2&i=5")
    for row in recorded:
        assert " ".join(row["observation"].split()) in page.text
        assert row["action"] in page.text
        assert f"{row['advantage']:+.2f}".replace("-", "−").lstrip("+") in page.text
    assert page.text.count("prompt, tokens, peers") == len(recorded)


def test_step_in_full(web, root):
    row = next(
        r for r in rows(root / "alpha/trajectories/0002.parquet") if r["trajectory"] == 5 and r["t"] == 1
    )
    page = get(web, "/step/alpha?u=2&i=5&t=1")
    assert f"{len(row['response_ids'])} tokens" in page.text
    for command in row["commands"]:
        assert command in page.text
    assert " ".join(row["anchor"].split()) in page.text
    assert "did not record the learner’s log-probabilities" in page.text


def test_learner_gap_where_recorded(own):
    path = own / "alpha/trajectories/0002.parquet"
    rewrite(path, logp_now=[[logp - 0.25 for logp in row["logp_sampled"]] for row in rows(path)])
    page = get(client(own), "/step/alpha?u=2&i=5&t=0")
    assert "Largest gap between learner and sampler: 2.50e-01 nats" in page.text
    # Tokens that were put there have no log-probability of the learner.
    rewrite(path, logp_now=[[None, *row["logp_now"][1:]] for row in rows(path)])
    page = get(client(own), "/step/alpha?u=2&i=5&t=0")
    assert "Largest gap between learner and sampler" in page.text


def test_filters_in_the_address(web, root):
    every = [row for update in (1, 2) for row in rows(root / f"alpha/trajectories/000{update}.parquet")]
    near_failures = {
        (row["update"], row["trajectory"]) for row in every if row["family"] == "near" and not row["success"]
    }
    page = get(web, "/runs/alpha?family=near&outcome=failure")
    assert f"{len(near_failures)} of 32 trajectories" in page.text
    assert "None fits these filters" in get(web, "/runs/alpha?q=zebra").text


def test_methods_side_by_side(web):
    page = get(web, "/runs/alpha?u=1&i=2&methods=grpo,gigpo")
    cells = [value for tag, key, value in page.attributes if key == "data-m"]
    assert set(cells) == {"recorded", "grpo", "gigpo"}
    assert "carries a state" not in page.text


def test_disputed_trajectories_come_by_themselves(web):
    """The comparison of all updates runs beside; the page says how far it is, and ends with all of them."""
    address = "/runs/alpha?methods=graphgpo&sort=disputed"
    while "updates done" in (page := get(web, address)).text:
        time.sleep(0.05)
    shares = [float(share) for share in re.findall(r"([\d.]+) % disputed", page.text)]
    assert len(shares) == 32 and shares == sorted(shares, reverse=True) and shares[0] > 0
    assert 0 < get(web, address + "&disputed=1").text.count("% disputed") < 32


def test_comparison_and_report(web):
    page = get(web, "/compare?run=alpha&run=beta")
    assert "SCPO · GRPO" in page.text and "Differences of the configuration" in page.text
    assert "credit.name" in page.text
    assert "Time and tokens" in get(web, "/report/alpha").text


def test_what_is_in_a_recording_is_text(web):
    for address in (
        "/runs/alpha?u=1&i=0",
        "/step/alpha?u=1&i=0&t=0",
        "/runs/alpha?sort=oldest",
        "/report/alpha",
    ):
        answer = web.get(address)
        page = Page(answer.text)
        assert HOSTILE not in answer.text
        assert "img" not in page.tags
        assert page.tags.count("script") == (0 if address.startswith("/report") else 1)
        assert "window.spoiled" in page.text or address.startswith("/report")  # another group is shown there
        assert "script-src 'self'" in answer.headers["content-security-policy"]


def test_nothing_comes_from_elsewhere(web):
    for address in (
        "/",
        "/runs/alpha?methods=grpo",
        "/compare?run=alpha&run=beta",
        "/step/alpha?u=1&i=0&t=0",
    ):
        assert all(link.startswith(("/", "?", "#", "data:")) for link in get(web, address).links)


@pytest.mark.parametrize(
    "address",
    [
        "/runs/%2e%2e",
        "/runs/..%2f..%2fetc",
        "/runs/%2fetc",
        "/runs//etc",
        "/runs/alpha%2f..%2f..",
        "/runs/alpha%00",
        "/runs/alpha/trajectories",
        "/runs/nothing",
        "/report/..%2f..",
        "/step/%2e%2e?u=1&i=0&t=0",
        "/compare?run=..&run=alpha",
        "/static/..%2fapp.py",
        "/nothing",
    ],
)
def test_outside_of_the_folder(web, address):
    assert "Not found" in get(web, address, 404).text


def test_links_out_of_the_folder_are_not_followed(own, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    make_runs(elsewhere)
    (own / "sly").symlink_to(elsewhere / "alpha")
    web = client(own)
    assert "sly" not in get(web, "/").text
    get(web, "/runs/sly", 404)


def test_another_sites_name_for_this_machine_is_refused(web):
    assert web.get("/", headers={"host": "evil.example"}).status_code == 400


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("/runs/alpha?update=x", "write for example update=12"),
        ("/runs/alpha?sort=best", "one of newest"),
        ("/runs/alpha?methods=grop", "there is no such method"),
        ("/runs/alpha?methods=sharpo", "which no recording has"),
        ("/compare?run=alpha", "two runs or more"),
    ],
)
def test_addresses_that_mean_nothing(web, address, says):
    assert says in get(web, address, 400).text


@pytest.mark.parametrize(
    "address", ["/runs/alpha?u=9&i=0", "/runs/alpha?u=1&i=99", "/step/alpha?u=1&i=0&t=99"]
)
def test_trajectories_that_are_not_there(web, address):
    get(web, address, 404)


@pytest.mark.parametrize(("share", "says"), [(0.6, "its end is missing"), (0.0, "it is empty")])
def test_a_file_cut_off(own, share, says):
    path = own / "alpha/trajectories/0002.parquet"
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    page = get(client(own), "/runs/alpha")
    assert "update 2 is not shown" in page.text and says in page.text
    assert "16 trajectories" in page.text
    assert "/runs/beta" in get(client(own), "/").links


def test_a_file_in_the_making(own):
    path = own / "alpha/trajectories/0002.parquet"
    path.rename(path.with_suffix(".partial"))
    page = get(client(own), "/runs/alpha")
    assert "it is being written, or the run was killed while writing it" in page.text
    assert "16 trajectories" in page.text


def test_half_a_line_of_metrics(own):
    with (own / "beta/metrics.jsonl").open("a") as file:
        file.write('{"update": 2, "rollout/succ')
    page = get(client(own), "/")
    assert "1 of 5 updates" in page.text
    assert "its 27 bytes are left out" in page.text


def test_a_file_of_another_version(own):
    rewrite(own / "alpha/trajectories/0002.parquet", family=None)
    page = get(client(own), "/runs/alpha")
    assert "it has no column family, so another version wrote it" in page.text
    assert "16 trajectories" in page.text


def test_a_run_of_another_version(own):
    path = own / "alpha/config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"warp": 9}))
    web = client(own)
    page = get(web, "/")
    assert "made by another version" in page.text and "warp" in page.text
    assert "/runs/alpha" in page.links and "/runs/beta" in page.links
    assert "32 trajectories" in get(web, "/runs/alpha").text
    assert "warp" in get(web, "/runs/alpha?u=1&i=2&methods=grpo", 422).text


def test_a_run_that_cannot_be_read(own):
    (own / "alpha/config.json").write_text("{")
    page = get(client(own), "/")
    assert "cannot be read" in page.text and "config.json is not JSON" in page.text
    assert "/runs/alpha" not in page.links and "/runs/beta" in page.links
    assert "config.json is not JSON" in get(client(own), "/report/alpha", 422).text


def test_no_runs(tmp_path):
    assert "No run here yet" in get(client(tmp_path), "/").text


def test_a_run_that_learnt_nothing_says_so_on_its_page(own):
    assert "for 5 updates" not in get(client(own), "/runs/alpha").text
    event = {"update": 2, "alarm": "clipped", "raised": True, "text": f"for 5 updates: {HOSTILE}"}
    (own / "alpha" / "alarms.jsonl").write_text(json.dumps(event) + "\n")
    page = get(client(own), "/runs/alpha")
    assert f"Update 2: for 5 updates: {HOSTILE}" in page.text


def test_the_list_shows_what_holds_as_soon_as_it_is_raised(own):
    file, viewer = own / "alpha" / "alarms.jsonl", client(own)
    file.unlink(missing_ok=True)
    assert "for 5 updates" not in get(viewer, "/").text
    event = {"update": 2, "alarm": "clipped", "raised": True, "text": f"for 5 updates: {HOSTILE}"}
    file.write_text(json.dumps(event) + "\n")
    assert f"Update 2: for 5 updates: {HOSTILE}" in get(viewer, "/").text
    ended = {"update": 4, "alarm": "clipped", "raised": False, "text": ""}
    file.write_text(json.dumps(event) + "\n" + json.dumps(ended) + "\n")
    assert "for 5 updates" not in get(viewer, "/").text
    assert "Update 2, until 4" in get(viewer, "/runs/alpha").text
