"""The parts of the running agent, and how they are connected."""

from arpguard.core.announcing import AnnouncementSchedule
from arpguard.core.decisions import ConflictLog, DecisionLog
from arpguard.dataplane.announcementsocket import AnnouncementSocket
from arpguard.dataplane.attach import Attacher
from arpguard.dataplane.events import EventReader
from arpguard.dataplane.maps import ControlValue, EntryTable, RangeTable
from arpguard.dataplane.syscall import Fd
from arpguard.model import Surroundings
from arpguard.node import ThisNode
from arpguard.runtime.agent import Agent
from arpguard.runtime.auditing import Auditing
from arpguard.runtime.conflicts import Conflicts
from arpguard.runtime.controlplane import ControlPlane, Standalone
from arpguard.runtime.decisions import Decisions
from arpguard.runtime.early import EarlyFile
from arpguard.runtime.keepalived import Keepalived
from arpguard.runtime.kernel.announcing import Announcing
from arpguard.runtime.kernel.listening import Listening
from arpguard.runtime.kernel.pinned import Pinned
from arpguard.runtime.kernel.reconciler import Reconciler
from arpguard.runtime.kernel.vouching import VouchingMaps
from arpguard.runtime.linkwatch import LinkWatch
from arpguard.runtime.memory import GivingBack
from arpguard.runtime.passes import Passes, Upkeep
from arpguard.runtime.serving import Serving
from arpguard.runtime.settings import FileFollower, KubernetesOptions, Settings
from arpguard.runtime.waking import Alarm


# config file --> FileFollower --> Settings         API server             rtnetlink
#                                     |              |     ^                   |
#                                     v              v     | Leases            v
#                                  Kubernetes, or Standalone               LinkWatch
#                                  ^     |     |         |                     | links, routes
#                     rival claims |     |     |         | Asked               v
#                                  |     |     |         +----------------> Passes <------- Upkeep: after each change,
#                                  |     |     |                               | ^          and now and then
#                                  |     |     |                               | +--------- Keepalived: its states
#                                  |     |     | elected VIPs, fence           |
#                                  |     |     +----------------------+        | entries, ranges, programs
#                                  |     | claims that count          v        v
#                                  |     v                           Reconciler --------> maps, programs (Pinned,
#                                  |  Conflicts                       |      |              VouchingMaps)
#                                  |     | defends VIPs               | due  | owned VIPs         |
#                                  |     +-----------> Announcing <---+      v                    | decisions
#                                  |                       |             Listening                |
#                                  |                       v                 |                    |
#                                  |               AnnouncementSocket        v                    |
#                                  |                   ARP, NDP       multicast groups            |
#                                  |                                                              |
#                              Decisions <-------------------- EventReader <----------------------+
#                                  |   ^
#                                  |   | what its questions brought about
#                                  v   v
#                              ThisNode, Auditing: questions on the wire, and who answers
#                                  |
#                                  v
#                              ThisNode: all that can be read ---> Serving: API, metrics        GivingBack: memory
#
# Whoever learns that something has changed wakes `wanted`, on which Upkeep sleeps: FileFollower, LinkWatch, Kubernetes,
# and Serving and Listening when their problems change. Every part gets those that it calls when it is made.
async def build(
    node: str,
    cluster: KubernetesOptions | None,
    settings: Settings,
    pinned: Pinned,
    announcements: AnnouncementSocket,
    early: EarlyFile,
    lock: Fd,
) -> Agent:
    """Builds the agent of a node, over its programs and maps. Raises ConfigError. `lock`: on the pins."""
    wanted = Alarm()  # asks for a pass

    # This node's kernel
    maps, programs = pinned.maps, pinned.programs
    table, control = EntryTable(maps["entries"], maps["counters"]), ControlValue(maps["control"])
    ranges = RangeTable(maps["ranges"], maps["counters"])
    schedule = AnnouncementSchedule()
    vouching = VouchingMaps(maps["vouching"], maps["control"], maps["grants"], lock)
    kernel = Reconciler(node, table, ranges, control, Attacher(pinned.pin_dir, programs), schedule, vouching)
    listening = Listening(kernel, wanted)
    announcing = Announcing(schedule, kernel.speaking, listening, announcements)

    # What to guard, and rival claims
    conflict_log = ConflictLog()
    conflicts = Conflicts(conflict_log, announcing)
    plane: ControlPlane
    if cluster is None:
        plane = Standalone(settings, conflicts)
    else:
        from arpguard.kube.connecting import find_access  # noqa: PLC0415 - 10 MB, not for everybody
        from arpguard.runtime.cluster.kubernetes import Kubernetes  # noqa: PLC0415
        from arpguard.runtime.cluster.objects import AgentIdentity  # noqa: PLC0415

        access, identity = await find_access(cluster.kubeconfig), AgentIdentity(node, *cluster.place)
        plane = Kubernetes(access, identity, kernel, settings, announcing, conflicts, wanted)

    # For readers
    this_node = ThisNode(
        name=node,
        table=table,
        ranges=ranges,
        control=control,
        totals=maps["totals"],
        grants=maps["grants"],
        programs=programs,
        state=kernel.state,
        surroundings=Surroundings(),
        decisions=DecisionLog(settings.config.decisions.capacity),
        conflicts=conflict_log,
        started_ns=settings.started_ns,
        in_force=settings.in_force,
        cluster=plane.state,
        tenures=kernel.tenures,
    )
    auditing = Auditing(this_node, settings, plane)
    serving = Serving(this_node, auditing, settings, wanted)
    events = EventReader(maps["events"], Decisions(this_node, serving, auditing, plane).take)

    # What keeps the kernel up to date
    links, file = LinkWatch(wanted), FileFollower(settings, wanted)
    keepalived = Keepalived(this_node, wanted)
    told = (serving, listening, conflicts, this_node.audits, keepalived, early)
    passes = Passes(this_node, settings, pinned, plane, kernel, links, keepalived, early, told)
    upkeep = Upkeep(passes, links, kernel, pinned, wanted, (announcing, listening))
    others = (announcing, links, file, auditing, keepalived, GivingBack())
    return Agent(plane, passes, upkeep, listening, serving, events, others)
