"""Generates the API's Python code from proto/: `make proto`. tests/unit/test_proto.py compares what is checked in."""

import sys
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent
PLUGINS = Path(sys.executable).parent


def generate(target: Path) -> None:
    """Writes messages, stubs and their types below `target`; SystemExit when a proto file is wrong."""
    files = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.proto"))
    options = [f"--{kind}_out={target}" for kind in ("python", "grpc_python", "mypy", "mypy_grpc")]
    plugins = [f"--plugin=protoc-gen-{kind}={PLUGINS}/protoc-gen-{kind}" for kind in ("mypy", "mypy_grpc")]
    known = Path(protoc.__file__).parent / "_proto"
    code = protoc.main(["protoc", f"--proto_path={ROOT}", f"--proto_path={known}", *plugins, *options, *files])
    if code:
        raise SystemExit(f"protoc failed with {code}")


if __name__ == "__main__":
    generate(Path(sys.argv[1]))
