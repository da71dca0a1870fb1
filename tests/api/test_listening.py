"""Where the agent listens: sockets and ports, what is in their way, and mutual TLS for whoever is not on the node."""

import os
import shutil
import signal
import socket
import ssl
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest

from api.apitools import UNAVAILABLE, an_api, ended
from arpguard.v1 import agent_pb2 as pb
from arpguard_lab.topology import AgentProcess
from support.netns.agents import said
from support.netns.cable import Pair, a_pair, address
from support.netns.waiting import HUNG_S, until

pytestmark = [pytest.mark.bpf, pytest.mark.netns]

END_S = 20
VIPS = f"mode: enforce\ninterfaces: [eth0]\nvips: [{{address: {address(50)}, owner: {{node: node-1}}}}]\n"
PUBLIC = "198.51.100.1:50443"


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with a_pair("listen") as made:
        made.agent(VIPS).kill(signal.SIGTERM)
        yield made


@pytest.fixture
def agent(pair, tmp_path) -> Iterator[AgentProcess]:
    """An agent that is not started yet, with a socket of its own."""
    made = AgentProcess(pair.node, tmp_path, pair.pin_root / pair.node.name)
    yield made
    made.kill(signal.SIGKILL)


def configure(agent: AgentProcess, *listen: str, tls: str = "") -> None:
    addresses = ", ".join(f'"{item}"' for item in listen)
    own = f"bpf: {{pin_dir: {agent.pin_dir}}}\ngrpc: {{listen: [{addresses}]{tls}}}\n"
    agent.config.write_text(own + VIPS)


def started(agent: AgentProcess, *listen: str, tls: str = "") -> None:
    configure(agent, *listen, tls=tls)
    agent.start()
    agent.wait_for()


def refused(agent: AgentProcess) -> tuple[int, str]:
    """The exit code of an agent that is to end by itself, and the one line that says why."""
    agent.start()
    assert agent._process is not None
    code = agent._process.wait(timeout=HUNG_S)
    (line,) = [text for text in agent.log.read_text().splitlines() if not text[:4].isdigit()]
    return code, line


def path_of(agent: AgentProcess) -> Path:
    return Path(agent.api.removeprefix("unix://"))


def guards_without(agent: AgentProcess, url: str, why: str) -> None:
    """The guard comes up all the same, and says what is in the way of its API."""
    agent.start()
    agent.wait_for()
    agent.wait_for(f"problem: cannot listen on {url}: {why}; remove the cause, or change grpc.listen")


def answers(agent: AgentProcess, url: str) -> bool:
    with an_api(url) as api:
        try:
            return api.GetStatus().node == "node-1"
        except grpc.RpcError:
            return False


# ---- the socket --------------------------------------------------------------------------------------------------


def test_socket_is_for_owner_and_group_and_goes_at_the_end(agent):
    """Its folder is made."""
    path = path_of(agent).parent / "new" / "folder" / "api.sock"
    started(agent, f"unix://{path}")
    mode = path.stat().st_mode

    assert stat.S_ISSOCK(mode)
    assert stat.S_IMODE(mode) == 0o660
    assert (path.stat().st_uid, path.stat().st_gid) == (os.geteuid(), os.getegid())
    with an_api(f"unix://{path}") as api:
        assert api.GetStatus().node == "node-1"
    agent.kill(signal.SIGTERM)
    assert not path.exists()


def test_socket_that_a_dead_agent_left_is_taken_over(agent):
    started(agent, agent.api)
    agent.kill(signal.SIGKILL)
    assert path_of(agent).is_socket()
    started(agent, agent.api)

    with an_api(agent) as api:
        assert api.GetStatus().node == "node-1"


@pytest.mark.parametrize("backlog", ["free", "full"])
def test_socket_that_somebody_answers_at_is_left_to_them(agent, backlog):
    """Also when they are slow to answer."""
    path = path_of(agent)
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as caller:
        listener.bind(str(path))
        listener.listen(0)
        inode = path.stat().st_ino
        if backlog == "full":
            caller.connect(str(path))
        configure(agent, agent.api)

        guards_without(agent, agent.api, "another process listens there")
        assert path.stat().st_ino == inode
    until(lambda: answers(agent, agent.api), END_S, "it is served once nobody else is there")


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_what_is_no_socket_is_left_alone(agent, kind):
    path = path_of(agent)
    path.mkdir() if kind == "folder" else path.write_text("precious")
    configure(agent, agent.api)

    guards_without(agent, agent.api, "a file of that name exists and is not a socket")
    assert path.is_dir() if kind == "folder" else path.read_text() == "precious"


