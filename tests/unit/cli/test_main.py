"""Exit codes, and one clear line for what is wrong."""

import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import yaml

from arpguard import __version__
from arpguard.cli import agent, completing, vips
from arpguard.cli.main import main
from arpguard.errors import DataPlaneError
from arpguard.v1 import agent_pb2 as pb
from arpguard_lab import command as lab
from support.netns.waiting import HUNG_S, until


def test_version(run):
    assert run("--version") == (0, f"arpguard {__version__}\n", "")


@pytest.mark.parametrize("words", [[], ["fly"], ["config"], ["whohas"], ["explain"], ["completion"]], ids=str)
def test_bad_usage_exits_2(words, run):
    code, _, err = run(*words)

    assert code == 2
    assert err.splitlines()[1:] == [
        f"Try '{' '.join(['arpguard', *(word for word in words if word != 'fly')])} --help'."
    ]


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (["statsu"], "arpguard: argument COMMAND: invalid choice: 'statsu'; did you mean 'status'?"),
        (["vips", "--kidn", "owned"], "arpguard vips: unknown option '--kidn'; did you mean '--kind'?"),
        (["vips", "--kidn=owned"], "arpguard vips: unknown option '--kidn=owned'; did you mean '--kind'?"),
        (["vips", "--kind", "ownde"], "arpguard vips: argument --kind: invalid choice: 'ownde'; did you mean 'owned'?"),
        (["vips", "192.0.2.1", "192.0.2.2"], "arpguard vips: unknown argument '192.0.2.2'"),
        (["config", "chekc"], "arpguard config: argument ACTION: invalid choice: 'chekc'; did you mean 'check'?"),
        (
            ["status", "-o", "toml"],
            "arpguard status: argument -o/--output: invalid choice: 'toml' (choose from table, wide, json, yaml)",
        ),
        (
            ["agent", "--log-level", "inof"],
            "arpguard agent: argument --log-level: invalid value 'inof'; did you mean 'info'?",
        ),
        (["links", "--zzzzz"], "arpguard links: unknown option '--zzzzz'"),
        (
            ["status", "--port", "65536"],
            "arpguard status: argument --port: invalid value '65536': expected a port, 1 to 65535",
        ),
    ],
    ids=str,
)
def test_mistyped_word_is_named_with_the_nearest_one(words, wrong, run):
    code, out, err = run(*words)

    assert (code, out) == (2, "")
    assert err.splitlines()[0] == wrong


def test_agent_without_a_configuration_exits_2_and_says_what_to_name(run):
    assert run("agent") == (
        2,
        "",
        "arpguard agent: --config: missing: name a file, or a ConfigMap with --configmap NAMESPACE/NAME\n",
    )


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (
            ["--config", "x"],
            "traces the claim protocol, which needs a cluster: give --configmap or --kubeconfig, or omit --trace",
        ),
        (
            ["--configmap", "arpguard/arpguard"],
            "cannot write /nowhere/trace: No such file or directory; name a file in a folder that exists",
        ),
    ],
    ids=["standalone", "no such folder"],
)
def test_agent_that_cannot_trace_exits_2_and_says_why(words, wrong, run):
    assert run("agent", *words, "--trace", "/nowhere/trace") == (2, "", f"arpguard agent: --trace: {wrong}\n")


def test_good_configuration_exits_0(tmp_path, run):
    path = tmp_path / "config.yaml"
    path.write_text("vips: [{address: 192.0.2.1, owner: external}]")

    assert run("config", "check", str(path)) == (0, f"{path}: ok, mode observe, 1 VIP\n", "")


def test_standard_input_is_checked(run, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"mode: enforce")))
    assert run("config", "check", "-") == (0, "standard input: ok, mode enforce, 0 VIPs\n", "")


def test_endless_or_closed_standard_input_is_refused(run, monkeypatch):
    with open("/dev/zero", encoding="utf-8") as endless:
        monkeypatch.setattr("sys.stdin", endless)
        assert run("config", "check", "-")[2] == "standard input: too large: at most 32 MiB\n"
    monkeypatch.setattr("sys.stdin", None)
    assert run("config", "check", "-")[:2] == (2, "")


