"""Dashboard, alert rules and scrape configurations: promtool accepts them, and they ask for what there is."""

import functools
import itertools
import json
import re
from typing import get_args

import pytest
import yaml
from prometheus_client.process_collector import ProcessCollector

from arpguard.config.files import parse_config
from arpguard.core.auditing import AuditFinding
from arpguard.kube.writer import Written
from arpguard.observe.cluster import CLUSTER
from arpguard.observe.metrics import SPECS
from arpguard.verdict import VIP_KINDS, Hook, Reason, Verdict, Vouched
from support.dashboard import MONITORING as FOLDER
from support.dashboard import all_panels, dashboard
from support.kube.manifests import charted, objects_in, one, parsed
from support.prometheus import run_promtool

VALUES = {
    "verdict": {verdict.name.lower() for verdict in Verdict},
    "reason": {reason.name.lower() for reason in Reason},
    "kind": {kind.name.lower() for kind in VIP_KINDS},
    "finding": {finding.name.lower() for finding in AuditFinding},
    "mode": {"observe", "enforce"},
    "action": {"observed", "enforced"},
    "hook": {hook.name.lower() for hook in Hook},
    "outcome": {"delivered", "limited", "lost", "received", *(kind.__name__.lower() for kind in get_args(Written))},
    "what": {
        *("entry", "program", "control", "heartbeat", "revocation", "claim", "vouched", "tried"),
        *(what.name.lower() for what in Vouched),
    },
    "job": {"arpguard"},
}
BY_PROMETHEUS = {"job", "cluster", "instance"}
_HISTOGRAM = {"_bucket": {"le"}, "_sum": set(), "_count": set()}
_OPERATORS = {"unless", "and", "or"}


def exported() -> dict[str, set[str]]:
    """The labels of every series that Prometheus has of an agent."""
    series = {"up": set(), "scrape_duration_seconds": set(), "ALERTS": {"alertname"}}
    series |= {sample.name: set() for family in ProcessCollector(registry=None).collect() for sample in family.samples}
    for spec in SPECS:
        suffixes = _HISTOGRAM if spec.kind == "histogram" else {"": set()}
        series |= {spec.name + suffix: set(spec.labels) | more for suffix, more in suffixes.items()}
    return {name: labels | BY_PROMETHEUS for name, labels in series.items()}


@functools.cache
def rules() -> list[dict]:
    (document,) = objects_in("monitoring/alerts.yaml")
    return [rule for group in document["groups"] for rule in group["rules"]]


@functools.cache
def rule_tests() -> list[dict]:
    (document,) = objects_in("monitoring/alerts.test.yaml")
    return document["tests"]


def panels() -> list[dict]:
    return [panel for panel in all_panels(dashboard()) if panel["type"] != "row"]


def expressions() -> dict[str, str]:
    """All PromQL, by where it stands."""
    found = {rule["alert"]: rule["expr"] for rule in rules()}
    for panel in panels():
        found |= {f"{panel['title']} {target['refId']}": target["expr"] for target in panel["targets"]}
    variables = dashboard()["templating"]["list"]
    return found | {f"${item['name']}": item["definition"] for item in variables if item["type"] == "query"}


EXPRESSIONS = expressions()
everywhere = pytest.mark.parametrize("expr", EXPRESSIONS.values(), ids=EXPRESSIONS.keys())


def metrics_in(expr: str) -> set[str]:
    """What is neither a label, a range, a function nor an operator."""
    bare = re.sub(r"\b(by|on)\s*\([^)]*\)|\{[^}]*\}|\[[^]]*\]|, \w+\)$", " ", expr)
    return set(re.findall(r"\b[a-zA-Z_]\w*\b(?!\s*\()", bare)) - _OPERATORS


def labels_in(expr: str) -> set[str]:
    """Labels that are matched, or grouped by."""
    matched = [name for braces in re.findall(r"\{([^}]*)\}", expr) for name in re.findall(r"(\w+)\s*[=!]~?", braces)]
    grouped = re.findall(r"\b(?:by|on)\s*\(([^)]*)\)", expr) + re.findall(r"^label_values\(.*, (\w+)\)$", expr)
    return set(matched) | {name for names in grouped for name in re.split(r"\s*,\s*", names)}