def test_folder_that_cannot_be_made_is_a_problem(agent, tmp_path):
    (tmp_path / "file").write_text("")
    url = f"unix://{tmp_path}/file/api.sock"
    configure(agent, url)

    guards_without(agent, url, "File exists")


@pytest.mark.parametrize("where", ["to another socket", "to nothing"])
def test_link_of_that_name_is_left_alone(agent, where, tmp_path):
    path = path_of(agent)
    with socket.socket(socket.AF_UNIX) as listener:
        if where == "to another socket":
            listener.bind(str(tmp_path / "theirs"))
        path.symlink_to(tmp_path / "theirs")
        configure(agent, agent.api)

        guards_without(agent, agent.api, "a symbolic link of that name exists")
        assert path.is_symlink()


def test_socket_is_made_in_no_folder_of_another_user(agent):
    folder = path_of(agent).parent / "theirs"
    folder.mkdir()
    os.chown(folder, 1234, -1)
    url = f"unix://{folder}/api.sock"
    configure(agent, url)

    guards_without(agent, url, f"other users could replace the socket: {folder} belongs to another user (uid 1234)")


def test_folder_that_everybody_may_write_to_is_closed_to_them(agent):
    """As the kubelet makes an emptyDir."""
    folder = path_of(agent).parent / "wide"
    folder.mkdir()
    folder.chmod(0o777)
    started(agent, f"unix://{folder}/api.sock")

    assert stat.S_IMODE(folder.stat().st_mode) == 0o775


def test_no_address_at_all_is_nowhere(agent):
    started(agent)

    assert not path_of(agent).exists()


# ---- ports -------------------------------------------------------------------------------------------------------


def a_listener(pair: Pair, port: int) -> socket.socket:
    return pair.node.netns.call(lambda: socket.create_server(("127.0.0.1", port)))


def test_port_in_use_keeps_nothing_but_itself_from_being_served(pair, agent):
    """Nor does the guard wait for it; when it is free, it is served."""
    with a_listener(pair, 50052):
        configure(agent, agent.api, "127.0.0.1:50052")
        guards_without(agent, "127.0.0.1:50052", "address already in use")
        with an_api(agent) as api:
            until(lambda: [text for text in api.GetStatus().problems if "50052" in text])
            assert api.ListVips().vips[0].kind == pb.KIND_OWNED
    agent.wait_for("solved: cannot listen on 127.0.0.1:50052")
    with an_api(agent) as api:
        until(lambda: not api.GetStatus().problems)  # the status is kept for a moment


def test_port_of_another_agent_is_not_shared_with_it(pair, agent, tmp_path):
    started(agent, agent.api, "127.0.0.1:50051")
    second = AgentProcess(pair.node, tmp_path / "second", pair.pin_root / "second")
    second.config.parent.mkdir()
    configure(second, "127.0.0.1:50051")

    try:
        guards_without(second, "127.0.0.1:50051", "address already in use")
        second.wait_for(
            "problem: cannot listen on 0.0.0.0:9469: address already in use; remove the cause, or change metrics.listen"
        )
    finally:
        second.kill(signal.SIGKILL)
        pair.arpguard("cleanup", "--pin-dir", str(second.pin_dir))
    with an_api(agent) as api:
        assert api.GetStatus().node == "node-1"


def test_settings_that_need_a_restart_are_a_problem_until_they_are_as_they_were(agent):
    started(agent, agent.api)
    before = agent.config.read_text()
    with an_api(agent) as api:
        for text in ("metrics: {listen: 127.0.0.1:9999}\n", "metrics: {listen: 127.0.0.1:9999}\ndatapath: tc\n"):
            agent.config.write_text(before + text)
            until(
                lambda: [found for found in api.GetStatus().problems if "metrics.listen stays 0.0.0.0:9469" in found],
                END_S,
            )
        agent.config.write_text(before)
        until(lambda: not [found for found in api.GetStatus().problems if "metrics.listen" in found], END_S)


def test_address_that_others_can_reach_needs_tls(agent):
    configure(agent, "198.51.100.1:50051")
    code, line = refused(agent)

    assert code == 2
    assert line.startswith(f"{agent.config}: line 2: grpc.listen[0]: must be a loopback address")
    assert "needs grpc.tls with cert, key and client_ca" in line


