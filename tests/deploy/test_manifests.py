"""The manifests: what they grant is what the code asks for, they fit each other, and API servers take them."""

import copy
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import kubernetes.client
import pytest
import yaml

from arpguard.cli.main import build_parser
from arpguard.config.files import parse_config
from arpguard.config.model import KeepalivedConfig, VouchingConfig, VouchingProfile
from arpguard.dataplane.privileges import NEEDED
from arpguard.errors import ConfigError
from arpguard.kube.clustersecret import LEN, secret_in
from arpguard.kube.following import SOURCES
from arpguard.kube.resources import CONFIG_MAPS, ENDPOINT_SLICES, EVENTS, LEASES, NODES, SECRETS, SERVICES, Resource
from arpguard.model import OwnerKind
from arpguard.verdict import Mode
from arpguard_lab.apiserver.embedded import running
from arpguard_lab.apiserver.server import Options
from arpguard_lab.cluster import objects as lab
from fuzz.config_cases import WHOLE
from support.kube.manifests import CHART, DEPLOY, RELEASE, built, charted, composed, hooked, one, parsed, tool

UNINSTALL = "arpguard-uninstall"
PODS, DAEMONSETS = Resource("", "v1", "pods"), Resource("apps", "v1", "daemonsets")
CLUSTER_WIDE = {
    (SERVICES, None): {"list", "watch"},
    (NODES, None): {"list", "watch"},
    (ENDPOINT_SLICES, None): {"list", "watch"},
    (EVENTS, None): {"create", "patch"},
}
OWN_NAMESPACE = {
    (LEASES, None): {"get", "list", "watch", "create", "update", "patch", "delete"},
    (CONFIG_MAPS, "arpguard"): {"list", "watch"},
    (PODS, None): {"get"},
    (DAEMONSETS, "arpguard"): {"get"},
}
COMPONENTS = {"metallb": "metallb", "cilium": "cilium", "openelb": "openelb", "kube-vip": "kubeVip"}
# As docs/kubectl.md shows it, and an account.
_DOCUMENTED = re.search(
    r"^operator:\n.*?(?=```)", (DEPLOY.parent / "docs/kubectl.md").read_text("utf-8"), re.MULTILINE | re.DOTALL
)
OPERATORS = [
    *yaml.safe_load(_DOCUMENTED[0])["operator"]["subjects"],
    {"kind": "ServiceAccount", "name": "anna", "namespace": "people"},
]
PRESETS = {"base": [], "overlays/ipvs": ["values-ipvs.yaml"], "overlays/lvs-dr": ["values-lvs-dr.yaml"]}
_SCALARS = {"bool": bool, "bytes": str, "datetime": str, "int": int, "object": object, "str": str}
everywhere = pytest.mark.parametrize("folder", PRESETS)


@pytest.fixture
def base() -> list[dict]:
    return parsed(built("base"))


@pytest.fixture
def pod(base) -> dict:
    return one(base, "DaemonSet")["spec"]["template"]["spec"]


@pytest.fixture
def container(pod) -> dict:
    (only,) = pod["containers"]
    return only


def granted(role: dict) -> dict[tuple[str, str, str | None], set[str]]:
    """Verbs by group, resource and name."""
    found: dict[tuple[str, str, str | None], set[str]] = {}
    for rule in role["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for name in rule.get("resourceNames", [None]):
                    found.setdefault((group, resource, name), set()).update(rule["verbs"])
    return found


def needed(verbs: dict[tuple[Resource, str | None], set[str]]) -> dict[tuple[str, str, str | None], set[str]]:
    return {(resource.group, resource.plural, name): which for (resource, name), which in verbs.items()}


def config_of(objects: list[dict]) -> str:
    return one(objects, "ConfigMap")["data"]["config.yaml"]


def settled(objects: list[dict]) -> dict[tuple, dict]:
    """Objects by what they are; the configuration as what it means, without the namespace (helm makes that itself)."""
    found = {}
    for each in objects:
        key = (each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"])
        meant = {name: parse_config(text) for name, text in each["data"].items()} if key[0] == "ConfigMap" else None
        found[key] = {**each, "data": meant}
    return {key: each for key, each in found.items() if key[0] != "Namespace"}


# ---- RBAC --------------------------------------------------------------------------------------------------------


def test_cluster_wide_only_what_is_needed_is_granted(base):
    assert granted(one(base, "ClusterRole")) == needed(CLUSTER_WIDE)


def test_in_its_namespace_only_what_is_needed_is_granted(base):
    assert granted(one(base, "Role")) == needed(OWN_NAMESPACE)
    assert one(base, "Role")["metadata"]["namespace"] == "arpguard"


def test_nothing_else_is_granted(base):
    roles = [(each["kind"], each["metadata"]["name"]) for each in base if each["kind"].endswith(("Role", "Binding"))]
    expected = [("ClusterRole", "arpguard"), ("Role", "arpguard"), ("Role", "arpguard-vouching")]
    assert sorted(roles) == sorted([*expected, *((f"{kind}Binding", name) for kind, name in expected)])
    for kind, name in expected:
        binding = one(base, f"{kind}Binding", name)
        assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) == (kind, name)
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "arpguard", "namespace": "arpguard"}]


