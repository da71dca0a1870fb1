"""What cannot be reached, and why: one line, and exit code 3; wrong options: exit code 2."""

import socket
import threading
from pathlib import Path

import grpc
import pytest

from arpguard.v1 import agent_pb2 as pb
from support.cli import make_pki, tls_flags
from support.netns.agents import arpguard


def one_line(err: str) -> str:
    assert err.count("\n") == 1, err
    return err


@pytest.mark.parametrize(
    ("command", "remedy"),
    [
        ("status", "start the agent, name another with --address, or read the kernel's objects with --pin-dir"),
        ("conflicts", "start the agent, or name another with --address"),
    ],
)
def test_missing_socket_says_what_to_do(command, remedy, run, tmp_path):
    target = f"unix://{tmp_path}/nobody.sock"
    code, out, err = run(command, "--address", target)

    assert (code, out) == (3, "")
    assert one_line(err) == f"arpguard {command}: no agent listens at {target}: {remedy}\n"


def test_socket_that_nobody_listens_at_any_more(run, tmp_path):
    path = tmp_path / "left.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    code, _, err = run("vips", "--address", f"unix://{path}")

    assert code == 3
    assert f"no agent listens at unix://{path}: start the agent" in one_line(err)


def test_port_that_nobody_listens_at(run):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        target = f"127.0.0.1:{taken.getsockname()[1]}"
        code, _, err = run("links", "--address", target)

    assert code == 3
    assert f"no agent listens at {target}: start the agent" in one_line(err)


def test_name_that_is_not_known(run):
    code, _, err = run("status", "--address", "agent.invalid:50051")

    assert code == 3
    assert "cannot resolve agent.invalid:50051: check the name" in one_line(err)


def test_host_whose_name_is_a_scheme_of_grpcs(run, serve, tmp_path, monkeypatch):
    """To gRPC "unix:5" is a socket named 5; here it is port 5 of a host."""
    serve(f"unix://{tmp_path}/5")
    monkeypatch.chdir(tmp_path)

    assert run("status", "--address", "unix:5")[0] == 3


def test_one_that_accepts_and_says_nothing_is_given_up(run, tmp_path):
    path = tmp_path / "silent.sock"
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(path))
        silent.listen()
        code, _, err = run("status", "--timeout", "0.2", "--address", f"unix://{path}")

    assert code == 3
    assert f"unix://{path} did not answer within 0.2 s: try again" in one_line(err)


def test_one_that_speaks_another_protocol(run):
    with socket.create_server(("127.0.0.1", 0)) as server:

        def talk() -> None:
            peer, _ = server.accept()
            with peer:
                peer.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
                peer.recv(1)

        talker = threading.Thread(target=talk)
        talker.start()
        code, _, err = run("status", "--timeout", "5", "--address", f"127.0.0.1:{server.getsockname()[1]}")
        talker.join()

    assert code == 3
    assert "127.0.0.1:" in one_line(err)


@pytest.mark.parametrize(
    ("status", "code", "line"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, 2, "sentence"),
        (grpc.StatusCode.NOT_FOUND, 1, "sentence"),
        (grpc.StatusCode.UNAVAILABLE, 3, "{target}: sentence"),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, 3, "{target}: sentence"),
        (grpc.StatusCode.INTERNAL, 3, "{target}: sentence"),
        (
            grpc.StatusCode.DEADLINE_EXCEEDED,
            3,
            "{target} did not answer within 5 s: try again, or allow more time with --timeout",
        ),
        (
            grpc.StatusCode.UNIMPLEMENTED,
            3,
            "the server at {target} is not an arpguard agent, or is an agent of another version",
        ),
    ],
    ids=lambda value: value.name if isinstance(value, grpc.StatusCode) else "",
)
def test_each_status_has_an_exit_code_and_a_line(status, code, line, run, agent):
    agent.prepared.answers["GetStatus"] = (status, "sentence")

    assert run("status") == (code, "", f"arpguard status: {line.format(target=agent.target)}\n")


@pytest.mark.parametrize(
    ("field", "typed"),
    [
        ("filter.vip", "--vip"),
        ("filter.since", "--since"),
        ("vip", "--vip"),
        ("link", "--link"),
        ("sender_mac", "--sender-mac"),
        ("address", "ADDRESS"),
        ("page_token", "page_token"),
    ],
)
def test_refused_field_is_named_as_it_is_typed(field, typed, run, agent):
    agent.prepared.answers["GetStatus"] = (grpc.StatusCode.INVALID_ARGUMENT, f"{field}: x: wrong, as in vip: y")

    assert run("status")[2] == f"arpguard status: {typed}: x: wrong, as in vip: y\n"


@pytest.mark.parametrize("timeout", ["0", "1e99", "3601", "nan"])
def test_timeout_that_no_clock_knows_exits_2(timeout, run):
    code, _, err = run("status", "--timeout", timeout)

    assert code == 2
    assert timeout in err


