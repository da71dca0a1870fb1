"""What Kubernetes costs the agent in memory. Its budget is 130 MB, of which all the rest takes about 50."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

from support.kube.scripted_server import ScriptedApi, in_loop, kubeconfig, listing, stream

SCRIPT = Path(__file__).with_name("footprint.py")
SERVICES, SLICES = 5_000, 10_000


async def _measure(*arguments: Path | str) -> dict:
    process = await asyncio.create_subprocess_exec(
        sys.executable, SCRIPT, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return json.loads(out)


def _managed(path: str) -> list[dict]:
    """As large as servers make it."""
    fields = {f"f:{path}{number}": {"f:x": {}, "f:y": {}, "f:z": {}} for number in range(20)}
    return [{"manager": "controller", "operation": "Update", "fieldsV1": fields}]


def _service(number: int) -> dict:
    return {
        "metadata": {
            "namespace": f"ns-{number % 50}",
            "name": f"service-{number}",
            "uid": f"00000000-0000-4000-8000-{number:012x}",
            "resourceVersion": str(number),
            "labels": {"app": f"app-{number}", "team": f"team-{number % 20}"},
            "managedFields": _managed("spec"),
        },
        "spec": {"type": "LoadBalancer", "externalIPs": [f"10.0.{number // 250}.{number % 250}"]},
        "status": {"loadBalancer": {"ingress": [{"ip": f"10.1.{number // 250}.{number % 250}"}]}},
    }


def _slice(number: int) -> dict:
    endpoints = [
        {
            "addresses": [f"10.2.{number % 250}.{index}"],
            "conditions": {"ready": True, "serving": True, "terminating": False},
            "nodeName": f"node-{(number + index) % 100}",
            "targetRef": {"kind": "Pod", "name": f"pod-{number}-{index}", "uid": f"{number}-{index}"},
        }
        for index in range(4)
    ]
    return {
        "metadata": {
            "namespace": f"ns-{number // 2 % 50}",
            "name": f"service-{number // 2}-x{number % 2}abc",
            "uid": f"00000000-0000-4000-8001-{number:012x}",
            "resourceVersion": str(number),
            "labels": {"kubernetes.io/service-name": f"service-{number // 2}"},
            "managedFields": _managed("endpoints"),
        },
        "endpoints": endpoints,
        "ports": [{"port": 80}],
    }


@in_loop
async def test_client_is_imported_without_models_and_without_the_synchronous_one():
    found = await _measure()
    heavy = ("kubernetes.client", "kubernetes.aio.client.models", "pydantic", "urllib3", "requests", "unittest")
    print(f"agent {found['agent_kb']} kB, with the Kubernetes client {found['imports_kb']} kB more")

    assert [name for name in found["modules"] if name.startswith(heavy)] == []
    assert found["imports_kb"] < 14_000


def test_stand_in_for_api_client_makes_a_real_one():
    """A program that uses the library itself, in the same process."""
    code = """
import asyncio
from arpguard.importing import import_part
reader = import_part("kubernetes.aio.config.kube_config")
from kubernetes.aio.client import ApiClient
async def made(): return isinstance(reader.ApiClient(), ApiClient)
print(ApiClient.__name__, asyncio.run(made()))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "ApiClient True\n"


def test_stand_in_for_unittest_is_gone_afterwards():
    code = """
from arpguard.dataplane.iproute import AsyncIPRoute
import unittest.mock
print(unittest.TestCase.__name__, unittest.mock.Mock(return_value=7)())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "TestCase 7\n"


@in_loop
async def test_agent_and_commands_do_without_it():
    """Whoever runs it without a cluster pays nothing for one."""
    found = await _measure("commands")

    assert "arpguard.cli.agent" in found["modules"]
    unwanted = {
        "aiohttp",
        "kubernetes",
        "arpguard.kube",
        "arpguard.runtime.cluster.kubernetes",
        "arpguard.runtime.cluster.member",
    }
    assert not set(found["modules"]) & unwanted


@in_loop
async def test_large_cluster_fits_into_the_budget(tmp_path):
    made = {"services": (_service, SERVICES), "endpointslices": (_slice, SLICES)}

    async def serve(request):
        make, count = made[request.path.rpartition("/")[2]]
        if request.query.get("watch"):
            return await stream()(request)
        start, size = int(request.query.get("continue", 0)), int(request.query["limit"])
        end = min(count, start + size)
        page = listing(*map(make, range(start, end)), token=str(end) if end < count else "")
        return await page(request)

    api = ScriptedApi(serve)
    async with api.serving():
        found = await _measure(kubeconfig(tmp_path, api.url))
    print(f"{SERVICES} Services and {SLICES} EndpointSlices: {found}")

    assert (found["services"], found["slices"]) == (SERVICES, SLICES)
    assert found["objects_kb"] < 20_000
    assert found["peak_kb"] < 110_000