def test_components_let_the_agent_follow_every_source_and_no_more(tmp_path):
    lines = [f"  - {os.path.relpath(DEPLOY / f'components/follow-{name}', tmp_path)}" for name in COMPONENTS]
    resources = os.path.relpath(DEPLOY / "base", tmp_path)
    objects = composed(tmp_path, f"resources: [{resources}]\ncomponents:\n" + "\n".join(lines))
    roles = [each for each in objects if each["kind"].endswith("Role") and "follow" in each["metadata"]["name"]]
    given = {
        (role["metadata"].get("namespace"), resource, name)
        for role in roles
        for (_, resource, name), verbs in granted(role).items()
        if verbs == {"list", "watch"}
    }
    asked = {(source.scope.namespace, source.resource.plural, named(source.scope.fields)) for source in SOURCES}
    everywhere_leases = (None, "leases", None)
    assert {ask for ask in asked if everywhere_leases not in given or ask[1] != "leases"} <= given
    assert given <= asked
    assert len(roles) == len(COMPONENTS) + 1  # MetalLB's Events are in all namespaces, its objects in one


def test_component_for_seccomp_changes_that_only(tmp_path, base):
    paths = [os.path.relpath(DEPLOY / name, tmp_path) for name in ("base", "components/seccomp-unconfined")]
    theirs = composed(tmp_path, f"resources: [{paths[0]}]\ncomponents: [{paths[1]}]\n")
    assert settled(parsed(charted("--set", "seccompProfile.type=Unconfined"))) == settled(theirs)
    context = one(theirs, "DaemonSet")["spec"]["template"]["spec"]["securityContext"]
    assert context["seccompProfile"] == {"type": "Unconfined"}
    context["seccompProfile"] = {"type": "RuntimeDefault"}
    assert settled(theirs) == settled(base)


def test_component_for_boots_keeps_the_file_that_the_unit_reads(tmp_path, base):
    paths = [os.path.relpath(DEPLOY / name, tmp_path) for name in ("base", "components/early")]
    theirs = composed(tmp_path, f"resources: [{paths[0]}]\ncomponents: [{paths[1]}]\n")
    pod = one(theirs, "DaemonSet")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert settled(parsed(charted("--set", "earlyFile=true"))) == settled(theirs)
    option = container["args"].pop()
    mount, volume = container["volumeMounts"].pop(), pod["volumes"].pop()
    assert settled(theirs) == settled(base), "nothing else"

    unit = (DEPLOY / "standalone/arpguard-early.service").read_text(encoding="utf-8")
    read = re.search(r"^ExecStart=\S+ early (\S+)$", unit, re.MULTILINE)[1]
    assert option == f"--early-file={read}"
    assert f"ConditionPathExists={read}\n" in unit
    assert mount == {"name": volume["name"], "mountPath": os.path.dirname(read)}
    assert volume["hostPath"] == {"path": os.path.dirname(read), "type": "DirectoryOrCreate"}


def test_component_for_keepalived_mounts_the_folder_of_the_fifo(tmp_path, base):
    paths = [os.path.relpath(DEPLOY / name, tmp_path) for name in ("base", "components/keepalived")]
    theirs = composed(tmp_path, f"resources: [{paths[0]}]\ncomponents: [{paths[1]}]\n")
    pod = one(theirs, "DaemonSet")["spec"]["template"]["spec"]
    mount, volume = pod["containers"][0]["volumeMounts"].pop(), pod["volumes"].pop()
    assert settled(theirs) == settled(base), "nothing else"

    fifo = KeepalivedConfig().fifo
    assert mount == {"name": volume["name"], "mountPath": str(fifo.parent)}
    assert volume["hostPath"] == {"path": str(fifo.parent), "type": "DirectoryOrCreate"}
    tmpfiles = (DEPLOY / "standalone/arpguard.tmpfiles").read_text(encoding="utf-8")
    assert f"\np {fifo} 0600 root root -\n" in tmpfiles
    assert f"\nd {fifo.parent} 0755 root root -\n" in tmpfiles