def test_settings_that_do_nothing_are_warned_of(tmp_path, run):
    path = tmp_path / "config.yaml"
    path.write_text("vips: [{address: 192.0.2.1, owner: external, hold: true}, {address: 192.0.2.2, owner: elect}]")
    code, out, _ = run("config", "check", str(path))

    assert code == 0
    assert [line.partition(": warning: ")[2][:28] for line in out.splitlines()] == [
        "line 1: vips: hold has no ef",
        "line 1: vips: owner elect ne",
        "",
    ]


BLOCK = """vips:
  - address: 192.0.2.2
    owner: elect
  - address: 192.0.2.1
    owner: {node: a}
    hold: true
"""
MANIFEST = "kind: ConfigMap\ndata:\n  config.yaml: |\n" + "".join(f"    {line}\n" for line in BLOCK.splitlines())


@pytest.mark.parametrize(("text", "lines"), [(BLOCK, [6, 3]), (MANIFEST, [9, 6])], ids=["YAML", "ConfigMap"])
def test_warnings_have_the_lines_of_their_settings(tmp_path, run, text, lines):
    path = tmp_path / "config.yaml"
    path.write_text(text)
    code, out, _ = run("config", "check", str(path))
    found = json.loads(run("config", "check", str(path), "-o", "json")[1])

    assert code == 0
    assert re.findall(r"warning: line (\d+): ", out) == list(map(str, lines))
    assert [warning["line"] for warning in found["warnings"]] == lines
    assert [warning["path"] for warning in found["warnings"]] == ["vips[1].hold", "vips[0].owner"]
    assert (found["ok"], found["mode"], found["vips"], found["problems"]) == (True, "observe", 2, [])


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_problems_of_a_configuration_are_a_document_for_programs(tmp_path, run, form):
    path = tmp_path / "config.yaml"
    path.write_text("mode: enforce\nmod: x\n")
    code, out, err = run("config", "check", str(path), "-o", form)
    found = yaml.safe_load(out)

    assert (code, err) == (2, "")
    assert (found["file"], found["ok"], found["warnings"]) == (str(path), False, [])
    assert found["problems"] == [{"path": "mod", "line": 2, "message": "unknown key; did you mean 'mode'?"}]


@pytest.mark.parametrize("words", [["config", "check"], ["agent", "--config"]], ids=["check", "agent"])
def test_wrong_configuration_exits_2_with_a_line_for_each_problem(words, tmp_path, run):
    path = tmp_path / "config.yaml"
    path.write_text("mode: fast\ndatapath: slow")
    code, out, err = run(*words, str(path))

    assert (code, out) == (2, "")
    assert err.splitlines() == [
        f"{path}: line 1: mode: must be observe or enforce, not fast",
        f"{path}: line 2: datapath: must be auto, tc or xdp, not slow",
    ]


@pytest.mark.parametrize(
    "address",
    ["localhost", "192.0.2", "224.0.0.1", "0.0.0.0", "::1", "fe80::1", "ff02::1", "2001:db8::1%eth0", "2001:db8"],
)
def test_whohas_of_no_host_exits_2(address, run):
    code, _, err = run("whohas", address)

    assert code == 2
    assert address in err


def test_unknown_scenario_exits_2(run, monkeypatch):
    monkeypatch.setattr(lab, "need_root", lambda: None)
    code, _, err = run("lab", "--scenario", "nonsense")

    assert code == 2
    assert "one of flux, lvs-dr, external, can-reach, observe, restart" in err


@pytest.mark.parametrize("command", ["status", "vips", "links", "explain 192.0.2.1"])
def test_where_nothing_is_pinned_reading_exits_3(command, run, tmp_path):
    code, out, err = run(*command.split(), "--pin-dir", str(tmp_path / "nothing"))

    assert (code, out) == (3, "")
    assert err.startswith(f"arpguard {command.split()[0]}: no arpguard data plane under")
    assert "start `arpguard agent`" in err