# ---- mutual TLS --------------------------------------------------------------------------------------------------


@dataclass
class Pki:
    """A CA and what it signed, as files."""

    folder: Path

    def __post_init__(self) -> None:
        self.folder.mkdir()
        self._openssl("req", "-x509", *self._new("ca"), "-subj", "/CN=ca", "-days", "2")

    def issue(self, name: str, san: str = "") -> tuple[Path, Path]:
        """A certificate and its key."""
        self._openssl("req", *self._new(name, "csr"), "-subj", f"/CN={name}")
        extensions = self.folder / f"{name}.ext"
        extensions.write_text(f"subjectAltName={san}\n" if san else "")
        ca = (
            "-CA",
            str(self.folder / "ca.pem"),
            "-CAkey",
            str(self.folder / "ca.key"),
            "-CAcreateserial",
            "-days",
            "2",
        )
        out = ("-in", str(self.folder / f"{name}.csr"), "-out", str(self.folder / f"{name}.pem"))
        self._openssl("x509", "-req", *out, *ca, "-extfile", str(extensions))
        return self.folder / f"{name}.pem", self.folder / f"{name}.key"

    @property
    def ca(self) -> Path:
        return self.folder / "ca.pem"

    def _new(self, name: str, suffix: str = "pem") -> tuple[str, ...]:
        key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
        return (*key, "-keyout", str(self.folder / f"{name}.key"), "-out", str(self.folder / f"{name}.{suffix}"))

    @staticmethod
    def _openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], check=True, capture_output=True)


@pytest.fixture(scope="module")
def pki(tmp_path_factory) -> Pki:
    made = Pki(tmp_path_factory.mktemp("pki") / "ours")
    made.issue("server", "IP:198.51.100.1")
    made.issue("renewed", "IP:198.51.100.1")
    made.issue("client")
    return made


@pytest.fixture(scope="module")
def others(tmp_path_factory) -> Pki:
    made = Pki(tmp_path_factory.mktemp("pki") / "others")
    made.issue("client")
    return made


@pytest.fixture
def secured(agent, pki, tmp_path) -> AgentProcess:
    """An agent with mutual TLS on an address that the client can reach; its files are copies."""
    for source, name in (("server.pem", "tls.crt"), ("server.key", "tls.key"), ("ca.pem", "ca.crt")):
        shutil.copy(pki.folder / source, tmp_path / name)
    started(agent, agent.api, PUBLIC, "127.0.0.1:50051", tls=tls(tmp_path))
    return agent


def tls(folder: Path) -> str:
    return f", tls: {{cert: {folder}/tls.crt, key: {folder}/tls.key, client_ca: {folder}/ca.crt}}"


def put(source: Path, target: Path) -> None:
    """Replaces a file as certificate managers do."""
    draft = target.with_suffix(".new")
    shutil.copy(source, draft)
    draft.replace(target)


def ask(pair: Pair, ca: Path, *own: Path) -> str:
    """What the client is told over TLS."""
    words = [*pair.client.netns.prefix(), sys.executable, str(Path(__file__).with_name("ask.py")), PUBLIC, ca, *own]
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=HUNG_S, check=True)
    return done.stdout.strip()


def shown_to(pair: Pair, pki: Pki, own: tuple[Path, Path]) -> str | None:
    """The name in the certificate that the agent shows, if it then lets the client speak HTTP/2; None if not."""

    def handshake() -> str | None:
        context = ssl.create_default_context(cafile=str(pki.ca))
        context.load_cert_chain(*map(str, own))
        context.set_alpn_protocols(["h2"])
        try:
            with (
                socket.create_connection(("198.51.100.1", 50443), timeout=HUNG_S) as plain,
                context.wrap_socket(plain, server_hostname="198.51.100.1") as secure,
            ):
                secure.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0)))
                settings = secure.recv(9)
                ((_, name),) = secure.getpeercert()["subject"][0]
                return name if settings[3:4] == b"\x04" else None
        except (ssl.SSLError, ConnectionError):
            return None

    return pair.client.netns.call(handshake)


