"""A real Prometheus scrapes real agents: it takes the alert rules, and answers what the dashboard asks."""

import json
import os
import re
import runpy
import sys
import time
from collections.abc import Iterator
from math import isfinite
from pathlib import Path
from typing import Any

import pytest
import yaml

from arpguard_lab.cluster.bench import KubeBench, vip
from arpguard_lab.cluster.scene import a_bench
from arpguard_lab.cluster.topology import KubeLab
from support.dashboard import all_panels, dashboard
from support.frames.builders import an_announcement
from support.kube.manifests import DEPLOY
from support.netns.cable import a_place
from support.netns.waiting import until
from support.netns.wire import a_raw_socket
from support.prometheus import Prometheus, a_prometheus

pytestmark = [pytest.mark.bpf, pytest.mark.netns]

VIPS = [vip(150), vip(151), vip(152)]
AUDITED = "audit: {every: 15s}"
PATIENCE_S = 60.0
RECORDED_S, STEP_S, ASKED_S = 60.0, 2.0, 0.5
COMMAND = "ARPGUARD_RECORD=$PWD/docs/pictures/dashboard.json make test TESTS=tests/netns/test_kube_prometheus.py"
OF_LOAD = {"NodesRevoked", "AgentDown", "ScrapeSlow", "LeaseWritesFail"}  # what a busy machine may bring about
# Panels about what there is none of: keepalived, vouching, faults, and nodes that observe.
EMPTY = {
    *("Instances of keepalived", "Vouchers", "Gaps between grants", "Vouchers left and nodes revoked"),
    *("VIPs that others claimed", "Only observed", "Calls that failed"),
}
OF_CHANCE = {"Ownership changes", "Calls that failed"}  # may have curves in one run and none in another
ROOT = DEPLOY.parent


@pytest.fixture(scope="module")
def bench() -> Iterator[KubeBench]:
    """Three nodes, and a VIP for each of three Services."""
    with (
        a_place("prometheus") as (folder, pin_root),
        KubeLab(3, folder, pin_root) as lab,
        a_bench(lab, "scraped", AUDITED) as made,
    ):
        for number, address in enumerate(VIPS):
            made.publish(f"web-{number}", [address])
        made.settle_evenly(VIPS)
        yield made


@pytest.fixture(scope="module")
def prometheus(bench, tmp_path_factory) -> Iterator[Prometheus]:
    """On the client, with the scrape configuration for standalone nodes, but for their addresses and a faster pace."""
    folder = tmp_path_factory.mktemp("prometheus")
    config = yaml.safe_load((DEPLOY / "monitoring/prometheus.yaml").read_text(encoding="utf-8"))
    config["global"] = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
    (job,) = config["scrape_configs"]
    job["static_configs"] = [
        {"targets": [f"{host.address}:9469"], "labels": {"instance": host.name}} for host in bench.nodes
    ]
    (folder / "alerts.yaml").symlink_to(DEPLOY / "monitoring/alerts.yaml")
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    with a_prometheus(bench.lab.client.netns, folder / "prometheus.yaml") as made:
        until(lambda: len(made.query("up == 1")) == len(bench.nodes), PATIENCE_S)
        yield made


def asked(expr: str) -> str:
    """An expression as Grafana sends it while all is chosen."""
    return re.sub(r"\$(job|node)\b", ".+", expr).replace("$__rate_interval", "10s")


def table(prometheus: Prometheus) -> dict[str, dict[str, Any]]:
    """The dashboard's table of VIPs: columns by VIP, joined as its transformations say. A VIP has one owner here."""
    panel = next(panel for panel in all_panels(dashboard()) if panel["type"] == "table")
    names = panel["transformations"][1]["options"]["renameByName"]
    rows: dict[str, dict[str, Any]] = {}
    for target in panel["targets"]:
        for labels, value in prometheus.query(asked(target["expr"])):
            cells = labels | {f"Value #{target['refId']}": value}
            rows.setdefault(labels["vip"], {}).update({names[key]: cell for key, cell in cells.items() if key in names})
    return rows


def test_every_panel_has_data_but_those_about_what_is_not_there(bench, prometheus):
    queries = {
        panel["title"]: [asked(target["expr"]) for target in panel["targets"]]
        for panel in all_panels(dashboard())
        if panel["type"] != "row"
    }

    def empty() -> set[str]:
        return {title for title, each in queries.items() if not any(map(prometheus.query, each))}

    bench.status(bench.nodes[0])  # a call, for the panels about the API
    until(lambda: empty() <= EMPTY, PATIENCE_S)


def test_lists_to_choose_from_are_those_of_the_nodes(bench, prometheus):
    assert prometheus.get("label/instance/values", **{"match[]": 'arpguard_build_info{job=~".+"}'}) == [
        host.name for host in bench.nodes
    ]
    assert prometheus.get("label/job/values", **{"match[]": "arpguard_build_info"}) == ["arpguard"]