# ---- promtool ----------------------------------------------------------------------------------------------------


def test_rules_are_valid():
    assert f"SUCCESS: {len(rules())} rules found" in run_promtool("check", "rules", str(FOLDER / "alerts.yaml"))


def test_rules_fire_when_they_are_to():
    assert "SUCCESS" in run_promtool("test", "rules", str(FOLDER / "alerts.test.yaml"))


def test_scrape_configuration_of_standalone_nodes_is_valid():
    assert "SUCCESS" in run_promtool("check", "config", str(FOLDER / "prometheus.yaml"))


def test_scrape_configuration_for_kubernetes_is_valid(tmp_path):
    """Debian's promtool is built without Kubernetes: static targets stand in for what it would discover."""
    config = yaml.safe_load((FOLDER / "prometheus-kubernetes.yaml").read_text(encoding="utf-8"))
    (job,) = config["scrape_configs"]
    assert [item["role"] for item in job.pop("kubernetes_sd_configs")] == ["pod"]
    job["static_configs"] = [{"targets": ["192.0.2.11:9469"]}]
    (tmp_path / "alerts.yaml").symlink_to(FOLDER / "alerts.yaml")
    (tmp_path / "prometheus.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    assert "SUCCESS" in run_promtool("check", "config", str(tmp_path / "prometheus.yaml"))


@pytest.mark.parametrize(
    ("address", "target"), [("192.0.2.11", "192.0.2.11:{}"), ("2001:db8::11", "[2001:db8::11]:{}")]
)
def test_prometheus_asks_the_port_that_metrics_are_served_on(address, target):
    """As relabelling does it: a rule whose expression is the whole value sets its label."""
    config = yaml.safe_load((FOLDER / "prometheus-kubernetes.yaml").read_text(encoding="utf-8"))
    (job,) = config["scrape_configs"]
    rules = [rule for rule in job["relabel_configs"] if rule["target_label"] == "__address__"]
    found = [
        matched.expand(rule["replacement"].replace("$", "\\"))
        for rule in rules
        if (matched := re.fullmatch(rule["regex"], address))
    ]
    text = (FOLDER.parent / "base/configmap.yaml").read_text(encoding="utf-8")
    port = parse_config(yaml.safe_load(text)["data"]["config.yaml"]).metrics.listen.rpartition(":")[2]
    assert found == [target.format(port)]


@pytest.mark.parametrize("name", ["prometheus.yaml", "prometheus-kubernetes.yaml"])
def test_jobs_have_the_name_that_the_alerts_go_by(name):
    config = yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))
    assert [job["job_name"] for job in config["scrape_configs"]] == ["arpguard"]


def test_every_expression_of_the_dashboard_is_promql(tmp_path):
    promql = [expr.replace("$__rate_interval", "1m") for expr in EXPRESSIONS.values() if "label_values" not in expr]
    checked = [{"record": f"checked_{number}", "expr": expr} for number, expr in enumerate(promql)]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "all", "rules": checked}]}))
    assert f"SUCCESS: {len(checked)} rules found" in run_promtool("check", "rules", str(tmp_path / "rules.yaml"))


# ---- the chart ---------------------------------------------------------------------------------------------------

MADE = {
    "podMonitor": ("PodMonitor", "arpguard"),
    "prometheusRule": ("PrometheusRule", "arpguard"),
    "dashboard": ("ConfigMap", "arpguard-dashboard"),
}


def chosen(*which: str, more: tuple[str, ...] = ()) -> list[dict]:
    """What the chart makes with these of its values enabled."""
    words = (("--set", f"metrics.{name}.enabled=true") for name in which)
    return parsed(charted(*itertools.chain.from_iterable(words), *more))


@pytest.mark.parametrize("which", MADE)
def test_chart_adds_each_object_where_it_is_enabled_and_nothing_else(which):
    added = chosen(which)
    made = one(added, *MADE[which])
    added.remove(made)
    assert added == chosen()
    assert made["metadata"]["namespace"] == "arpguard"


