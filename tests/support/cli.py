"""What the tests of the command line share: messages, and text that means harm."""

import subprocess
from pathlib import Path

from arpguard.v1 import agent_pb2 as pb
from support.netns.waiting import HUNG_S

HOSTILE = "\x1b[31mred\x1b]0;title\x07 \u202eback\u202c 名前名前 e\u0301 " + "long" * 60


def lines_of(text: str) -> list[str]:
    lines = text.split("\n")
    assert all(line.isprintable() for line in lines), text
    return lines


VIP = pb.Vip(
    address="192.0.2.10",
    link="eth0",
    ifindex=2,
    kind=pb.KIND_OWNED,
    mode=pb.MODE_ENFORCE,
    owner="node-1",
    source="vips[0]",
    hold=True,
    answer_mac="02:00:00:00:00:01",
    reasons=[pb.ReasonCount(reason=pb.REASON_ANSWERED, enforced=5, observed=2)],
)
DECISION = pb.Decision(
    vip="192.0.2.10",
    link="eth0",
    hook=pb.HOOK_TC_INGRESS,
    verdict=pb.VERDICT_ANSWER,
    reason=pb.REASON_ANSWERED,
    mode=pb.MODE_ENFORCE,
    kind=pb.KIND_OWNED,
    op="request",
    sha="02:00:00:00:00:64",
    count=3,
)


def _openssl(*words: str, folder: Path) -> None:
    subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True, timeout=HUNG_S)


def make_pki(folder: Path) -> Path:
    """Two authorities, `ours` and `theirs`; a server's certificate, and a client's of each."""
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    for name in ("ours", "theirs"):
        _openssl(
            "req", "-x509", *key, "-keyout", f"{name}.key", "-out", f"{name}.pem", "-subj", f"/CN={name}", folder=folder
        )
    for name, ca in (("server", "ours"), ("client", "ours"), ("stranger", "theirs")):
        _openssl("req", *key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}", folder=folder)
        (folder / f"{name}.ext").write_text("subjectAltName=DNS:node-1.example\n")
        signing = ("-CA", f"{ca}.pem", "-CAkey", f"{ca}.key", "-CAcreateserial", "-extfile", f"{name}.ext")
        _openssl("x509", "-req", "-in", f"{name}.csr", *signing, "-out", f"{name}.pem", folder=folder)
    return folder


def tls_flags(
    pki: Path, ca: str = "ours", who: str = "client", key: str = "", name: str = "node-1.example"
) -> list[str]:
    words = ["--tls-ca", f"{pki}/{ca}.pem", "--tls-cert", f"{pki}/{who}.pem", "--tls-key", f"{pki}/{key or who}.key"]
    return [*words, "--tls-server-name", name] if name else words