def test_namespace_of_an_own_kustomization_reaches_the_rights(tmp_path):
    below, above = tmp_path / "below", tmp_path / "above"
    for folder in (below, above):
        folder.mkdir()
    composed(below, f"resources: [{os.path.relpath(DEPLOY / 'base', below)}]\nnamespace: other\n")
    components = [os.path.relpath(DEPLOY / f"components/follow-{name}", above) for name in COMPONENTS]
    objects = composed(above, f"resources: [../below]\ncomponents: [{', '.join(components)}]\n")

    subjects = [subject for each in objects for subject in each.get("subjects", [])]
    assert subjects == [{"kind": "ServiceAccount", "name": "arpguard", "namespace": "other"}] * (4 + len(COMPONENTS))
    own = [each for each in objects if each["metadata"]["name"] == "arpguard"]
    assert {each["metadata"]["namespace"] for each in own if not each["kind"].startswith("Cluster")} == {"other"}
    theirs = {source.scope.namespace for source in SOURCES} - {None}
    roles = {each["metadata"]["namespace"] for each in objects if each["kind"] == "Role"}
    assert roles - {"other"} <= theirs, "a component's Role stays where the announcer writes"
    one(objects, "Namespace", "other")


def without_nice(objects: list[dict]) -> list[dict]:
    """The same, but that the agent's container may not raise priorities."""
    objects = copy.deepcopy(objects)
    (container,) = one(objects, "DaemonSet")["spec"]["template"]["spec"]["containers"]
    container["securityContext"]["capabilities"]["add"].remove("SYS_NICE")
    return objects


def composed_with(folder: Path, component: str) -> dict:
    """The base with a component."""
    paths = [os.path.relpath(DEPLOY / name, folder) for name in ("base", f"components/{component}")]
    return settled(composed(folder, f"resources: [{paths[0]}]\ncomponents: [{paths[1]}]\n"))


def test_base_lets_the_agent_read_one_secret_and_create_secrets(tmp_path, base):
    assert granted(one(base, "Role", "arpguard-vouching")) == needed(
        {(SECRETS, VouchingConfig().secret): {"get"}, (SECRETS, None): {"create"}}
    )
    assert composed_with(tmp_path, "vouching") == settled(base), "of the version before"


def test_component_takes_the_rights_to_secrets_and_to_priorities_away(tmp_path, base):
    theirs = composed_with(tmp_path, "without-vouching")
    gone = {(kind, "arpguard", "arpguard-vouching") for kind in ("Role", "RoleBinding")}
    assert theirs == {key: each for key, each in settled(without_nice(base)).items() if key not in gone}


def test_namespace_of_an_own_kustomization_reaches_the_rights_to_the_secret(tmp_path):
    below, above = tmp_path / "below", tmp_path / "above"
    for folder in (below, above):
        folder.mkdir()
    composed(below, f"resources: [{os.path.relpath(DEPLOY / 'base', below)}]\nnamespace: other\n")
    objects = composed(above, "resources: [../below]\n")
    role, binding = (one(objects, kind, "arpguard-vouching") for kind in ("Role", "RoleBinding"))
    assert role["metadata"]["namespace"] == binding["metadata"]["namespace"] == "other"
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "arpguard", "namespace": "other"}]


def test_component_and_chart_let_agents_read_and_patch_services_and_limit_that(tmp_path, base):
    paths = [os.path.relpath(DEPLOY / name, tmp_path) for name in ("base", "components/owned-by")]
    theirs = settled(composed(tmp_path, f"resources: [{paths[0]}]\ncomponents: [{paths[1]}]\n"))
    more = {key: each for key, each in theirs.items() if key not in settled(base)}
    assert {key: each for key, each in theirs.items() if key not in more} == settled(base)
    kinds = ("ClusterRole", "ClusterRoleBinding", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
    assert set(more) == {(kind, None, "arpguard-owned-by") for kind in kinds}
    assert granted(more["ClusterRole", None, "arpguard-owned-by"]) == needed({(SERVICES, None): {"get", "patch"}})

    chart = settled(parsed(charted("--set", "config.services.owned_by=true")))
    assert {key: each for key, each in chart.items() if key not in settled(base)} == more
    assert not more.keys() & settled(parsed(charted())).keys()


def in_another_namespace(tmp_path, component):
    """A component above an own kustomization of the base that says `namespace: other`."""
    below, above = tmp_path / "below", tmp_path / "above"
    for folder in (below, above):
        folder.mkdir()
    composed(below, f"resources: [{os.path.relpath(DEPLOY / 'base', below)}]\nnamespace: other\n")
    path = os.path.relpath(DEPLOY / "components" / component, above)
    return composed(above, f"resources: [../below]\ncomponents: [{path}]\n")


def test_namespace_of_an_own_kustomization_reaches_the_rights_to_services_and_their_limit(tmp_path):
    objects = in_another_namespace(tmp_path, "owned-by")
    binding = one(objects, "ClusterRoleBinding", "arpguard-owned-by")
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "arpguard", "namespace": "other"}]
    (condition,) = one(objects, "ValidatingAdmissionPolicy", "arpguard-owned-by")["spec"]["matchConditions"]
    assert condition["expression"] == "request.userInfo.username == 'system:serviceaccount:other:arpguard'"