def test_chart_has_the_alerts_and_the_dashboard_of_this_folder():
    objects = chosen("prometheusRule", "dashboard")
    assert [one(objects, *MADE["prometheusRule"])["spec"]] == objects_in("monitoring/alerts.yaml")
    found = one(objects, *MADE["dashboard"])
    copy = (FOLDER.parent / "helm/arpguard/files/arpguard.json").read_text(encoding="utf-8")
    assert json.loads(found["data"].pop("arpguard.json")) == json.loads(copy)
    assert (found["data"], found["metadata"]["labels"]["grafana_dashboard"]) == ({}, "1")


def runbooks(*more: str) -> list[tuple[str, str]]:
    """Page and section to which each alert of the chart leads."""
    rules = one(chosen("prometheusRule", more=more), *MADE["prometheusRule"])["spec"]["groups"]
    urls = (rule["annotations"]["runbook_url"] for group in rules for rule in group["rules"] if "alert" in rule)
    return [(page, section) for page, _, section in (url.partition("#") for url in urls)]


def test_alerts_of_the_chart_lead_to_the_runbooks_that_a_value_names():
    page = "https://docs.example.com/our/$1/runbooks.html"
    named = runbooks("--set-string", f"metrics.runbookUrl={page}")

    assert {each for each, _ in named} == {page}
    assert [section for _, section in named] == [section for _, section in runbooks()]


@pytest.mark.parametrize("url", ["runbooks.html", "https://docs.example.com/#a", "https://a b"])
def test_runbooks_that_are_no_page_are_refused(url):
    with pytest.raises(AssertionError, match="runbookUrl"):
        charted("--set-string", f"metrics.runbookUrl={url}")


def scraped(*more: str) -> dict:
    """How the chart's PodMonitor has Prometheus scrape."""
    spec = one(chosen("podMonitor", more=more), *MADE["podMonitor"])["spec"]
    (endpoint,) = spec.pop("podMetricsEndpoints")
    return spec | endpoint


def test_chart_scrapes_as_the_scrape_configuration_does():
    (job,) = yaml.safe_load((FOLDER / "prometheus-kubernetes.yaml").read_text(encoding="utf-8"))["scrape_configs"]
    camel = {"source_labels": "sourceLabels", "target_label": "targetLabel"}
    found = scraped()
    assert found["relabelings"] == [
        {camel.get(key, key): value for key, value in rule.items()} for rule in job["relabel_configs"]
    ]
    (selector,) = job["kubernetes_sd_configs"][0]["selectors"]
    assert [f"{key}={value}" for key, value in found["selector"]["matchLabels"].items()] == [selector["label"]]

    pod = one(chosen(), "DaemonSet")["spec"]["template"]
    assert pod["metadata"]["labels"].items() >= found["selector"]["matchLabels"].items()
    assert pod["metadata"]["labels"][found["jobLabel"]] == job["job_name"]
    assert found["honorLabels"], "the operator adds a `namespace` of its own"
    assert (found["path"], "port" in found) == ("/metrics", False)


def test_chart_scrapes_the_port_of_its_configuration():
    found = scraped("--set", "config.metrics.listen=[::]:9999")
    assert [rule["replacement"] for rule in found["relabelings"][:2]] == ["$1:9999", "[$1]:9999"]


def test_chart_refuses_to_have_scraped_what_is_off():
    with pytest.raises(AssertionError, match="listen: off; set it to HOST:PORT, or disable the PodMonitor"):
        scraped("--set", "config.metrics.listen=off")


def test_chart_gives_all_of_them_the_labels_that_a_prometheus_selects_by():
    objects = chosen(*MADE, more=("--set", "metrics.labels.release=kube-prometheus-stack"))
    for each in MADE.values():
        labels = one(objects, *each)["metadata"]["labels"]
        assert labels.items() >= {"release": "kube-prometheus-stack", "app.kubernetes.io/name": "arpguard"}.items()


@pytest.mark.parametrize("setting", ["podMonitor.enabled=maybe", "serviceMonitor.enabled=true", "dashboard=true"])
def test_chart_refuses_values_of_metrics_that_mean_nothing(setting):
    with pytest.raises(AssertionError, match="schema"):
        charted("--set", f"metrics.{setting}")


# ---- what is asked for exists ------------------------------------------------------------------------------------


@everywhere
def test_every_metric_that_is_asked_for_is_exported(expr):
    asked = metrics_in(expr)
    assert asked
    assert asked <= exported().keys()


