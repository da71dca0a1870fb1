"""Run in a process of its own: what importing the client and following a large cluster costs.

Prints JSON. Arguments: kubeconfig, or nothing for the imports alone, or "commands" for what the command line imports.
"""
# ruff: noqa: PLC0415  (what is imported when is what is measured)

import asyncio
import ctypes
import gc
import importlib
import json
import pkgutil
import re
import sys
from pathlib import Path

import arpguard.runtime.startup  # noqa: F401  (what the running agent has anyway)


def _resident_kb() -> int:
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return _kb("smaps_rollup", "Rss")


def _kb(file: str, field: str) -> int:
    return int(re.search(rf"{field}:\s+(\d+)", (Path("/proc/self") / file).read_text())[1])


async def _follow(kubeconfig: Path) -> dict[str, int]:
    from arpguard.kube.client import Client
    from arpguard.kube.connecting import find_access
    from arpguard.kube.projections import endpoint_slice, service
    from arpguard.kube.reflector import Reflector, Reflectors
    from arpguard.kube.resources import ENDPOINT_SLICES, SERVICES

    client = Client(await find_access(kubeconfig), "node-1")
    before = _resident_kb()
    async with Reflectors() as sources:
        services = Reflector(client, SERVICES, service, lambda _: None)
        slices = Reflector(client, ENDPOINT_SLICES, endpoint_slice, lambda _: None)
        sources.start(services)
        sources.start(slices)
        while not (services.synced and slices.synced):  # noqa: ASYNC110 - nothing else needs to be told
            await asyncio.sleep(0.01)
        counts = {"services": len(services.objects), "slices": len(slices.objects)}
        peak = _kb("status", "VmHWM")
        found = {**counts, "objects_kb": _resident_kb() - before, "total_kb": _resident_kb(), "peak_kb": peak}
    await client.aclose()
    return found


def _imports() -> dict[str, object]:
    # Every agent serves, and shares modules with the client.
    import arpguard.api.server
    import arpguard.observe.exporter

    before = _resident_kb()
    import arpguard.runtime.cluster.kubernetes  # noqa: F401 - and all that the agent needs with it
    from arpguard.importing import import_part

    for part in ("client.rest", "client.configuration", "config.incluster_config", "config.kube_config"):
        import_part(f"kubernetes.aio.{part}")
    after = _resident_kb()
    return {"agent_kb": before, "imports_kb": after - before, "modules": sorted(sys.modules)}


OF_CLUSTERS = {"arpguard.cli.uninstall"}  # commands that ask nothing but the API server


def _commands() -> dict[str, object]:
    import arpguard.cli

    commands = {module.name for module in pkgutil.iter_modules(arpguard.cli.__path__, "arpguard.cli.")}
    for name in (*sorted(commands - OF_CLUSTERS), "arpguard_lab.command", "arpguard_lab.scenarios"):
        importlib.import_module(name)
    return {"modules": sorted(sys.modules)}


def _found(arguments: list[str]) -> dict:
    if not arguments:
        return _imports()
    return _commands() if arguments == ["commands"] else asyncio.run(_follow(Path(arguments[0])))


if __name__ == "__main__":
    print(json.dumps(_found(sys.argv[1:])))