def test_namespace_of_an_own_kustomization_reaches_the_flow_schemas(tmp_path):
    objects = in_another_namespace(tmp_path, "flow-schema")
    rules = [rule for each in objects if each["kind"] == "FlowSchema" for rule in each["spec"]["rules"]]
    account = {"kind": "ServiceAccount", "serviceAccount": {"name": "arpguard", "namespace": "other"}}
    assert [rule["subjects"] for rule in rules] == [[account]] * 2
    assert [rule["resourceRules"][0]["namespaces"] for rule in rules] == [["other"]] * 2


def named(fields: str) -> str | None:
    found = re.fullmatch(r"metadata\.name=(.+)", fields or "")
    return found[1] if found else None


# ---- the Pod -----------------------------------------------------------------------------------------------------


def test_container_has_exactly_these_privileges(pod, container):
    assert container["securityContext"] == {
        "runAsUser": 0,
        "runAsGroup": 0,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"], "add": sorted([*(each.name for each in NEEDED), "SYS_NICE"])},
    }
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["hostNetwork"] is True
    assert not pod.keys() & {"hostPID", "hostIPC", "initContainers"}


def test_nothing_of_the_node_is_mounted_but_the_bpf_file_system(pod, container):
    of_the_node = [volume["hostPath"] for volume in pod["volumes"] if "hostPath" in volume]
    assert of_the_node == [{"path": "/sys/fs/bpf", "type": "Directory"}]
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}


def test_names_that_the_agent_is_told_are_those_of_the_objects(base, container):
    env = {item["name"]: item.get("value") or item["valueFrom"]["fieldRef"]["fieldPath"] for item in container["env"]}
    assert {name: value for name, value in env.items() if "LOG" not in name} == {
        "NODE_NAME": "spec.nodeName",
        "POD_NAME": "metadata.name",
        "POD_NAMESPACE": "metadata.namespace",
        "DAEMONSET_NAME": one(base, "DaemonSet")["metadata"]["name"],
    }
    flag = container["args"].index("--configmap")
    assert container["args"][flag + 1] == f"$(POD_NAMESPACE)/{one(base, 'ConfigMap')['metadata']['name']}"


def test_mounts_are_where_the_configuration_has_its_files(base, container):
    config = parse_config(config_of(base))
    mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
    assert str(config.bpf.pin_dir.parent) in mounts
    assert any(listen.startswith("unix:///run/arpguard/") for listen in config.grpc.listen)
    assert "/run/arpguard" in mounts
    assert container["args"][container["args"].index("--config") + 1] == "/etc/arpguard/config.yaml"
    assert "/etc/arpguard" in mounts


def test_the_next_agent_waits_beside_the_one_that_runs_and_fits_on_the_node(base, pod, container):
    """With hostNetwork every port of a container is the node's (kubernetes, SetDefaults_PodSpec)."""
    update = one(base, "DaemonSet")["spec"]["updateStrategy"]
    assert update == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}
    assert "--standby" in container["args"]
    assert "ports" not in container


def test_every_node_has_an_agent(pod):
    assert pod["tolerations"] == [{"operator": "Exists"}]
    assert pod["priorityClassName"] == "system-node-critical"


def test_agent_is_never_throttled_nor_without_memory(container):
    assert container["resources"] == {
        "requests": {"cpu": "50m", "memory": "128Mi"},
        "limits": {"memory": "160Mi"},
    }


def test_restart_is_for_an_agent_that_does_not_answer(container):
    """Not for one whose links or API server are away: a restart mends neither."""
    assert container["livenessProbe"]["exec"]["command"][-1] == "--any"
    assert container["readinessProbe"]["exec"]["command"][-1] == "arpguard.probe"
    patience = container["livenessProbe"]["periodSeconds"] * container["livenessProbe"]["failureThreshold"]
    assert patience >= 60


# ---- types -------------------------------------------------------------------------------------------------------


def faults(value: object, kind: str, path: str) -> Iterator[str]:
    """Where a value is not what Kubernetes' definition of its type says: a field unknown or missing, a wrong type."""
    inner = re.fullmatch(r"(List|Dict)\[(?:str, )?(.+)\]", kind)
    if inner:
        if not isinstance(value, list if inner[1] == "List" else dict):
            yield f"{path}: {inner[1]}"
            return
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield from faults(each, inner[2], f"{path}.{key}")
    elif kind in _SCALARS:
        if not isinstance(value, _SCALARS[kind]):
            yield f"{path}: {kind}"
    else:
        yield from _faults_of_object(value, getattr(kubernetes.client, kind), path)


def _faults_of_object(value: object, model: type, path: str) -> Iterator[str]:
    fields = {name: model.openapi_types[field] for field, name in model.attribute_map.items()}
    if not isinstance(value, dict):
        yield f"{path}: {model.__name__}"
        return
    required = {model.attribute_map[name] for name, field in model.model_fields.items() if field.is_required()}
    yield from (f"{path}.{name}: missing" for name in required - value.keys())
    yield from (f"{path}.{name}: unknown" for name in value.keys() - fields.keys())
    for name in value.keys() & fields.keys():
        yield from faults(value[name], fields[name], f"{path}.{name}")


