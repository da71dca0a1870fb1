"""`arpguard uninstall`: takes arpguard out of a cluster."""

import argparse
import asyncio
import sys
from collections.abc import Awaitable
from contextlib import aclosing

from arpguard.cli import exits
from arpguard.cli.exits import AskError
from arpguard.cli.words import counted
from arpguard.core.bounding import some
from arpguard.kube.client import Client
from arpguard.kube.connecting import Access, find_access, find_users_access
from arpguard.kube.errors import ClusterError, ForbiddenError
from arpguard.runtime.cluster.uninstalling import Leftovers, uninstall

# The last line, where whoever reads the log of the chart's Job looks first.
_CLEAN_UP = "then remove the remaining guard: kubectl apply -k deploy/cleanup"
_RIGHTS = (
    "this account lacks rights: it must be allowed to get and delete the DaemonSet, and to list, patch and delete "
    "Leases"
)


def run_uninstall(options: argparse.Namespace) -> int:
    """`arpguard uninstall`."""
    namespace, _, name = options.daemonset.partition("/")
    return _run(options, namespace, name, find_access(options.kubeconfig))


def run_users_uninstall(options: argparse.Namespace) -> int:
    """`kubectl arpguard uninstall`."""
    return _run(options, options.namespace, "arpguard", find_users_access(options.kubeconfig, options.context))


def _run(options: argparse.Namespace, namespace: str, name: str, access: Awaitable[Access]) -> int:
    """Exit code 1 when a guard may be left on a node."""
    try:
        left = asyncio.run(_uninstall(options, namespace, name, access))
    except ForbiddenError as error:
        raise AskError(exits.UNREACHABLE, f"{error}: {_RIGHTS}") from error
    except ClusterError as error:
        raise AskError(exits.UNREACHABLE, str(error)) from error
    print("\n".join(_words(left, namespace)))
    return exits.OK if left == Leftovers(leases=left.leases) else exits.NOT_RIGHT


async def _uninstall(options: argparse.Namespace, namespace: str, name: str, access: Awaitable[Access]) -> Leftovers:
    async with aclosing(Client(await access, "uninstall")) as client:
        return await uninstall(client, namespace, name, options.timeout, lambda text: print(text, file=sys.stderr))


def _words(left: Leftovers, namespace: str) -> list[str]:
    """What was done, and what is left to do."""
    if left.running:
        more = "if they belong to a DaemonSet with another name, run arpguard uninstall --daemonset NAMESPACE/NAME"
        return [f"agents are still running on {some(left.running)}, so nothing was removed; {more}"]
    if left.pods is not None:
        look = f"kubectl -n {namespace} get pods"
        pods = counted(left.pods, "Pod")
        return [f"the agents did not stop in time (still present: {pods}). Check `{look}`, then run this command again"]

    done = [f"the agents are gone; removed {counted(left.leases, 'Lease')} that they left"]
    if left.nodes:
        whose = "the Lease of its agent is" if len(left.nodes) == 1 else "the Leases of their agents are"
        done.append(f"{some(left.nodes)} may still have the guard, because {whose} still there")
    done.append("now delete the rest of arpguard as you installed it: helm uninstall, or kubectl delete -k")
    return [*done, _CLEAN_UP] if left.nodes else done