@everywhere
def test_every_label_that_is_asked_for_is_on_a_metric_of_the_expression(expr):
    assert labels_in(expr) <= set().union(*(exported()[name] for name in metrics_in(expr)))


@everywhere
def test_every_value_that_is_asked_for_is_one_that_the_label_has(expr):
    for label, wanted in re.findall(r'(\w+)(?:=~?|!=)"([^"$]+)"', expr):
        if label in VALUES:
            assert set(wanted.split("|")) <= VALUES[label], label


def test_every_metric_is_shown_or_alerted_on():
    """But for what is asked for by hand only."""
    asked = set().union(*map(metrics_in, EXPRESSIONS.values()))
    shown = {re.sub("_bucket$", "", name) for name in asked}
    assert {spec.name for spec in SPECS} - shown == {
        "arpguard_decisions_remembered",
        "arpguard_start_time_seconds",
    }


# ---- alerts ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_alert_says_how_bad_it_is_and_what_to_do(rule):
    assert rule["labels"]["severity"] in ("critical", "warning")
    assert len(rule["annotations"]["summary"]) < 100
    assert len(rule["annotations"]["description"]) > 60


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_alert_is_seen_to_fire_and_to_be_silent(rule):
    checks = itertools.chain.from_iterable(test["alert_rule_test"] for test in rule_tests())
    fires = [bool(check["exp_alerts"]) for check in checks if check["alertname"] == rule["alert"]]
    assert set(fires) == {True, False}


# ---- dashboard ---------------------------------------------------------------------------------------------------


def test_panels_have_ids_and_titles_of_their_own():
    for field in ("id", "title"):
        values = [panel[field] for panel in all_panels(dashboard())]
        assert len(set(values)) == len(values)


def cells_of(panels: list[dict]) -> list[tuple[int, int]]:
    return [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]


@pytest.mark.parametrize("name", ["deploy/monitoring/arpguard.json", "deploy/helm/arpguard/files/arpguard.json"])
def test_panels_fill_the_page_and_do_not_overlap(name):
    board = json.loads((FOLDER.parents[1] / name).read_text(encoding="utf-8"))
    cells = cells_of(board["panels"])
    assert len(set(cells)) == len(cells)
    assert {x for x, _ in cells} <= set(range(24))
    assert {y for _, y in cells} == set(range(max(y for _, y in cells) + 1)), "no line is empty"

    for row in (panel for panel in board["panels"] if panel.get("collapsed")):
        within = cells_of(row["panels"])
        assert len(set(within)) == len(within)
        assert min(y for _, y in within) == row["gridPos"]["y"] + 1, "where they are once the row is opened"


def test_what_there_is_in_kubernetes_only_is_collapsed_but_in_the_chart():
    """And none of it stands elsewhere. Vouching is off by default."""
    chart = json.loads((FOLDER.parent / "helm/arpguard/files/arpguard.json").read_text(encoding="utf-8"))
    collapsed, in_chart = (
        {panel["title"] for panel in board["panels"] if panel.get("collapsed")} for board in (dashboard(), chart)
    )
    assert (collapsed, in_chart) == ({"Kubernetes", "Vouching"}, {"Vouching"})
    assert [panel["title"] for panel in all_panels(chart)] == [panel["title"] for panel in all_panels(dashboard())]
    assert [panel.get("targets") for panel in all_panels(chart)] == [
        panel.get("targets") for panel in all_panels(dashboard())
    ]

    of_cluster = {spec.name for spec in CLUSTER}
    shown = [panel for panel in dashboard()["panels"] if panel["type"] != "row"]
    asked = set().union(*(metrics_in(target["expr"]) for panel in shown for target in panel["targets"]))
    assert not of_cluster & asked


@pytest.mark.parametrize("panel", panels(), ids=lambda panel: panel["title"])
def test_panel_explains_itself(panel):
    assert len(panel["description"]) > 30
    assert panel["fieldConfig"]["defaults"]["unit"]
    assert all(target["legendFormat"] for target in panel["targets"])


@pytest.mark.parametrize("panel", panels(), ids=lambda panel: panel["title"])
def test_panel_shows_the_chosen_nodes_of_the_chosen_source(panel):
    assert panel["datasource"]["uid"] == "${datasource}"
    for target in panel["targets"]:
        assert target["datasource"]["uid"] == "${datasource}"
        for name in metrics_in(target["expr"]):
            assert re.search(rf'{name}\{{job=~"\$job", instance=~"\$node"', target["expr"]), name