@pytest.mark.parametrize("folder", [*PRESETS, "cleanup"])
def test_objects_are_of_their_types(folder):
    for each in parsed(built(folder)):
        assert list(faults(each, f"V1{each['kind']}", each["kind"])) == []


@pytest.mark.parametrize("name", [*(f"follow-{name}" for name in COMPONENTS), "operator"])
def test_objects_of_components_are_of_their_types(name):
    for each in parsed((DEPLOY / f"components/{name}/rbac.yaml").read_text(encoding="utf-8")):
        for subject in each.get("subjects", []):
            subject.setdefault("namespace", "arpguard")  # kustomize does
        assert list(faults(each, f"V1{each['kind']}", each["kind"])) == []


# ---- configuration -----------------------------------------------------------------------------------------------


@everywhere
def test_configuration_is_valid_and_only_observes(folder, tmp_path):
    text = config_of(parsed(built(folder)))
    assert parse_config(text).mode is Mode.OBSERVE
    (tmp_path / "config.yaml").write_text(text, encoding="utf-8")
    check = ["arpguard", "config", "check", str(tmp_path / "config.yaml")]
    done = subprocess.run([tool("python3"), "-m", *check], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_examples_in_the_configuration_are_valid(base):
    text = config_of(base)
    examples = re.sub(r"^#  ", "  ", text.replace("vips: []", "vips:"), flags=re.MULTILINE)
    assert [vip.owner.kind for vip in parse_config(examples).vips] == [
        OwnerKind.NODE,
        OwnerKind.NODE,
        OwnerKind.EXTERNAL,
    ]


@everywhere
def test_overlay_differs_from_the_base_in_its_configuration_only(folder, base):
    theirs, ours = settled(parsed(built(folder))), settled(base)
    assert {key for key in ours | theirs if ours.get(key) != theirs.get(key)} <= {("ConfigMap", "arpguard", "arpguard")}


# ---- the chart ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("folder", "presets"), PRESETS.items(), ids=PRESETS)
def test_chart_is_the_same_as_kustomize(folder, presets):
    words = [word for name in presets for word in ("-f", str(CHART / name))]
    assert settled(parsed(charted(*words))) == settled(parsed(built(folder)))


@pytest.mark.parametrize(("name", "value"), COMPONENTS.items())
def test_chart_has_the_components(name, value):
    more = parsed((DEPLOY / f"components/follow-{name}/rbac.yaml").read_text(encoding="utf-8"))
    for subject in (subject for each in more for subject in each.get("subjects", [])):
        subject.setdefault("namespace", "arpguard")  # kustomize does
    ours = settled(parsed(charted("--set", f"follow.{value}=true")))
    assert ours == settled(parsed(charted())) | settled(more)


def test_chart_gives_the_rights_where_the_configuration_has_the_announcer():
    objects = parsed(charted("--set", "follow.cilium=true,config.follow.cilium.namespace=network"))
    roles = [each for each in objects if each["metadata"]["name"] == "arpguard-follow-cilium"]
    assert [role["metadata"]["namespace"] for role in roles] == ["network"] * 2
    assert parse_config(config_of(objects)).follow.cilium == "network"


@pytest.mark.parametrize("subjects", [[], OPERATORS], ids=["bound by hand", "bound"])
def test_chart_has_the_role_of_people_and_binds_it_to_those_that_are_named(subjects):
    words = ("--set", "operator.enabled=true", "--set-json", f"operator.subjects={json.dumps(subjects)}")
    objects, role = parsed(charted(*words)), parsed((DEPLOY / "components/operator/rbac.yaml").read_text("utf-8"))
    binding = [each for each in objects if (each["kind"], each["metadata"]["name"]) == ("RoleBinding", role_name(role))]
    assert settled(objects) == settled(parsed(charted())) | settled(role) | settled(binding)
    assert [each["subjects"] for each in binding] == ([subjects] if subjects else [])
    assert all(each["roleRef"]["name"] == role_name(role) for each in binding)
    assert [list(faults(each, "V1RoleBinding", "")) for each in binding] == [[] for _ in binding]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ('operator.subjects=[{"kind":"Group","name":"operators"}]', "set operator.enabled=true"),
        ('operator={"enabled":true,"subjects":[{"kind":"Team","name":"operators"}]}', "schema"),
        ('operator={"enabled":true,"subjects":["operators"]}', "schema"),
    ],
)
def test_chart_refuses_to_bind_what_cannot_be_bound(value, why):
    with pytest.raises(AssertionError, match=why):
        charted("--set-json", value)