def test_pins_that_may_not_be_read_are_told_from_none(tmp_path):
    """In a process of its own, as nobody: root may read everything."""
    (tmp_path / "maps-1").mkdir()
    tmp_path.chmod(0o700)
    code = f"import os; os.setresuid(65534, 65534, 65534); open_maps(Path({str(tmp_path)!r}))"
    lines = f"from pathlib import Path; from arpguard.dataplane.loader import open_maps; {code}"
    done = subprocess.run([sys.executable, "-c", lines], capture_output=True, text=True, check=False, timeout=HUNG_S)

    assert done.stderr.endswith(f"not permitted to read {tmp_path}: run as root\n")


def test_system_error_is_one_line(run, monkeypatch):
    def refuse(_options):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(vips, "show_vips", refuse)
    code, _, err = run("vips")

    assert code == 3
    assert len(err.splitlines()) == 1
    assert "run as root" in err


def test_error_of_the_data_plane_is_one_line(run, monkeypatch):
    def refuse(_options):
        raise DataPlaneError("no; do this")

    monkeypatch.setattr(vips, "show_vips", refuse)

    assert run("vips") == (3, "", "arpguard vips: no; do this\n")


def test_interrupted_command_says_so_by_its_code(run, monkeypatch):
    def interrupt(_options):
        raise KeyboardInterrupt

    monkeypatch.setattr(vips, "show_vips", interrupt)

    assert run("vips") == (130, "", "")


def test_where_the_lab_is_not_installed_its_command_says_so_and_exits_2(run, monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "arpguard_lab"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "path", [each for each in sys.path if not (Path(each) / "arpguard_lab").is_dir()])

    said = "arpguard lab: the lab is not installed here: run `make lab` in a checkout\n"
    assert run("lab", "--list") == (2, "", said)


def test_module_that_the_lab_lacks_is_not_taken_for_the_lab(run, monkeypatch):
    monkeypatch.delitem(sys.modules, "arpguard_lab.command")
    monkeypatch.setitem(sys.modules, "arpguard_lab.cluster.rounds", None)

    with pytest.raises(ModuleNotFoundError, match="rounds"):
        run("lab", "--list")


def test_lab_lists_its_scenarios(run):
    code, out, _ = run("lab", "--list")

    assert code == 0
    assert [line.split()[0] for line in out.splitlines()[1:]] == [
        "flux",
        "lvs-dr",
        "external",
        "can-reach",
        "observe",
        "restart",
        "ipv6",
        "ipv6-snooping",
        "ipv6-clients",
        "keepalived",
        "keepalived-vmac",
        "keepalived-ipv6",
        "keepalived-followed",
        "metallb-like",
        "kube-vip-like",
        "metallb-like-ipv6",
        "kube-vip-like-ipv6",
        "doctor",
    ]


def test_closed_pipe_ends_what_prints_but_neither_the_agent_nor_who_runs_a_command(run, monkeypatch):
    """The peers of an agent's sockets may go at any time; SIGPIPE must not take the agent along."""
    seen = []

    def note(options):
        seen.append((options.command, signal.getsignal(signal.SIGPIPE)))
        return 0

    monkeypatch.setattr(agent, "run_agent", note)
    monkeypatch.setattr(vips, "show_vips", note)
    before = signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    try:
        run("vips")
        for words in (["agent", "--config", "x"], ["vips"]):
            monkeypatch.setattr(sys, "argv", ["arpguard", *words])
            with pytest.raises(SystemExit):
                main()
    finally:
        signal.signal(signal.SIGPIPE, before)

    assert seen == [("vips", signal.SIG_IGN), ("agent", signal.SIG_IGN), ("vips", signal.SIG_DFL)]