def test_table_of_vips_tells_whose_each_is_since_when_and_how_busy(bench, prometheus):
    found: dict[str, dict[str, Any]] = {}

    def is_whole() -> bool:
        bench.who(*VIPS)
        found.update(table(prometheus))
        rows = [found.get(str(address), {}) for address in VIPS]
        return all(row.get("Answers a minute") and "MACs that answer" in row for row in rows)

    until(is_whole, PATIENCE_S)
    now_s = time.time()
    for number, (address, row) in enumerate(sorted(found.items())):
        since_s = row.pop("Since") / 1000
        assert now_s - 3600 < since_s <= now_s
        assert row.pop("Answers a minute") > 0
        assert row == {
            "VIP": address,
            "Namespace": bench.home,
            "Service": f"web-{number}",
            "Owner": bench.owner(VIPS[number]).name,
            "MACs that answer": 1,
            "Conflicts": 0,
        }


def test_rules_are_evaluated_and_no_alert_fires_in_a_healthy_cluster(prometheus):
    def rules() -> list[dict[str, Any]]:
        return [rule for group in prometheus.get("rules")["groups"] for rule in group["rules"]]

    until(lambda: all(rule["health"] == "ok" for rule in rules()), PATIENCE_S)
    assert {rule["name"] for rule in rules() if rule["state"] == "firing"} <= OF_LOAD


def test_claim_of_another_host_is_counted_in_the_table_and_raises_the_alert(bench, prometheus):
    """Near the end: the cluster is healthy no longer."""
    client, address = bench.lab.client, VIPS[0]
    claim = an_announcement(sha=client.mac, vip=address)
    with a_raw_socket(client.netns) as raw:
        raw.send(claim)
        until(lambda: table(prometheus)[str(address)].get("Conflicts"), PATIENCE_S)
    last_s = table(prometheus)[str(address)]["Last conflict"] / 1000
    assert 0 <= time.time() - last_s < PATIENCE_S
    until(lambda: "VIPAnsweredByTwoHosts" in alerts(prometheus), PATIENCE_S)
    assert alerts(prometheus)["VIPAnsweredByTwoHosts"]["runbook_url"].endswith("#vipansweredbytwohosts")


def alerts(prometheus: Prometheus) -> dict[str, dict[str, str]]:
    """The annotations of alerts that are pending or fire."""
    return {each["labels"]["alertname"]: each["annotations"] for each in prometheus.get("alerts")["alerts"]}


def test_answers_that_the_picture_of_the_dashboard_draws_are_recorded(bench, prometheus):
    """After that claim, so that the picture has one. The series are those of this run, only their values are older."""
    path = os.environ.get("ARPGUARD_RECORD")
    until_s = time.monotonic() + (RECORDED_S if path else RECORDED_S / 6)
    while time.monotonic() < until_s:
        bench.who(*VIPS)
        bench.status(bench.nodes[0])
        time.sleep(ASKED_S)
    now = recorded(prometheus)
    if path:
        Path(path).write_text(json.dumps(now) + "\n", encoding="utf-8")

    before = json.loads((ROOT / "docs/pictures/dashboard.json").read_text(encoding="utf-8"))
    drawn = {title for title, series in before["panels"].items() if series}
    assert drawn <= {title for title, series in now["panels"].items() if series} | OF_CHANCE
    assert set(before["vips"]) == set(now["vips"])


def recorded(prometheus: Prometheus) -> dict[str, Any]:
    """What the panels have to show: the last seconds of the curves, and what is now of all else."""
    now_s = time.time()
    panels: dict[str, list[Any]] = {}
    for panel in drawn_panels():
        for target in panel.get("targets", ()):
            series = panels.setdefault(panel["title"], [])
            if target["instant"]:
                series += [[labels, value] for labels, value in prometheus.query(asked(target["expr"]))]
                continue
            span = {"start": now_s - RECORDED_S, "end": now_s, "step": STEP_S}
            found = prometheus.get(
                "query_range", query=asked(target["expr"]), **{key: str(at) for key, at in span.items()}
            )
            for each in found["result"]:
                values = {round((at - span["start"]) / STEP_S): float(value) for at, value in each["values"]}
                curve = [values.get(step) for step in range(int(RECORDED_S / STEP_S) + 1)]
                series.append([legend(target["legendFormat"], each["metric"]), [rounded(value) for value in curve]])
    return {
        "day": time.strftime("%Y-%m-%d", time.gmtime(now_s)),
        "command": COMMAND,
        "at": now_s,
        "step": STEP_S,
        "panels": panels,
        "vips": table(prometheus),
    }


def drawn_panels() -> list[dict[str, Any]]:
    """Those that docs/pictures/dashboard.py draws."""
    sys.path.append(str(ROOT / "docs/pictures"))
    try:
        return runpy.run_path(str(ROOT / "docs/pictures/dashboard.py"))["PANELS"]
    finally:
        sys.path.pop()


def legend(form: str, labels: dict[str, str]) -> str:
    """The name of a curve, as Grafana makes it."""
    return re.sub(r"\{\{(\w+)\}\}", lambda found: labels.get(found[1], ""), form)


def rounded(value: float | None) -> float | None:
    """To what a picture shows of it; what is no number is left out, as by Grafana."""
    return float(f"{value:.3g}") if value is not None and isfinite(value) else None
