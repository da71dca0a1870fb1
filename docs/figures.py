"""The numbers in prose, which come from docs/figures.json: `<!--fence-->2 s<!--/-->` shows the figure `fence`.

`defaults` come from the code. `measured` have the day and the command of the run that gave them: edit those by hand, or
take those with a row of `make bench` from its output, by `.venv/bin/python docs/figures.py BENCH.json`. `make docs`
then writes all of them into the pages.
"""

import ctypes
import importlib
import inspect
import json
import os
import re
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from arpguard.api import calls, requests, watching
from arpguard.cli.kubectl import streaming
from arpguard.cli.kubectl.main import build_parser as kubectl_parser
from arpguard.cli.main import build_parser
from arpguard.config import model, sections
from arpguard.config.model import AuditConfig, LeaseConfig
from arpguard.core import (
    announcing,
    auditing,
    balancing,
    conflicts,
    electing,
    leasetimes,
    pacing,
    sightings,
    speakers,
    steadiness,
    steering,
)
from arpguard.core.checkup import picture
from arpguard.core.ownership import peer, steps, sweeping
from arpguard.core.ownership.lease import RENEWALS_IN_BOUND_LEASE
from arpguard.core.vouching import profiles, seeking, trials, voucher
from arpguard.dataplane import build, layout, prober
from arpguard.kube import clustersecret
from arpguard.kube.reflector import DEFAULT_PACE
from arpguard.observe import metrics
from arpguard.runtime import auditing as asking
from arpguard.runtime import conflicts as heard
from arpguard.runtime import passes, tracefile
from arpguard.runtime.cluster import announcers, ending, kubernetes, leases, ownedby
from arpguard.runtime.cluster.objects import LEASE_PACE
from arpguard.runtime.kernel import announcing as telling
from arpguard.runtime.kernel import hearing
from arpguard.runtime.voucher import __main__ as spinning
from arpguard.runtime.voucher import loop
from arpguard.units import NS_PER_MS, NS_PER_S
from arpguard.wire.ethernet import MIN_FRAME_LEN
from arpguard_lab import oracle
from arpguard_lab.cluster import crashes, planned, topology

TOP = Path(__file__).resolve().parent.parent
FILE = TOP / "docs/figures.json"
MARK = re.compile(r"<!--([\w-]+)-->([^<]*)<!--/-->")
_LAB = "arpguard_lab.cluster"
_SLEWED = 2 / 13  # of d: 2r/(1+r), where clocks are off by r = 1/12


def defaults() -> dict[str, str]:
    """Those of the code."""
    return {
        **_of_leases(),
        **_of_vouching(),
        **_of_the_kernel(),
        **_of_the_cluster(),
        **_of_commands(),
        **_of_audits(),
        **_of_tests(),
    }


