"""Generates the API's Python code from proto/: `make proto`. tests/unit/test_proto.py compares what is checked in."""

import re
import sys
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent
PLUGINS = Path(sys.executable).parent
# The class for calls without a channel, which nothing uses: grpcio-tools writes one for each service, and no option
# leaves it out.
_EXPERIMENTAL = re.compile(r"\n\n # This class is part of an EXPERIMENTAL API\.\nclass .*?(?=\n\n\n|\Z)", re.DOTALL)


def generate(target: Path) -> None:
    """Writes messages, stubs and their types below `target`; SystemExit when a proto file is wrong."""
    files = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.proto"))
    options = [f"--{kind}_out={target}" for kind in ("python", "grpc_python", "mypy", "mypy_grpc")]
    plugins = [f"--plugin=protoc-gen-{kind}={PLUGINS}/protoc-gen-{kind}" for kind in ("mypy", "mypy_grpc")]
    known = Path(protoc.__file__).parent / "_proto"
    code = protoc.main(["protoc", f"--proto_path={ROOT}", f"--proto_path={known}", *plugins, *options, *files])
    if code:
        raise SystemExit(f"protoc failed with {code}")

    for stubs in target.rglob("*_pb2_grpc.py"):
        stubs.write_text(_EXPERIMENTAL.sub("", stubs.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    generate(Path(sys.argv[1]))