def test_words_of_an_agent_cannot_steer_the_terminal(run, agent):
    agent.prepared.answers["GetStatus"] = (grpc.StatusCode.INTERNAL, "a\x1b[2Jb\nc")

    assert run("status")[2] == f"arpguard status: {agent.target}: a[2Jb c\n"


def test_option_goes_before_the_environment(run, agent, tmp_path):
    assert run("status")[0] == 0
    assert run("status", "--address", f"unix://{tmp_path}/other.sock")[0] == 3


def test_short_form_of_a_unix_socket_is_taken(run, agent, tmp_path):
    assert run("status", "--address", f"unix:{tmp_path}/agent.sock")[0] == 0


def test_http_proxy_is_not_asked(run, serve, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")

    assert run("status", "--address", serve("127.0.0.1:0").target)[0] == 0


@pytest.mark.parametrize(
    "target", ["nonsense", "unix:relative", "host:", "host:0", "host:65536", ":1", "xds:///host:1", "::1:5", "a b:1"]
)
def test_wrong_address_exits_2(target, run):
    code, out, err = run("status", "--address", target)

    assert (code, out) == (2, "")
    assert (
        one_line(err)
        == f"arpguard: --address: {target}: must be unix:///PATH or HOST:PORT (check $ARPGUARD_ADDRESS, too)\n"
    )


def test_agent_and_pins_cannot_both_be_meant(run, tmp_path):
    code, _, err = run("status", "--address", "unix:///x", "--pin-dir", str(tmp_path))

    assert code == 2
    assert "give either --address (an agent) or --pin-dir" in one_line(err)


# ---- TLS ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pki(tmp_path_factory) -> Path:
    return make_pki(tmp_path_factory.mktemp("pki"))


@pytest.fixture
def tls_agent(serve, pki):
    """It asks for certificates of `ours`."""
    pair = ((pki / "server.key").read_bytes(), (pki / "server.pem").read_bytes())
    return serve("127.0.0.1:0", grpc.ssl_server_credentials([pair], (pki / "ours.pem").read_bytes(), True))


def test_mutual_tls(run, tls_agent, pki):
    code, out, err = run("status", "--address", tls_agent.target, *tls_flags(pki))

    assert (code, err) == (0, "")
    assert out.startswith("node-1: mode enforce")


@pytest.mark.parametrize(
    "wrong",
    [{"ca": "theirs"}, {"who": "stranger"}, {"name": ""}, {"name": "node-2.example"}, {"key": "stranger"}],
    ids=["ca", "client", "no name", "name", "key"],
)
def test_tls_that_fails_exits_3_with_one_line(wrong, run, tls_agent, pki):
    code, out, err = run("status", "--address", tls_agent.target, *tls_flags(pki, **wrong))

    assert (code, out) == (3, "")
    assert f"no TLS connection to {tls_agent.target}: check --tls-ca, --tls-cert, --tls-key" in one_line(err)


def test_log_of_the_library_does_not_come_between(tls_agent, pki):
    """In a process of its own: here it was set up before."""
    done = arpguard("status", "--address", tls_agent.target, *tls_flags(pki, ca="theirs"))

    assert done.returncode == 3
    assert "no TLS connection" in one_line(done.stderr)


def test_plain_call_of_an_agent_that_speaks_tls(run, tls_agent):
    code, _, err = run("status", "--address", tls_agent.target)

    assert code == 3
    assert "if it speaks TLS, give --tls-ca, --tls-cert and --tls-key" in one_line(err)


def test_tls_call_of_an_agent_that_does_not_speak_it(run, serve, pki):
    code, _, err = run("status", "--address", serve("127.0.0.1:0").target, *tls_flags(pki))

    assert code == 3
    assert "no TLS connection" in one_line(err)


def test_file_that_is_no_pem(run, tls_agent, pki):
    (pki / "junk.pem").write_text("junk")
    code, _, err = run("status", "--address", tls_agent.target, *tls_flags(pki, ca="junk"))

    assert code == 3
    assert "no TLS connection" in one_line(err)


@pytest.mark.parametrize("given", [1, 2])
def test_half_of_mutual_tls_exits_2_and_names_what_is_missing(given, run, pki):
    code, out, err = run("status", "--address", "127.0.0.1:1", *tls_flags(pki, name="")[: 2 * given])

    assert (code, out) == (2, "")
    assert err.count(": missing: mutual TLS needs --tls-ca, --tls-cert and --tls-key\n") == 3 - given


def test_file_that_cannot_be_read_exits_2(run, pki, tmp_path):
    code, _, err = run("status", "--address", "127.0.0.1:1", *tls_flags(tmp_path))

    assert code == 2
    assert "cannot be read: No such file or directory" in one_line(err)


def test_tls_over_a_unix_socket_is_refused(run, agent, pki):
    code, _, err = run("status", *tls_flags(pki))

    assert code == 2
    assert "a Unix socket needs no TLS" in one_line(err)


def test_answer_is_the_same_over_tcp(run, serve, agent):
    by_tcp = run("status", "--address", serve("127.0.0.1:0").target, "-o", "json")

    assert by_tcp == run("status", "-o", "json")
    assert pb.GetStatusRequest() in agent.prepared.requests
