"""The command line: fast help, one message for a user's mistake, and README commands that exist."""

import re
import resource
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

import run
from commands.cli.app import app
from configs.doctor import main as doctor

ROOT = Path(__file__).resolve().parents[2]


def command(*arguments, cwd=ROOT):
    return subprocess.run(
        [sys.executable, str(ROOT / "run.py"), *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=300,
    )


def in_process(capsys, monkeypatch, *arguments):
    """Exit code and standard error of run.py, without the price of a new interpreter."""
    monkeypatch.setattr(sys, "argv", ["run.py", *arguments])
    with pytest.raises(SystemExit) as caught:
        run.main()
    return caught.value.code, capsys.readouterr().err


# --- help --------------------------------------------------------------------------------------------------


def test_help_teaches_and_is_quick():
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    done = command("--help")
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before < 1  # s of CPU; it takes 0.2
    assert done.returncode == 0
    for word in ("train", "eval", "show", "doctor", "key.path=value"):
        assert word in done.stdout


def test_help_and_show_import_no_deep_learning_library():
    code = (
        "import sys, run\n"
        "sys.argv = ['run.py', 'show', 'alfworld_cpu']\n"
        "try: run.main()\n"
        "except SystemExit: pass\n"
        "sys.exit(', '.join({'torch', 'transformers', 'datasets', 'wandb'} & set(sys.modules)) or None)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_every_command_and_option_has_a_help_text():
    for name, leaf in _leaves():
        assert leaf.help, name
        for parameter in leaf.params:
            assert getattr(parameter, "help", None), f"{name}: {parameter.name}"


def test_show_prints_value_source_and_meaning():
    done = command("show", "alfworld_cpu", "credit.scpo.theta=0.8")
    assert done.returncode == 0, done.stderr
    line = next(line for line in done.stdout.splitlines() if line.startswith("credit.scpo.theta"))
    assert re.match(r"credit\.scpo\.theta +0\.8 +command line +\w", line)
    assert re.search(r"^train\.grad_clip +1\.0 +default ", done.stdout, re.MULTILINE)
    assert re.search(r"^credit\.scpo\.alpha_unit +\w+ +default ", done.stdout, re.MULTILINE)


# --- mistakes ----------------------------------------------------------------------------------------------

MISTAKES = {
    "unknown key": (["show", "alfworld_cpu", "train.lrr=1"], ["`train.lrr`", "did you mean `train.lr`?"]),
    "unknown method": (["show", "alfworld_cpu", "credit=gigpoo"], ["did you mean `gigpo`?"]),
    "unknown experiment": (["train", "alfworld_cup"], ["did you mean `alfworld_cpu`?"]),
    "unknown scorer": (["show", "alfworld_cpu", "scorer.name=lexicall"], ["did you mean `lexical`?"]),
    "theta out of range": (
        ["show", "alfworld_cpu", "credit=scpo", "credit.scpo.theta=1.5"],
        ["credit.scpo.theta", "1.5", "[0, 1]", "command line"],
    ),
    "lambda out of range": (["show", "alfworld_cpu", "credit=scpo", "credit.scpo.lam=1"], ["credit.scpo"]),
    "alpha out of range": (
        ["show", "alfworld_cpu", "credit=scpo", "credit.scpo.alpha=-1"],
        ["credit.scpo.alpha"],
    ),
    "unknown stage option": (
        ["show", "alfworld_cpu", "credit=scpo", "credit.scpo.thetta=1"],
        ["did you mean 'theta'?"],
    ),
    "impossible combination": (["show", "alfworld_cpu", "train.loss=gspo"], ["seq-mean-token-mean"]),
    "missing data": (["eval", "alfworld_cpu", "env.data=nowhere"], ["nowhere", "--generate"]),
    "unknown split": (["eval", "alfworld_cpu", "eval.split=valid"], ["did you mean `valid_seen`?", "train"]),
    "missing model": (
        ["eval", "alfworld_cpu", "model.path=agent/assets/none", "eval.tasks=1"],
        ["agent/assets/none", "make warmstart"],
    ),
    "resume of no run": (["train", "--resume", "nowhere"], ["nowhere", "folder of a run"]),
    "train nothing": (["train"], ["name an experiment"]),
    "report of no run": (["report", "nowhere"], ["nowhere"]),
    "missing golden files": (["parity", "credit", "nowhere"], ["nowhere"]),
    "missing transcripts": (["parity", "alfworld", "--games", "a", "--transcripts", "b"], ["'a'"]),
    "odd output name": (["data", "alfworld", "--generate", "--out", "x.txt", "--n", "1"], [".jsonl.xz"]),
}


@pytest.mark.parametrize(("arguments", "parts"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_is_one_message_and_exit_code_2(arguments, parts, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    code, error = in_process(capsys, monkeypatch, *arguments)
    assert code == 2
    assert error.count("error: ") == 1
    assert "Traceback" not in error
    for part in parts:
        assert part in error
    assert not list(tmp_path.iterdir()), "a refused command leaves nothing behind"


def test_a_mistake_has_no_traceback_from_the_shell_either():
    done = command("show", "alfworld_cpu", "lr=1")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: unknown option `lr`")


def test_an_empty_split_and_a_corrupt_game_are_named(capsys, monkeypatch, tmp_path):
    empty = tmp_path / "empty.jsonl"
    empty.write_text("", encoding="utf-8")
    code, error = in_process(capsys, monkeypatch, "eval", "alfworld_cpu", f"env.data={empty}")
    assert code == 2
    assert "0 games" in error
    broken = tmp_path / "broken.jsonl"
    broken.write_text('{"split": "valid_unseen"}\n', encoding="utf-8")
    code, error = in_process(capsys, monkeypatch, "eval", "alfworld_cpu", f"env.data={broken}")
    assert code == 2
    assert "broken.jsonl, line 1" in error


# --- working commands --------------------------------------------------------------------------------------


def test_generated_data_can_be_written_and_looked_at(tmp_path):
    out = tmp_path / "games.jsonl.xz"
    done = command("data", "alfworld", "--generate", "--out", str(out), "--n", "12", "--difficulty", "0.2")
    assert done.returncode == 0, done.stderr
    assert "wrote 12 train games" in done.stdout
    done = command("data", "alfworld", "--data", str(out))
    assert "12 games" in done.stdout
    shown = re.search(r"--show (\S+)$", done.stdout.strip())[1]
    assert "Your task is to:" in command("data", "alfworld", "--data", str(out), "--show", shown).stdout


def test_random_agent_reports_a_rate_with_its_interval():
    for subject in ("alfworld", "webshop"):
        done = command("random-agent", subject, "--n", "10")
        expected = r"success \d\.\d\d \[\d\.\d\d,\d\.\d\d\], score \d\.\d\d on 10 tasks"
        assert re.search(expected, done.stdout), done.stderr


@pytest.mark.parametrize(
    ("subject", "typed", "shown"),
    [
        ("alfworld", ["?", "look"], ["Your task is to:"]),
        ("webshop", ["search[oak shelf]", "?", "click[back to search]"], ["Page 1 (Total", "click[next >]"]),
    ],
)
def test_a_task_can_be_played(subject, typed, shown):
    done = subprocess.run(
        [sys.executable, "run.py", "play", subject, "--seed", "3"],
        cwd=ROOT,
        input="\n".join([*typed, "quit", ""]),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert all(text in done.stdout for text in shown), done.stdout


def test_parity_credit_counts(shared):
    done = command("parity", "credit", str(shared / "golden" / "credit" / "grpo.json"))
    assert done.returncode == 0, done.stdout
    assert re.fullmatch(r"\d+ passed, 0 failed", done.stdout.strip().splitlines()[-1])


def test_doctor_runs_without_any_package(capsys):
    code = doctor()
    report = capsys.readouterr().out
    assert code in (0, 1)
    for word in ("python", "cores", "default", "gpu", "reference", "torch", "domain and grammar", "account"):
        assert word in report
    bare = subprocess.run(
        [sys.executable, "-S", "-m", "configs.doctor"], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert bare.returncode == 1  # -S hides the installed packages
    assert "make setup" in bare.stdout
    assert "Traceback" not in bare.stderr


# --- the README --------------------------------------------------------------------------------------------


def _leaves(node=None, prefix=""):
    node = node or get_command(app)
    for name, child in node.commands.items():
        if hasattr(child, "commands"):
            yield from _leaves(child, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}", child


def _documented(pattern):
    text = "\n".join(
        (ROOT / name).read_text(encoding="utf-8")
        for name in ("README.md", "CONTRIBUTING.md", "docs/architecture.md")
    )
    return sorted(set(re.findall(pattern, text)))


@pytest.mark.parametrize("line", _documented(r"python (run\.py [^`\n#]+)"))
def test_documented_run_commands_parse(line):
    words = shlex.split(line.strip())[1:]
    if words[0] == "--help":
        return
    leaves = dict(_leaves())
    name = next(n for n in (" ".join(words[:2]), words[0]) if n in leaves)
    arguments = words[len(name.split()) :]
    leaves[name].make_context(name, list(arguments), resilient_parsing=False)


def test_documented_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z][a-z-]*):", makefile, re.MULTILINE))
    words = {
        w
        for line in _documented(r"\bmake ((?:[a-z][a-z-]*)(?: [a-z][a-z-]*(?=[\s`]))*)")
        for w in line.split()
    }
    documented = words & (targets | {w for w in words if "-" in w})
    assert documented, "no make command found in the documents"
    assert documented <= targets
    for line in _documented(r"^(?:\$ )?make ([a-z-]+)"):
        assert line in targets


def test_make_help_lists_every_target_for_people():
    done = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    phony = re.search(r"\.PHONY: ((?:.*\\\n)*.*)", (ROOT / "Makefile").read_text(encoding="utf-8"))[1]
    for target in phony.replace("\\\n", " ").split():
        assert re.search(rf"make {target}\b", done.stdout), target