def test_component_with_the_role_of_people_adds_it_alone_and_goes_where_the_agents_are(tmp_path, base):
    below, above = tmp_path / "below", tmp_path / "above"
    for folder in (below, above):
        folder.mkdir()
    component = os.path.relpath(DEPLOY / "components/operator", above)
    resources = os.path.relpath(DEPLOY / "base", above)
    theirs = settled(composed(above, f"resources: [{resources}]\ncomponents: [{component}]\n"))
    role = parsed((DEPLOY / "components/operator/rbac.yaml").read_text("utf-8"))
    assert theirs == settled(base) | settled(role)

    composed(below, f"resources: [{os.path.relpath(DEPLOY / 'base', below)}]\nnamespace: other\n")
    moved = composed(above, f"resources: [../below]\ncomponents: [{component}]\n")
    assert one(moved, "Role", role_name(role))["metadata"]["namespace"] == "other"


def role_name(objects: list[dict]) -> str:
    (role,) = objects
    return role["metadata"]["name"]


def test_chart_gives_the_rights_to_the_secret_unless_the_configuration_says_off(base):
    more = [each for each in base if each["metadata"]["name"] == "arpguard-vouching"]
    objects = parsed(charted("--set", "config.lease.vouching=auto"))
    assert [each for each in settled(parsed(charted())) if "vouching" in each[2]] == [*settled(more)]
    config = parse_config(config_of(objects))
    assert config.lease.vouching == VouchingConfig()
    off = parsed(charted("--set", "config.lease.vouching=off"))
    of_agents = [each for each in objects if each["kind"] == "DaemonSet"]
    assert settled([one(without_nice(of_agents), "DaemonSet")]) == settled([one(off, "DaemonSet")])
    without = [each for each in objects if each["metadata"]["name"] != "arpguard-vouching"]
    assert settled(objects) == settled(without) | settled(more)


@pytest.mark.parametrize(
    ("vouching", "expected"),
    [
        ("off", None),
        ("auto", VouchingConfig()),
        ("{}", VouchingConfig()),
        ("{profile: fast}", VouchingConfig(profile=VouchingProfile.FAST)),
        ("{secret: mine, ethertype: 0x88B6}", VouchingConfig("mine", 0x88B6)),
        ("{secret: mine, ethertype: '0x88B6'}", VouchingConfig("mine", 0x88B6)),
    ],
)
def test_chart_passes_on_how_nodes_vouch_and_lets_them_read_that_secret(vouching, expected, tmp_path):
    """helm reads YAML 1.1, where `off` is false, and hexadecimal numbers are numbers."""
    values = tmp_path / "values.yaml"
    values.write_text(f"config: {{lease: {{vouching: {vouching}}}}}", encoding="utf-8")
    objects = parsed(charted("-f", str(values)))
    assert parse_config(config_of(objects)).lease.vouching == expected
    roles = [each for each in objects if (each["kind"], each["metadata"]["name"]) == ("Role", "arpguard-vouching")]
    assert [granted(role) for role in roles] == (
        [needed({(SECRETS, expected.secret): {"get"}, (SECRETS, None): {"create"}})] if expected else []
    )


@pytest.mark.parametrize(
    ("config", "place"),
    [
        ("{mode: Enforce}", "/config/mode"),
        ("{mod: enforce}", "/config"),
        ("{vips: [{address: foo, owner: external}]}", "/config/vips/0/address"),
        ("{vips: [{address: 192.0.2.1}]}", "/config/vips/0"),
        ("{vips: [{address: 192.0.2.1, owner: {node: UPPER}}]}", "/config/vips/0/owner"),
        ("{ranges: 192.0.2.0/24}", "/config/ranges"),
        ("{lease: {duration: 3}}", "/config/lease/duration"),
        ("{services: {enabled: maybe}}", "/config/services/enabled"),
        ("{bpf: {max_entries: 0}}", "/config/bpf/max_entries"),
        ("{grpc: {listen: [agent.sock]}}", "/config/grpc/listen/0"),
        ("{metrics: {listen: everywhere}}", "/config/metrics/listen"),
        ("{follow: {purelb: {}}}", "/config/follow"),
    ],
)
def test_chart_refuses_what_the_agent_would(config, place, tmp_path):
    values = tmp_path / "values.yaml"
    values.write_text(f"config: {config}", encoding="utf-8")
    with pytest.raises(AssertionError, match=f"at '{place}'"):
        charted("-f", str(values))
    with pytest.raises(ConfigError):
        parse_config(config)


def test_chart_takes_every_setting_that_the_agent_does(tmp_path):
    values = tmp_path / "values.yaml"
    text = re.sub(r'"(true|false|[0-9]+)"', r"\1", json.dumps({"config": WHOLE}))
    values.write_text(text, encoding="utf-8")
    assert parse_config(config_of(parsed(charted("-f", str(values))))) == parse_config(json.dumps(WHOLE))