def test_interrupt_ends_every_command_also_where_it_was_ignored(run, monkeypatch):
    """As in scripts that start one in the background; what a command starts has the default again."""
    seen = {}

    def note(options):
        seen[options.command] = signal.getsignal(signal.SIGINT)
        return 0

    monkeypatch.setattr(agent, "run_agent", note)
    monkeypatch.setattr(lab, "run_lab", note)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        run("agent", "--config", "x")
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        run("lab")
    finally:
        signal.signal(signal.SIGINT, before)

    assert seen == dict.fromkeys(("agent", "lab"), signal.default_int_handler)


def test_closed_pipe_is_quiet():
    words = f"{sys.executable} -m arpguard completion zsh | head -n 1"
    done = subprocess.run(["bash", "-c", words], capture_output=True, text=True, check=False, timeout=HUNG_S)

    assert done.stderr == ""
    assert len(done.stdout.splitlines()) == 1


@pytest.mark.parametrize(
    ("output", "reason"),
    [(">&-", "standard output is closed"), ("> /dev/full", "No space left on device")],
    ids=["closed", "full"],
)
@pytest.mark.parametrize("words", ["lab --list", "completion zsh"], ids=["short", "long"])
def test_output_that_cannot_be_written_is_one_line(words, output, reason):
    line = f"{sys.executable} -m arpguard {words} {output}"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False, timeout=HUNG_S)

    assert (done.returncode, done.stderr.count("\n")) == (3, 1)
    assert done.stderr.startswith(f"arpguard {words.split()[0]}: ")
    assert done.stderr.endswith(f"{reason}\n")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "tcsh"])
def test_completion_knows_commands_and_options(shell, run):
    code, out, err = run("completion", shell)

    assert (code, err) == (0, "")
    for word in ("conflicts", "follow", "pin-dir", "egress_rewritten"):
        assert word in out


def test_completion_offers_files_and_folders(run):
    out = run("completion", "bash")[1]

    assert "status___tls_ca_COMPGEN=_shtab_compgen_files" in out
    assert "vips___pin_dir_COMPGEN=_shtab_compgen_dirs" in out


def test_bash_reads_the_completion(run, tmp_path):
    script = tmp_path / "completion"
    script.write_text(run("completion", "bash")[1])
    complete = "COMP_WORDS=(arpguard de); COMP_CWORD=1; _shtab_arpguard; echo $COMPREPLY"
    words = f"bash -n {script} && source {script} && {complete}"
    done = subprocess.run(["bash", "-c", words], capture_output=True, text=True, check=False, timeout=HUNG_S)

    assert (done.returncode, done.stderr, done.stdout) == (0, "", "decisions\n")


# ---- what agents know, completed -----------------------------------------------------------------------------------


@pytest.fixture
def completed(run, tmp_path):
    """What bash offers for words, the last of which is being typed; it breaks them at colons."""
    (tmp_path / "script").write_text(run("completion", "bash")[1])
    program = tmp_path / "arpguard"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m arpguard "$@"\n')
    program.chmod(0o755)

    def offered(*words: str) -> list[str]:
        lines = (
            f"source {tmp_path}/script",
            f"COMP_WORDS=({shlex.join(['arpguard', *words])})",
            f"COMP_CWORD={len(words)}",
            "_arpguard",
            "printf '%s\n' \"${COMPREPLY[@]}\"",
        )
        environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
        done = subprocess.run(
            ["bash", "-c", "\n".join(lines)],
            capture_output=True,
            text=True,
            check=False,
            timeout=HUNG_S,
            env=environment,
        )
        assert done.stderr == ""
        return done.stdout.split()

    return offered


@pytest.fixture
def known(agent):
    """An agent with VIPs, on two links."""
    vips = [pb.Vip(address=address) for address in ("192.0.2.10", "192.0.2.10", "192.0.2.99", "2001:db8::50")]
    names = ("eth0", "bond0.7", "$(id)", "`id`")
    agent.prepared.answers["ListVips"] = pb.ListVipsResponse(vips=vips)
    agent.prepared.answers["GetStatus"] = pb.GetStatusResponse(links=[pb.Link(name=name) for name in names])
    return agent