def _of_leases() -> dict[str, str]:
    """The times of the claim protocol, and of elections."""
    lease = LeaseConfig()
    times = leasetimes.times_of(lease, vouched=True)
    parting, bound = times.lasting(kubernetes.PARTING_NS), times.at_bound
    return {
        "lease": _span(lease.duration_ns),
        "margin": _span(lease.margin_ns),
        "renew": _span(lease.renew_ns),
        "fence": _span(times.answers_ns),
        "takeover": f"{_seconds(times.answers_ns)} to {_span(times.duration_ns)}",
        "slow-renew": f"{lease.renew_ns * 13 / 11 / NS_PER_S:.2f} s",
        "slow-fence": f"{times.answers_ns * 13 / 11 / NS_PER_S:.2f} s",
        "parting": _span(parting.duration_ns),
        "parted-answers": _span(parting.answers_ns // NS_PER_S * NS_PER_S),
        "parted-silent": _span(-(-parting.margin_ns // NS_PER_S) * NS_PER_S),
        "rest-renew": _span(times.at_rest.renew_ns),
        "rest-lease": _span(times.at_rest.duration_ns),
        "sync": _span(times.sync_ns),
        "missing": _span(peer.MISSING_NS),
        "epochs": f"{_hidden('arpguard.core.ownership.peer', '_MAX_EPOCHS')}",
        "drain": f"{leases.DRAIN_S * 1000:g} ms",
        "bound-lease": _span(bound.duration_ns),
        "bound-margin": _span(bound.margin_ns),
        "bound-renew": _span(bound.renew_ns),
        "bound-least": _span(bound.answers_ns - bound.renew_ns),
        "bound-answers": f"{_seconds(bound.answers_ns - bound.renew_ns)} to {_span(bound.answers_ns)}",
        "bound-hung": f"{_seconds(bound.duration_ns)} to {_span(bound.duration_ns * 5 // 3)}",
        **_of_many_nodes(),
        "balance": _span(electing.BATCH_NS),
        "balance-most": f"{balancing.BATCH}",
        "next-choice": _span(electing.BACKUP_NS),
        "shun": _span(electing.SHUN_NS),
        "start-settle": _span(electing.SETTLE_NS),
        "probing": f"{prober.LISTEN_S:g} s",
        "retry-most": _span(steps.LONGEST_RETRY_NS),
        "soon": _span(pacing.SOON_NS),
        "late": _span(pacing.LATE_NS),
    }


def _of_many_nodes() -> dict[str, str]:
    """From how many nodes on agents write and list less often, and how often."""
    names = ("WRITES_PER_S", "WRITES_PER_S_AT_REST", "LISTS_PER_S")
    writes, rest_writes, lists = (_hidden("arpguard.core.leasetimes", f"_MAX_{name}") for name in names)
    bound = leasetimes.times_of(LeaseConfig(), vouched=True).at_bound
    return {
        "writes": f"{writes} times",
        "many-nodes": f"{writes * LeaseConfig().renew_ns // NS_PER_S}",
        "rest-writes": f"{rest_writes} times",
        "rest-many-nodes": f"{rest_writes * leasetimes.REST_NS // NS_PER_S}",
        "lists-many-nodes": f"{lists * leasetimes.SYNC_NS // NS_PER_S}",
        "renewals": f"{1000 * NS_PER_S // bound.renew_ns} renewals",
        "renewals-heard": f"{1000 * NS_PER_S // bound.renew_ns}",
        "renewals-sent": f"{1000 * NS_PER_S // bound.renew_ns * 1000:,}",
    }


def _of_vouching() -> dict[str, str]:
    """The times of vouchers, and how they read heartbeats."""
    lease_ns = leasetimes.BOUND_NS
    patience_ns = lease_ns * 5 // (2 * RENEWALS_IN_BOUND_LEASE)
    pings = NS_PER_S // voucher.PING_NS
    found = {
        "pings": f"{pings} times a second",
        "ping-rate": f"{pings}",
        "ping": _milliseconds(voucher.PING_NS),
        "vouch-frames": f"{3 * pings} a second",
        "voucher-read": f"{_seconds(patience_ns // 2)} and {_span(patience_ns)}",
        "voucher-hung": f"{_seconds(patience_ns)} to {_span(patience_ns * 3 // 2)}",
        "reads-voucher": f"{2 * NS_PER_S / patience_ns:.2f} times",
        "ring-read": f"{_seconds(lease_ns // 2)} and {_span(lease_ns)}",
        "ring-check": _span(lease_ns // sweeping.SWEEPS_IN_BOUND_LEASE),
        "reads-ring": f"{2 * sweeping.SWEPT * NS_PER_S / lease_ns:.2f} times",
        "trials-most": f"{trials.MOST_NODES}",
        "turn": f"{seeking.TURN_NS / NS_PER_S:g} s",
        "proof": f"{seeking.PROOF_NS / NS_PER_S:g} s",
        "clocks": f"{trials.CLOCKS_PER_MILLE / 10:g} %",
        "spin": _milliseconds(1000 * spinning.SPIN_US),
        "farewell": _milliseconds(loop.FAREWELL_NS),
        "crowded": f"{1000 * loop.CROWDED_S:g} ms",
        "slewed": f"{_SLEWED:.3f} d",
        "profile-d": f"{_seconds(profiles.FAST.d_ns)} to {_span(profiles.SLOW.d_ns)}",
        "freeze": f"{_pause_ns(profiles.FAST) / NS_PER_S:.1f} to {_pause_ns(profiles.SLOW) / NS_PER_S:.1f} s",
        "fast-d": _milliseconds(profiles.FAST.d_ns),
        "fast-window": _milliseconds(profiles.FAST.window_ns),
        "default-d": _milliseconds(profiles.DEFAULT.d_ns),
    }
    for each in profiles.PROFILES:
        found[f"{each.name}-d-s"] = f"{each.d_ns / NS_PER_S:.1f} s"
        found[f"{each.name}-m"] = f"{each.m_ns / NS_PER_S:.1f} s"
        found[f"{each.name}-pause"] = f"{_pause_ns(each) / NS_PER_MS:.0f} ms"
    return found


def _pause_ns(profile: profiles.Profile) -> float:
    """How long a guest may pause: m without what clocks and the way to the wire take of it."""
    return profile.m_ns - _SLEWED * profile.d_ns - leases.DRAIN_S * NS_PER_S


def _of_the_kernel() -> dict[str, str]:
    """What an agent does on its own node."""
    return {
        "defence": _span(announcing.DEFEND_INTERVAL_NS),
        "announce": _span(announcing.ANNOUNCE_INTERVAL_NS),
        "announcements": f"{NS_PER_S // announcing.RATE_INTERVAL_NS} announcements",
        "defence-rate": f"{NS_PER_S // announcing.RATE_INTERVAL_NS}",
        "events-window": f"{_written('bpf/arpguard.c', '#define EVENTS_IN_WINDOW')}",
        "hearing-share": f"{100 * hearing.SHARE:g} % of a core",
        "hearing-burst": f"{hearing.BURST_S:g} s",
        "log-burst": f"{telling.BURST}",
        "log-first": f"{heard.FIRST_PER_S}",
        "conflicts-memory": f"{heard.CAPACITY:,}",
        "claim-grace": _span(conflicts.GRACE_NS),
        "stranger": _span(conflicts.PERSISTS_NS),
        "conflicts-kept": f"{heard.CAPACITY}",
        "closed-most": f"{sections.MAX_CLOSED}",
        "interfaces-most": f"{model.MAX_INTERFACES}",
        "listen-most": f"{sections.MAX_LISTEN}",
        "labels-most": f"{sections.MAX_LABELS}",
        "entries": f"{build.DEFAULT_MAX_ENTRIES:,}",
        "entry-bytes": f"{round(ctypes.sizeof(layout.CountersStruct), -2)} bytes",
        "entries-share": f"{100 * passes.SHARE:g} % of a core",
        "settle": f"{1000 * passes.SETTLE_S:g} ms",
        "group-left": f"{passes.AUDIT_INTERVAL_S:g} s",
        "series-most": f"{metrics.MAX_OWNED:,}",
        "link-wait": _span(steadiness.FIRST_WAIT_NS),
        "link-wait-most": _span(steadiness.LONGEST_WAIT_NS),
        "trace-most": f"{tracefile.LONGEST_BYTES // 10**6} MB",
        "checked-most": f"{picture.MAX_ASKED}",
    }


def _of_the_cluster() -> dict[str, str]:
    """How agents watch and write objects, and what the manifests give them."""
    text = (TOP / "deploy/base/daemonset.yaml").read_text(encoding="utf-8")
    (container,) = yaml.safe_load(text)["spec"]["template"]["spec"]["containers"]
    lease, rest_ns, bound_ns = LeaseConfig(), leasetimes.REST_NS, leasetimes.BOUND_NS // RENEWALS_IN_BOUND_LEASE
    echo_ns = int(DEFAULT_PACE.echo_s * NS_PER_S)
    keep_alive = {option: value for _, option, value in _hidden("arpguard.kube.client", "_KEEPALIVE")}
    idle, interval, count = (keep_alive[getattr(socket, f"TCP_KEEP{name}")] for name in ("IDLE", "INTVL", "CNT"))
    return {
        "memory-limit": container["resources"]["limits"]["memory"],
        "memory-request": container["resources"]["requests"]["memory"],
        "secret": f"{clustersecret.LEN}",
        "watch": "{:g} to {:g} minutes".format(*(each / 60 for each in DEFAULT_PACE.watch_s)),
        "keep-alive": f"{idle} s",
        "stream-dead": f"{idle + interval * count} s",
        "echo": f"{DEFAULT_PACE.echo_s:g} s",
        "stream-echo": _span(lease.renew_ns + echo_ns),
        "stream-echo-rest": _span(rest_ns + echo_ns),
        "stream-echo-bound": _span(bound_ns + echo_ns),
        "stream-spread": f"{DEFAULT_PACE.spread_s:g} s",
        "stream-idle": f"{DEFAULT_PACE.idle_s:g} s",
        "stream-steady": f"{DEFAULT_PACE.steady_s:g} s",
        "stream-steady-leases": f"{LEASE_PACE.steady_s:g} s",
        "absent-retry": f"{announcers.LONGEST_RETRY_S:g} s",
        "events-namespaces": f"{announcers.MANY_NAMESPACES}",
        "events-after": f"{1000 * announcers.EVENTS_S:g} ms",
        "follow-pause": _milliseconds(steering.PAUSE_NS),
        "follow-lasts": _span(steering.LASTS_NS),
        "changes-most": f"{steering.MOST}",
        "changes-window": _span(steering.WINDOW_NS),
        "changes-steady": _span(steering.STEADY_NS),
        "speaker-look": _milliseconds(speakers.QUICK_NS),
        "speaker-moving": _span(speakers.MOVING_NS),
        "speaker-requests": f"{speakers.UNANSWERED} requests",
        "speaker-unanswered": _milliseconds(speakers.UNANSWERED_NS),
        "speaker-retry": _span(speakers.RETRY_NS),
        "speaker-retry-most": _span(speakers.LONGEST_RETRY_NS),
        "named-most": f"{1 / ownedby.EACH_S:g} Services",
        "named-again": _span(ownedby.AGAIN_NS),
        "named-gone": _span(ownedby.GONE_NS),
        "uninstall-lately": f"{ending.LATELY_NS // (60 * NS_PER_S)} minutes",
        "uninstall-seen": f"{ending.SEE_S:g} s",
    }


def _of_commands() -> dict[str, str]:
    """The limits of the API and of the commands."""
    options = dict(_hidden("arpguard.api.server", "_OPTIONS"))
    plugin, watched = kubectl_parser().parse_args(["status"]), kubectl_parser().parse_args(["watch"])
    late_s = max(_hidden("arpguard.cli.kubectl.watch", "_LATE") * watched.interval, watched.timeout)
    return {
        "page": f"{requests.PAGE_SIZE}",
        "page-most": f"{requests.MAX_PAGE_SIZE}",
        "request-time": f"{calls.REQUEST_S:g} s",
        "request-bytes": f"{options['grpc.max_receive_message_length'] >> 10} KiB",
        "api-connections": f"{options['grpc.max_allowed_incoming_connections']}",
        "api-calls": f"{_hidden('arpguard.api.server', '_MAX_CALLS')}",
        "api-streams": f"{calls.MAX_STREAMS}",
        "api-operations": f"{_hidden('arpguard.api.answers', '_MAX_OPERATIONS')}",
        "watch-queue": f"{watching.QUEUE_LEN}",
        "watch-most": f"{_hidden('arpguard.cli.watch', '_MOST_VIPS'):,}",
        "wide": f"{_hidden('arpguard.cli.tables', '_ROOM_FOR_ALL')}",
        "early-wait": f"{build_parser().parse_args(['early', 'FILE']).wait:g} s",
        "sightings-most": f"{sightings.MAX_SIGHTINGS:,}",
        "kubectl-timeout": f"{plugin.timeout:g}",
        "kubectl-again": f"{streaming.AGAIN_S:g} s",
        "kubectl-interval": f"{watched.interval:g} s",
        "kubectl-late": f"{late_s:g} s",
        "complete": f"{_hidden('arpguard.cli.kubectl.completing', '_LIMIT_S'):g} s",
        "bundle-lines": f"{int(_hidden('arpguard.cli.kubectl.bundle', '_LOG_LINES')):,}",
    }


def _of_audits() -> dict[str, str]:
    """The audit's times, and what it costs with 10,000 VIPs on three nodes."""
    audit = AuditConfig()
    span_ns = audit.every_ns - auditing.CONFIRM_NS
    asked = 10_000 * NS_PER_S // span_ns
    return {
        "audit": _span(audit.every_ns),
        "audit-again": f"{asking.TICK_S + asking.WAIT_S:.0f} s",
        "audit-spare": _span(auditing.CONFIRM_NS),
        "audit-rate": f"{audit.rate} questions a second",
        "audit-round": f"{10_000 / 3 / audit.rate:.0f} s",
        "audit-span": _span(span_ns),
        "audit-asked": f"{asked} questions a second",
        "audit-bits": f"{asked * MIN_FRAME_LEN * 8 // 1000} kbit/s",
    }


def _of_tests() -> dict[str, str]:
    """What the lab and other tests do and demand, and how many rules they break."""
    if str(TOP / "tests") not in sys.path:
        sys.path.append(str(TOP / "tests"))
    traces, table = importlib.import_module("properties.test_traces"), vars(importlib.import_module("neighbours.table"))
    soak = importlib.import_module("soak.record").QUANTITIES
    return {
        **_of_the_lab(),
        "rules-claims": f"{len(traces.TOLD)}",
        "rules": f"{len(traces.VOUCHED_TOLD) + len(traces.UNTOLD)}",
        "rules-told": f"{len(traces.VOUCHED_TOLD)}",
        "rules-voucher": f"{len(traces.VOUCHER_TOLD) + len(traces.VOUCHER_UNTOLD)}",
        "rules-voucher-told": f"{len(traces.VOUCHER_TOLD)}",
        "ci-chaos": f"{_written('tests/chaos/test_rounds.py', 'CHAOS_S')} seconds",
        "kernel-patience": f"{_written('agent/arpguard/runtime/inthread.py', 'PATIENCE_S'):.0f} s",
        "walks-days": f"{_written('Makefile', 'DAYS'):,}",
        "fuzz-frames": f"{_written('Makefile', 'FRAMES'):,}",
        "fuzz-cases": f"{_written('Makefile', 'CASES'):,}",
        "soak-most": f"{soak['anon_mb'].tolerance:g} MB",
        "table-asks": f"{1000 * table['INTERVAL_S']:g} ms",
        "table-steady": f"{table['STEADY']:,}",
        "table-move": f"{table['AT_A_MOVE']}",
        "table-edit": _milliseconds(table["_EDIT_NS"]),
    }


def _of_the_lab() -> dict[str, str]:
    """The times of its scenarios, and their limits."""
    watch_s = _hidden("arpguard_lab.apiserver.watching", "_TIMEOUT_S")
    deaths, outages = (vars(importlib.import_module(f"{_LAB}.vouched_{name}")) for name in ("deaths", "outages"))
    return {
        "elect": f"{len(_hidden(f'{_LAB}.scenarios', '_FEW'))}",
        "api-down": f"{inspect.signature(crashes.run_api_down).parameters['outage_s'].default:g} s",
        "unknown-asks": f"{1 / _hidden(f'{_LAB}.unknown', '_INTERVAL_S'):,.0f} times",
        "lab-asks": f"{1 / _hidden(f'{_LAB}.rounds', '_INTERVAL_S'):.0f} times",
        "lab-late": f"{_hidden(f'{_LAB}.meddling', '_LATEST_S'):g} s",
        "lab-watch": f"{watch_s / 60:g} to {2 * watch_s / 60:g} minutes",
        "burst": f"{len(_hidden(f'{_LAB}.burst', 'MANY')):,}",
        "burst-writes": f"{_hidden(f'{_LAB}.burst', '_SLOW_WRITES_PER_S')} writes",
        "burst-gone": f"{_hidden(f'{_LAB}.burst', 'CLAIMS_GONE_S'):g} s",
        "kill-median": f"{crashes.MEDIAN_S:g} s",
        "kill-worst": f"{crashes.WORST_S:g} s",
        "drain-gap": f"{planned.GAP_MS} ms",
        "crash": f"{planned.CRASH_MS / 1000:g} s",
        "first-answer": f"{_hidden(f'{_LAB}.unknown', '_FIRST_ANSWER_MS') / 1000:g} s",
        "lab-trial": f"{topology.TRIAL_MS / 1000:g} s",
        "node-dies": f"{deaths['_WORST_MS'] / 1000:g} s",
        "both-die": f"{deaths['_BOTH_MS'] / 1000:g} s",
        "lan-dead": f"{deaths['_LAN_MS'] / 1000:g} s",
        "apart": f"{deaths['_APART_S']:g} s",
        "by-default": f"{_hidden(f'{_LAB}.vouched_default', '_WORST_MS') / 1000:g} s",
        "rolling-down": f"{outages['_DOWN_S']:g} s",
        "rolling-up": f"{outages['_UP_S']:g} s",
        "away-after-death": f"{outages['_AFTER_DEATH_S']:g} s",
        "api-away": f"{outages['_AWAY_S']:g} s",
        "api-away-long": f"{outages['_LONG_S']:g} s",
        "api-back": f"{outages['_BACK_MS'] / 1000:g} s",
        "lab-restart": f"{outages['_RESTART_S']:g} s",
        "lab-mixed": f"{outages['_MIXED_S']:g} s",
        "lab-rest": f"{_hidden(f'{_LAB}.scenarios', '_REST_S'):g} s",
        "overlap": _milliseconds(oracle.MIN_GAP_NS),
    }


def _hidden(module: str, name: str) -> Any:
    """A constant that only its own module uses."""
    return vars(importlib.import_module(module))[name]


def _written(path: str, name: str) -> int:
    """A number as a file sets it: one that is better not imported, or none of Python."""
    text = (TOP / path).read_text(encoding="utf-8")
    (digits,) = re.findall(rf"^{name} (?::?= )?([\d_]+)", text, re.MULTILINE)
    return int(digits)


def _milliseconds(ns: int) -> str:
    return f"{ns // NS_PER_MS:,} ms"


def _span(ns: int) -> str:
    return f"{_seconds(ns)} s"


def _seconds(ns: int) -> str:
    return f"{ns / NS_PER_S:g}"


def known() -> dict[str, Any]:
    """The file, with the defaults as they have to be."""
    measured = json.loads(FILE.read_text(encoding="utf-8"))["measured"] if FILE.exists() else {}
    return {"defaults": defaults(), "measured": measured}


def filled(text: str, figures: Mapping[str, Any] | None = None) -> str:
    """A page with its figures as they have to be. KeyError for one that there is none of."""
    found = figures or known()
    values = found["defaults"] | {name: each["value"] for name, each in found["measured"].items()}
    return MARK.sub(lambda mark: f"<!--{mark[1]}-->{values[mark[1]]}<!--/-->", text)


def marked_pages() -> Iterator[Path]:
    """The pages that show a figure, from docs."""
    for path in [TOP / "README.md", *sorted(FILE.parent.glob("*.md"))]:
        if MARK.search(path.read_text(encoding="utf-8")):
            yield Path(os.path.relpath(path, FILE.parent))


def benched(measured: Mapping[str, Any], bench: Mapping[str, Any], day: str) -> dict[str, Any]:
    """What was measured, with the rows of `make bench BENCH=--json` taken over."""
    rows = {(name, row["name"]): row for name, section in bench.items() for row in section["rows"]}
    taken = {}
    for name, figure in measured.items():
        row = rows.get(tuple(figure.get("row", ())))
        taken[name] = figure if row is None else figure | {"value": f"{row['median']:.2g} {row['unit']}", "day": day}
    return taken


def as_text(figures: Mapping[str, Any]) -> str:
    """The file's text."""
    return json.dumps(figures, indent=1, ensure_ascii=False) + "\n"


def main() -> None:
    """Takes over what `make bench` has measured."""
    bench = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    found = known()
    found["measured"] = benched(found["measured"], bench, time.strftime("%Y-%m-%d", time.gmtime()))
    FILE.write_text(as_text(found), encoding="utf-8")


if __name__ == "__main__":
    main()