def test_chart_ends_the_agents_before_it_takes_their_rights_away():
    objects = parsed(hooked())
    assert {each["metadata"]["annotations"]["helm.sh/hook"] for each in objects} == {"pre-delete"}
    assert granted(one(objects, "Role", UNINSTALL)) == needed(
        {(DAEMONSETS, "arpguard"): {"get", "delete"}, (LEASES, None): {"list", "patch", "delete"}}
    )
    account = one(objects, "ServiceAccount", UNINSTALL)["metadata"]["name"]
    pod = one(objects, "Job", UNINSTALL)["spec"]["template"]["spec"]
    assert (pod["serviceAccountName"], one(objects, "RoleBinding", UNINSTALL)["subjects"][0]["name"]) == (account,) * 2
    options = build_parser().parse_args(pod["containers"][0]["args"])
    assert (options.command, options.daemonset, options.kubeconfig) == ("uninstall", "arpguard/arpguard", None)


def test_chart_leaves_the_hook_out_where_it_is_not_wanted():
    assert UNINSTALL not in charted() + built("base")
    with pytest.raises(AssertionError, match="could not find template"):
        hooked("--set", "uninstallHook=false")


def test_chart_goes_into_any_namespace():
    metrics = (f"metrics.{name}.enabled=true" for name in ("podMonitor", "prometheusRule", "dashboard"))
    everything = charted("--set", ",".join(["config.lease.vouching=auto", *metrics]), namespace="elsewhere")
    assert "namespace: arpguard" not in everything + charted(namespace="elsewhere")


def test_chart_takes_the_settings_of_a_pod():
    words = ["resources.limits.memory=1Gi", "image.repository=example.org/arpguard", "config.mode=enforce"]
    objects = parsed(charted("--set", ",".join(words), "--set-json", 'tolerations=[{"key":"x"}]'))
    pod = one(objects, "DaemonSet")["spec"]["template"]["spec"]
    assert pod["containers"][0]["resources"]["limits"] == {"memory": "1Gi"}
    assert pod["containers"][0]["image"] == f"example.org/arpguard:{RELEASE['VERSION']}"
    assert pod["tolerations"] == [{"key": "x"}]
    assert parse_config(config_of(objects)).mode is Mode.ENFORCE


def test_chart_and_base_choose_the_log_by_the_variables_that_the_agent_reads(base, monkeypatch):
    charts = parsed(charted("--set", "log.level=warning,log.format=json"))
    for objects, expected in ((base, ("info", "text")), (charts, ("warning", "json"))):
        for variable in one(objects, "DaemonSet")["spec"]["template"]["spec"]["containers"][0]["env"]:
            if "value" in variable:
                monkeypatch.setenv(variable["name"], variable["value"])
        options = build_parser().parse_args(["agent"])
        assert (options.log_level, options.log_format) == expected


@pytest.mark.parametrize(
    "setting",
    [
        "config.mode=loud",
        "config.colour=red",
        "replicas=3",
        "follow.cilium=maybe",
        "log.format=xml",
        "config.lease.vouching=on",
    ],
)
def test_chart_refuses_settings_that_mean_nothing(setting):
    with pytest.raises(AssertionError, match="schema"):
        charted("--set", setting)


def test_every_manifest_runs_the_image_that_the_release_names(container):
    image = f"{RELEASE['IMAGE']}:{RELEASE['VERSION']}"
    assert container["image"] == image
    for objects, name in ((parsed(built("cleanup")), "arpguard-cleanup"), (parsed(charted()), "arpguard")):
        (only,) = one(objects, "DaemonSet", name)["spec"]["template"]["spec"]["containers"]
        assert only["image"] == image