def test_only_clients_with_a_certificate_of_the_ca_are_answered(pair, secured, pki, others):
    client = pki.folder / "client.pem", pki.folder / "client.key"
    stranger = others.folder / "client.pem", others.folder / "client.key"

    assert ask(pair, pki.ca, *client) == "node-1"
    assert ask(pair, pki.ca) == "UNAVAILABLE"
    assert ask(pair, pki.ca, *stranger) == "UNAVAILABLE"
    assert ask(pair, others.ca, *client) == "UNAVAILABLE", "the agent proves who it is, too"
    assert ask(pair, pki.ca, *client) == "node-1"


def test_plaintext_is_not_spoken_where_tls_is(pair, secured):
    def plain() -> bytes:
        with socket.create_connection(("198.51.100.1", 50443), timeout=HUNG_S) as connection:
            connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0)))
            try:
                return connection.recv(9)
            except ConnectionError:
                return b""

    assert pair.client.netns.call(plain)[3:4] != b"\x04"


def test_local_addresses_need_no_certificate_beside_it(secured):
    with an_api(secured) as api:
        assert api.GetStatus().node == "node-1"


def test_certificate_replaced_on_disk_is_shown_at_the_next_handshake(pair, secured, pki, tmp_path):
    own = pki.folder / "client.pem", pki.folder / "client.key"
    assert shown_to(pair, pki, own) == "server"

    put(pki.folder / "renewed.pem", tmp_path / "tls.crt")
    assert shown_to(pair, pki, own) == "server", "the key is not there yet: the pair before serves"
    put(pki.folder / "renewed.key", tmp_path / "tls.key")
    until(lambda: shown_to(pair, pki, own) == "renewed")
    assert ask(pair, pki.ca, *own) == "node-1"


@pytest.mark.parametrize("name", ["tls.crt", "tls.key", "ca.crt"])
def test_file_that_is_broken_or_gone_changes_nothing(pair, secured, pki, tmp_path, name):
    own = pki.folder / "client.pem", pki.folder / "client.key"
    (tmp_path / "draft").write_text("no PEM\n")
    (tmp_path / "draft").replace(tmp_path / name)
    assert shown_to(pair, pki, own) == "server"
    (tmp_path / name).unlink()
    assert shown_to(pair, pki, own) == "server"
    assert said(secured, "Traceback") == 0


def test_clients_ca_replaced_on_disk_lets_its_clients_in_and_no_others(pair, secured, pki, others, tmp_path):
    ours = pki.folder / "client.pem", pki.folder / "client.key"
    theirs = others.folder / "client.pem", others.folder / "client.key"
    assert (shown_to(pair, pki, ours), shown_to(pair, pki, theirs)) == ("server", None)

    put(others.ca, tmp_path / "ca.crt")
    until(lambda: shown_to(pair, pki, theirs) == "server")
    assert shown_to(pair, pki, ours) is None


@pytest.mark.parametrize("name", ["tls.crt", "tls.key", "ca.crt"])
@pytest.mark.parametrize("how", ["gone", "broken"])
def test_agent_does_not_start_with_tls_files_it_cannot_use(agent, pki, tmp_path, name, how):
    for source, target in (("server.pem", "tls.crt"), ("server.key", "tls.key"), ("ca.pem", "ca.crt")):
        shutil.copy(pki.folder / source, tmp_path / target)
    (tmp_path / name).unlink() if how == "gone" else (tmp_path / name).write_text("no PEM\n")
    configure(agent, PUBLIC, tls=tls(tmp_path))
    code, line = refused(agent)
    setting = {"tls.crt": "cert", "tls.key": "key", "ca.crt": "client_ca"}[name]

    assert code == 2
    assert line.startswith(f"configuration: grpc.tls.{setting}: {tmp_path / name}: ")
    assert ": must be a PEM file that root can read, with " in line


def test_agent_does_not_start_with_another_certificates_key(agent, pki, tmp_path):
    for source, target in (("server.pem", "tls.crt"), ("renewed.key", "tls.key"), ("ca.pem", "ca.crt")):
        shutil.copy(pki.folder / source, tmp_path / target)
    configure(agent, PUBLIC, tls=tls(tmp_path))
    code, line = refused(agent)

    assert code == 2
    assert line.startswith(f"configuration: grpc.tls.key: {tmp_path}/tls.key: key values mismatch: ")


def test_nobody_answers_once_the_agent_has_gone(agent):
    started(agent, agent.api)
    with an_api(agent) as api:
        assert api.GetStatus().node == "node-1"
        agent.kill(signal.SIGTERM)
        assert ended(api.GetStatus)[0] == UNAVAILABLE