def table_of_vips() -> dict:
    (table,) = (panel for panel in panels() if panel["gridPos"]["y"] == 0 and panel["type"] == "table")
    return table


def test_table_of_vips_has_the_columns_that_an_operator_asks_for():
    """Grafana calls the value of query A `Value #A`; the rows are joined by VIP."""
    joined, organised = (step["options"] for step in table_of_vips()["transformations"])
    assert joined["byField"] == "vip"
    order = sorted(organised["indexByName"], key=organised["indexByName"].get)
    assert [organised["renameByName"][name] for name in order] == [
        *("VIP", "Namespace", "Service", "Owner", "Since", "Answers a minute", "MACs that answer", "Conflicts"),
        "Last conflict",
    ]
    asked = [target["refId"] for target in table_of_vips()["targets"]]
    hidden = {name for name in organised["excludeByName"] if name.startswith("Value")}
    assert {f"Value #{name}" for name in asked} == hidden | {name for name in order if name.startswith("Value")}
    assert {"Time", *(f"Time {number}" for number, _ in enumerate(asked, 1))} <= organised["excludeByName"].keys()
    styled = {override["matcher"]["options"] for override in table_of_vips()["fieldConfig"]["overrides"]}
    assert styled <= {*organised["renameByName"].values()}


def test_table_of_vips_asks_whose_each_is_since_when_how_busy_and_who_else_claims_it(tmp_path):
    """Each query as Prometheus answers it; claims that may be the owner's own are no conflicts."""
    owner = 'node="node-1", service="web", namespace="shop"'
    claimed = 'job="arpguard", instance="node-1", vip="192.0.2.1", link="eth0"'
    series = {
        f'arpguard_vip_owner{{job="arpguard", instance="node-1", vip="192.0.2.1", {owner}}}': "1x5",
        'arpguard_vip_owner_since_timestamp_seconds{job="arpguard", instance="node-1", vip="192.0.2.1"}': "7x5",
        'arpguard_vip_requests_answered_total{job="arpguard", instance="node-1", vip="192.0.2.1"}': "100+90x5",
        'arpguard_vip_answers{job="arpguard", instance="node-2", vip="192.0.2.1"}': "2x5",
    }
    claims = [
        ("conflict", "outside", 3, 17),
        ("unverified_claim", "cluster_node", 2, 18),
        ("unverified_claim", "outside", 9, 99),
    ]
    for reason, claimant, reports, last_s in claims:
        labels = f'{claimed}, reason="{reason}", claimant="{claimant}"'
        series[f"arpguard_conflicting_claims{{{labels}}}"] = f"{reports}x5"
        series[f"arpguard_conflict_last_timestamp_seconds{{{labels}}}"] = f"{last_s}x5"

    vip = '{vip="192.0.2.1"}'
    rows = [(f'{{vip="192.0.2.1", {owner}}}', 1), (vip, 7_000), (vip, 90), (vip, 2), (vip, 5), (vip, 18_000)]
    asked = [
        re.sub(r"\$(job|node)", ".+", target["expr"]).replace("$__rate_interval", "4m")
        for target in table_of_vips()["targets"]
    ]
    checks = [
        {"expr": expr, "eval_time": "5m", "exp_samples": [{"labels": labels, "value": value}]}
        for expr, (labels, value) in zip(asked, rows, strict=True)
    ]
    given = [{"series": name, "values": values} for name, values in series.items()]
    test = {"interval": "1m", "input_series": given, "promql_expr_test": checks}
    (tmp_path / "test.yaml").write_text(yaml.safe_dump({"rule_files": [], "tests": [test]}), encoding="utf-8")
    assert "SUCCESS" in run_promtool("test", "rules", str(tmp_path / "test.yaml"))


def test_legends_name_labels_that_the_expression_keeps():
    for panel in panels():
        for target in panel["targets"]:
            named = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            grouped = re.search(r"\bby \(([^)]*)\)", target["expr"])
            kept = set(re.split(", ", grouped[1])) if grouped else exported()[next(iter(metrics_in(target["expr"])))]
            assert named <= kept, panel["title"]