# ---- an API server -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def kubectl(tmp_path_factory):
    """kubectl against the lab's API server, or the one that ARPGUARD_TEST_KUBECONFIG names."""
    folder = tmp_path_factory.mktemp("kubectl")
    program = tool("kubectl")
    with running() as server:
        server.do(lambda it: it.add_client("admin"))
        mine = folder / "kubeconfig"
        server.do(lambda it: it.write_kubeconfig(mine, "admin", ""))
        kubeconfig = os.environ.get("ARPGUARD_TEST_KUBECONFIG", str(mine))

        def run(*words: str, stdin: str = "") -> str:
            flags = ["--kubeconfig", kubeconfig, "--cache-dir", str(folder / "cache")]
            done = subprocess.run([program, *flags, *words], input=stdin, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            assert "unknown field" not in done.stderr
            return done.stdout

        yield run


@pytest.mark.parametrize("folder", [*PRESETS, "cleanup"])
def test_kubectl_takes_the_manifests(folder, kubectl):
    said = kubectl("apply", "--dry-run=client", "-f", "-", stdin=built(folder)).splitlines()
    assert len(said) == len(parsed(built(folder)))
    assert all(line.endswith("(dry run)") for line in said)


@pytest.mark.skipif("ARPGUARD_TEST_KUBECONFIG" in os.environ, reason="lists and changes all Services")
def test_documented_commands_show_owners_on_services_and_remove_them(kubectl):
    page = (DEPLOY.parent / "docs/services.md").read_text("utf-8")
    blocks = re.findall(r"```console\n# kubectl (.*?)\n(.*?)```", page.partition("## Owners on Services")[2], re.DOTALL)
    (show, shown), (remove, _) = blocks[:2]
    service = lab.service("shop", "web", [], {"owned-by": "192.0.2.40=node-1, 192.0.2.41=node-2"})
    for body in (lab.namespace("shop"), service):
        kubectl("apply", "-f", "-", stdin=json.dumps(body))

    assert kubectl(*shlex.split(show)) == shown
    kubectl(*shlex.split(remove))
    assert kubectl(*shlex.split(show)).split()[-3:] == ["shop", "web", "<none>"]


@pytest.mark.skipif("ARPGUARD_TEST_KUBECONFIG" in os.environ, reason="leaves that cluster as it is")
def test_agent_may_do_what_it_needs_in_its_namespace_and_nothing_outside(tmp_path):
    """The lab's API server with these roles in force."""
    objects = parsed(built("base"))
    roles = [each for each in objects if each["apiVersion"].startswith("rbac.")]
    with running(Options(rbac=roles, objects=objects)) as server:
        server.do(lambda it: it.add_client("agent", "arpguard/arpguard"))
        path = tmp_path / "kubeconfig"
        server.do(lambda it: it.write_kubeconfig(path, "agent", "arpguard/arpguard"))

        def may(*words: str) -> bool:
            flags = ["--kubeconfig", str(path), "--cache-dir", str(tmp_path / "cache")]
            return subprocess.run([tool("kubectl"), *flags, *words], capture_output=True, check=False).returncode == 0

        assert may("get", "services,nodes,endpointslices", "-A")
        assert may("get", "configmaps", "-n", "arpguard", "--field-selector", "metadata.name=arpguard")
        assert may("get", "leases", "-n", "arpguard")
        assert may("get", "daemonset", "arpguard", "-n", "arpguard")
        assert not may("get", "configmaps", "-n", "arpguard")
        assert not may("get", "leases", "-n", "kube-system")
        assert not may("get", "secrets", "-n", "arpguard")
        assert not may("delete", "daemonset", "arpguard", "-n", "arpguard")


@pytest.fixture
def cluster(tmp_path):
    """The environment of a shell in which kubectl reaches a server of the lab's own."""
    with running() as server:
        server.do(lambda it: it.add_client("admin"))
        server.do(lambda it: it.write_kubeconfig(tmp_path / "kubeconfig", "admin", ""))
        folders = [str(Path(program).parent) for program in (tool("kubectl"), sys.executable)]
        yield {
            **os.environ,
            "PATH": os.pathsep.join([*folders, os.environ["PATH"]]),
            "KUBECONFIG": str(tmp_path / "kubeconfig"),
            "HOME": str(tmp_path),
        }


def commands(page: str, section: str) -> list[str]:
    """The shell commands that a section of a page shows."""
    text = (DEPLOY.parent / "docs" / page).read_text(encoding="utf-8")
    text = text.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    return re.findall("^# (.+)$", "".join(re.findall("```console\n(.+?)```", text, re.DOTALL)), re.MULTILINE)


def test_secret_that_is_made_as_documented_serves_agents(cluster):
    """Of kubectl here only what it would send: for this it speaks protobuf, which the lab's API server does not."""
    (line,) = commands("rights.md", "Rights in the cluster")
    words = ["bash", "-c", f"{line} --dry-run=client -o json"]
    made = json.loads(subprocess.run(words, env=cluster, capture_output=True, text=True, check=True).stdout)
    assert (made["metadata"]["namespace"], made["metadata"]["name"]) == ("arpguard", VouchingConfig().secret)
    assert len(secret_in(made, "the Secret")) == LEN


@pytest.mark.skipif("ARPGUARD_TEST_KUBECONFIG" in os.environ, reason="removes objects")
def test_uninstall_says_of_nothing_that_it_is_an_error(cluster):
    """As documented, where nothing runs the Pods: a rollout that is waited for is no part of it."""
    first, rest, *others = (line for line in commands("kubernetes.md", "Uninstall") if "rollout status" not in line)
    assert len(others) == 4
    first = first.replace("~/.kube/config", cluster["KUBECONFIG"])
    install = "kubectl apply -k deploy/base"
    for line in [install, first, rest, install, *others[:2], rest, *others[2:]]:
        done = subprocess.run(
            ["bash", "-c", line], cwd=DEPLOY.parent, env=cluster, capture_output=True, text=True, check=False
        )
        said = done.stderr if line != first else ""
        assert (done.returncode, said) == (0, ""), line