@pytest.mark.usefixtures("known")
@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        (["vips", ""], ["192.0.2.10", "192.0.2.99", "2001:db8::50"]),
        (["explain", "192.0.2.9"], ["192.0.2.99"]),
        (["audit", "20"], ["2001:db8::50"]),
        (["whohas", "192.0.2.1"], ["192.0.2.10"]),
        (["decisions", "--vip", "192.0.2.1"], ["192.0.2.10"]),
        (["vips", "2001", ":", "d"], ["db8::50"]),
        (["vips", "2001", ":", "db8", "::"], ["50"]),
        (["vips", "2001", ":", "db8", "::", "50", "--li"], ["--link"]),
        (["vips", "--link", ""], ["eth0", "bond0.7"]),
        (["whohas", "192.0.2.10", "--interface", "b"], ["bond0.7"]),
        (["lab", "--scenario", "api-r"], ["api-rolling"]),
        (["lab", "--scenario", "fl"], ["flux"]),
    ],
    ids=str,
)
def test_bash_completes_vips_links_and_scenarios(completed, typed, offered):
    """A shell does not wait for an agent on a busy machine: it offers nothing, and is asked again."""
    until(lambda: completed(*typed) == offered, 60, str(offered))


@pytest.mark.parametrize("target", ["unix:///nowhere/agent.sock", "127.0.0.1:1", "nonsense"])
@pytest.mark.parametrize("kind", ["vips", "links"])
def test_without_an_agent_nothing_is_completed_and_nothing_said(run, monkeypatch, kind, target):
    monkeypatch.setenv("ARPGUARD_ADDRESS", target)

    assert run("completion", kind) == (0, "", "")


def test_shell_does_not_wait_for_a_slow_agent(run, known, monkeypatch):
    asked = threading.Event()
    known.prepared.answers["ListVips"] = lambda _: (asked.wait(30), pb.ListVipsResponse(vips=[pb.Vip(address="x")]))[1]
    monkeypatch.setattr(completing, "_LIMIT_S", 0.1)

    assert run("completion", "vips") == (0, "", "")
    asked.set()


def test_where_there_is_no_lab_there_are_no_scenarios(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "arpguard_lab", None)
    monkeypatch.delitem(sys.modules, "arpguard_lab.runner", raising=False)

    code, out, _ = run("completion", "bash")
    assert (code, "scenario_choices" in out) == (0, False)


@pytest.mark.parametrize(
    "command",
    ["status", "vips", "links", "decisions", "conflicts", "explain", "watch", "completion", "agent", "lab", "whohas"],
)
def test_help_of_a_command(command, run):
    code, out, _ = run(command, "--help")

    assert code == 0
    assert f"usage: arpguard {command}" in out


def test_commands_load_only_what_they_need(tmp_path):
    """gRPC costs a command a third of a second and 15 MB."""
    (tmp_path / "config.yaml").write_text("vips: []")
    code = "import sys; from arpguard.cli.main import main\ntry: main()\nfinally: print('grpc' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code, "config", "check", str(tmp_path / "config.yaml")],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stdout.splitlines()[-1] == "False", done.stderr


@pytest.mark.parametrize(
    ("words", "given", "name", "by_host"),
    [
        (["--node-name", "node-1"], "", "node-1", False),
        ([], "node-2", "node-2", False),
        ([], "", "this-host", True),
    ],
    ids=["option", "variable", "host"],
)
def test_agent_knows_whether_somebody_gave_it_its_name(words, given, name, by_host, monkeypatch, tmp_path):
    seen = []
    monkeypatch.setenv("NODE_NAME", given)
    monkeypatch.setattr("socket.gethostname", lambda: "this-host")
    monkeypatch.setattr(agent, "start_log", lambda *_: None)
    monkeypatch.setattr(agent, "Startup", lambda options: seen.append(options) or sys.exit(0))
    with pytest.raises(SystemExit):
        main(["agent", "--config", str(tmp_path / "config.yaml"), *words])

    assert [(options.node, options.named_by_host) for options in seen] == [(name, by_host)]
