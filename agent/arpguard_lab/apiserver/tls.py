"""A certificate for the server, made by openssl(1): signed by itself, so that it is its own authority."""

import ssl
import subprocess
from ipaddress import ip_address
from pathlib import Path

from arpguard.errors import ArpguardError


def make(folder: Path, host: str) -> tuple[ssl.SSLContext, bytes]:
    """(context, PEM of the authority) for a host."""
    cert, key = folder / "server.crt", folder / "server.key"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    command += ["-days", "30", "-subj", "/CN=arpguard-lab", "-addext", f"subjectAltName={_name(host)}"]
    command += ["-keyout", str(key), "-out", str(cert)]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603 - no shell, our arguments
    except (OSError, subprocess.CalledProcessError) as error:
        why = getattr(error, "stderr", "") or str(error)
        raise ArpguardError(
            f"cannot make a certificate for the lab's API server ({why.strip()}): install openssl"
        ) from error
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return context, cert.read_bytes()


def _name(host: str) -> str:
    try:
        return f"IP:{ip_address(host)}"
    except ValueError:
        return f"DNS:{host}"
