"""Owners write their names into the annotation arpguard.io/owned-by: once for each change, and nothing waits for it."""

from itertools import pairwise

import pytest

from arpguard.clock import boot_ns
from arpguard.core.cluster import OWNED_BY
from arpguard.core.ownedby import correction
from arpguard.kube.annotating import correct_owned_by
from arpguard.kube.errors import ConflictError, Failure, RejectedError, UnavailableError
from arpguard.runtime.cluster import ownedby
from arpguard.runtime.controlplane import End
from arpguard.units import NS_PER_S
from arpguard_lab.cluster import objects
from support.kube.agent_side import CONFIG, CONFIGMAP, HOME, Cable, a_side, vip, waited
from support.kube.plain_http import MERGE
from support.kube.scripted_server import in_loop, until

pytestmark = pytest.mark.usefixtures("segment")

ON = CONFIG.replace("owner: elect", "owner: elect, owned_by: true")
NODE, OTHER = "node-1", "node-2"
A, B, C = vip(50), vip(51), vip(52)
ACCOUNT = f"{HOME}/{objects.ACCOUNT}"
PATIENCE_S = 20.0


@pytest.fixture(autouse=True)
def rounds(monkeypatch):
    """How often each agent has looked whether there is anything to write; they do so more often than usual."""
    counts = {}
    keep = ownedby.OwnedBy._keep

    async def counted(self):
        await keep(self)
        counts[self._node] = counts.get(self._node, 0) + 1

    monkeypatch.setattr(ownedby, "LOOK_S", 0.05)
    monkeypatch.setattr(ownedby, "GONE_NS", NS_PER_S // 2)
    monkeypatch.setattr(ownedby, "AGAIN_NS", NS_PER_S // 4)
    monkeypatch.setattr(ownedby.OwnedBy, "_keep", counted)
    return counts


@pytest.fixture
def pair(scene):
    scene.nodes(NODE, OTHER)
    return scene


def said(scene, name: str = "web") -> str:
    found = scene.get(f"/api/v1/namespaces/shop/services/{name}")["metadata"]
    text = found.get("annotations", {}).get(OWNED_BY)
    assert text != "", "an annotation that says nothing is removed"
    return text or ""


def owners(scene, *vips) -> str:
    """What the annotation should be, by the claims."""
    return ", ".join(f"{each}={scene.holder(each)}" for each in vips)


def writes(scene, *nodes: str) -> int:
    return sum(scene.count(node, "patch", "services") for node in nodes)


def write(scene, text: str | None, name: str = "web") -> None:
    body = {"metadata": {"annotations": {OWNED_BY: text}}}
    assert scene.api.ask("PATCH", f"/api/v1/namespaces/shop/services/{name}", body, MERGE).code == 200


def allow(scene, *verbs: str) -> None:
    """The agents' usual rights, and these to Services."""
    given = objects.access(HOME)
    (role,) = (each for each in given if each["kind"] == "ClusterRole")
    if verbs:
        role["rules"].append({"apiGroups": [""], "resources": ["services"], "verbs": [*verbs]})
    scene.put(*given)


async def some_rounds(rounds, node: str) -> None:
    """Everything that was to be written before is written after it."""
    until_round = rounds.get(node, 0) + 5
    await until(lambda: rounds[node] >= until_round, PATIENCE_S)


@in_loop
async def test_each_owner_names_itself_once_and_nothing_is_written_at_rest_or_after_a_restart(pair, rounds):
    vips = [vip(number) for number in range(50, 58)]
    pair.publish("web", vips)
    kernel = Cable()
    async with a_side(pair, OTHER, config=ON) as there:
        async with a_side(pair, NODE, kernel, config=ON) as here:
            await waited(
                lambda: said(pair) == owners(pair, *vips) and kernel.owned() and there.kernel.owned(),
                "both names",
                PATIENCE_S,
            )
            at_rest = writes(pair, NODE, OTHER)
            pair.publish("another", [C])  # shared with the first, so its owner names itself there, too
            await waited(lambda: said(pair, "another") == owners(pair, C), "the other Service", PATIENCE_S)
            await some_rounds(rounds, NODE)
            await some_rounds(rounds, OTHER)

            assert writes(pair, NODE, OTHER) == at_rest + 1
            assert not here.problems
        async with a_side(pair, NODE, kernel, config=ON):
            await until(kernel.owned, PATIENCE_S)
            pair.publish("last", [B])
            await waited(lambda: said(pair, "last") == owners(pair, B), "after the restart", PATIENCE_S)
            await some_rounds(rounds, NODE)
            await some_rounds(rounds, OTHER)

            assert said(pair) == owners(pair, *vips)
            assert writes(pair, NODE, OTHER) == at_rest + 2
    assert not pair.events("BadAnnotation")


@pytest.fixture
def in_time(monkeypatch):
    """The next owner comes before a name that has to go is removed, however busy the machine."""
    monkeypatch.setattr(ownedby, "GONE_NS", 60 * NS_PER_S)


@in_loop
@pytest.mark.usefixtures("in_time")
async def test_takeover_is_one_write_for_each_service_and_not_all_at_once(pair, monkeypatch, rounds):
    moments = []

    async def noted(client, key, wanted):
        moments.append((client, boot_ns()))
        return await correct_owned_by(client, key, wanted)

    monkeypatch.setattr(ownedby, "correct_owned_by", noted)
    names = [f"web-{number}" for number in range(10)]
    for number, name in enumerate(names):
        pair.publish(name, [vip(60 + 2 * number), vip(61 + 2 * number)])
    async with a_side(pair, OTHER, config=ON) as there:
        async with a_side(pair, NODE, config=ON) as here:
            await until(lambda: len(here.kernel.owned() | there.kernel.owned()) == 20, PATIENCE_S)
            await waited(
                lambda: all(said(pair, name).count("=") == 2 for name in names) and here.kernel.owned(),
                "all names",
                PATIENCE_S,
            )
            await waited(
                lambda: all(
                    said(pair, name) == owners(pair, vip(60 + 2 * number), vip(61 + 2 * number))
                    for number, name in enumerate(names)
                ),
                "they are right",
                PATIENCE_S,
            )
            concerned = [name for name in names if NODE in said(pair, name)]
            before = writes(pair, NODE), writes(pair, OTHER)
        await waited(lambda: not any(NODE in said(pair, name) for name in names), "they are taken over", PATIENCE_S)
        await some_rounds(rounds, OTHER)

        assert (writes(pair, NODE), writes(pair, OTHER)) == (before[0], before[1] + len(concerned))
        own = [moment for client, moment in moments if client is there.kube._owned_by._client]
        assert all(later - sooner >= ownedby.EACH_S * NS_PER_S for sooner, later in pairwise(own))


@in_loop
@pytest.mark.usefixtures("in_time")
async def test_planned_move_is_one_write(pair, rounds):
    pair.publish("web", [A])
    async with a_side(pair, NODE, config=ON), a_side(pair, OTHER, config=ON):
        await waited(lambda: said(pair) and said(pair) == owners(pair, A), "a name", PATIENCE_S)
        owner = pair.holder(A)
        new = ({NODE, OTHER} - {owner}).pop()
        before = writes(pair, NODE, OTHER)
        cordon = {"spec": {"unschedulable": True}}
        assert pair.api.ask("PATCH", f"/api/v1/nodes/{owner}", cordon, MERGE).code == 200
        await waited(lambda: said(pair) == f"{A}={new}", "the next name", PATIENCE_S)
        await some_rounds(rounds, NODE)
        await some_rounds(rounds, OTHER)

        assert writes(pair, NODE, OTHER) == before + 1


@in_loop
@pytest.mark.usefixtures("in_time")
async def test_name_that_has_to_go_waits_for_the_next_owner(pair, rounds):
    pair.publish("web", [A])
    async with a_side(pair, NODE, config=ON) as side:
        await waited(lambda: said(pair) == f"{A}={NODE}", "a name", PATIENCE_S)
        pair.publish("web", [A], {"owner": f"node/{OTHER}", "owned-by": said(pair)})
        await until(lambda: not side.kernel.owned(), PATIENCE_S)
        await some_rounds(rounds, NODE)
        assert said(pair) == f"{A}={NODE}"
        async with a_side(pair, OTHER, config=ON):
            await waited(lambda: said(pair) == f"{A}={OTHER}", "the next name", PATIENCE_S)
        assert writes(pair, NODE, OTHER) == 2


@in_loop
async def test_nothing_is_compared_while_nothing_changes(pair, monkeypatch, rounds):
    compared = []
    monkeypatch.setattr(ownedby, "correction", lambda *words: compared.append(1) or correction(*words))
    pair.publish("web", [A])
    async with a_side(pair, NODE, config=ON):
        await waited(lambda: said(pair) == f"{A}={NODE}", "a name", PATIENCE_S)
        await some_rounds(rounds, NODE)
        before = len(compared)
        await some_rounds(rounds, NODE)
        assert len(compared) == before


@in_loop
async def test_name_goes_with_the_vip(pair):
    pair.publish("web", [A])
    pair.publish("left", [B])
    async with a_side(pair, NODE, config=ON):
        await waited(lambda: said(pair) and said(pair, "left"), "names", PATIENCE_S)
        pair.publish("web", [A], {"owner": "external", "owned-by": said(pair)})
        await waited(lambda: not said(pair), "its name is gone", PATIENCE_S)
        body = {"spec": {"externalIPs": [str(C)]}}
        assert pair.api.ask("PATCH", "/api/v1/namespaces/shop/services/left", body, MERGE).code == 200
        await waited(lambda: said(pair, "left") == f"{C}={NODE}", "the address that it has now", PATIENCE_S)


@in_loop
async def test_write_asks_for_no_pass_and_what_users_change_does(pair):
    pair.publish("web", [A])
    async with a_side(pair, NODE, config=ON) as side:
        await waited(lambda: said(pair) == f"{A}={NODE}", "a name", PATIENCE_S)
        looks = []
        side.kube.look = lambda: looks.append(1)
        before = side.kube._cluster.service_changes
        write(pair, f"{A}={NODE}, ")
        await until(lambda: side.kube._cluster.service_changes > before, PATIENCE_S)
        assert looks == []

        pair.publish("web", [A, B])
        await until(lambda: looks, PATIENCE_S)


@in_loop
async def test_two_who_disagree_do_not_make_a_storm(pair, monkeypatch, rounds):
    monkeypatch.setattr(ownedby, "AGAIN_NS", 60 * NS_PER_S)
    pair.publish("web", [A])
    async with a_side(pair, NODE, config=ON):
        await waited(lambda: said(pair) == f"{A}={NODE}", "a name", PATIENCE_S)
        before = writes(pair, NODE)
        for name in ("node-7", "node-8", "node-9"):
            write(pair, f"{A}={name}")
            await some_rounds(rounds, NODE)
        assert writes(pair, NODE) == before
        assert said(pair) == f"{A}=node-9"


@in_loop
async def test_disagreement_is_settled_by_the_owner_in_the_end(pair):
    pair.publish("web", [A])
    async with a_side(pair, NODE, config=ON):
        await waited(lambda: said(pair) == f"{A}={NODE}", "a name", PATIENCE_S)
        write(pair, f"{A}=node-7")
        await waited(lambda: said(pair) == f"{A}={NODE}", "the owner's name again", PATIENCE_S)


@in_loop
async def test_service_that_others_write_meanwhile_is_read_again(pair, monkeypatch):
    monkeypatch.setattr(ownedby, "AGAIN_NS", 60 * NS_PER_S)
    pair.publish("web", [A])
    conflicts = []

    async def interrupted(client, key, wanted):
        def slowly(service):
            if not conflicts:
                write(pair, "192.0.2.99=node-7")
            return wanted(service)

        try:
            return await correct_owned_by(client, key, slowly)
        except ConflictError:
            conflicts.append(1)
            raise

    monkeypatch.setattr(ownedby, "correct_owned_by", interrupted)
    async with a_side(pair, NODE, config=ON) as side:
        await waited(lambda: said(pair) == f"{A}={NODE}", "a name", PATIENCE_S)
        assert (conflicts, writes(pair, NODE)) == ([1], 2)
        assert not side.problems


@in_loop
async def test_claims_do_not_wait_for_a_server_that_holds_annotations_up(pair):
    async with a_side(pair, NODE, config=ON) as side:
        await until(lambda: side.joined, PATIENCE_S)
        pair.fault(NODE, hold="web")
        pair.publish("web", [A])
        await waited(lambda: writes(pair, NODE), "the write is under way", PATIENCE_S)
        pair.publish("another", [B])
        await until(lambda: side.kernel.owned() == {A, B}, PATIENCE_S)
        assert said(pair) == ""
        pair.fault(NODE)
        await waited(lambda: said(pair) == f"{A}={NODE}", "it comes in the end", PATIENCE_S)


@in_loop
async def test_server_that_is_away_is_asked_less_and_less_and_gets_the_name_in_the_end(pair, monkeypatch):
    monkeypatch.setattr(ownedby, "RETRY_S", 0.1)
    tries = []

    async def away(client, key, wanted):
        tries.append(boot_ns())
        if len(tries) < 4:
            raise UnavailableError(Failure("get", "services shop/web", 503, "503 Service Unavailable"))
        return await correct_owned_by(client, key, wanted)

    monkeypatch.setattr(ownedby, "correct_owned_by", away)
    pair.publish("web", [A])
    async with a_side(pair, NODE, config=ON) as side:
        await waited(lambda: said(pair) == f"{A}={NODE}", "a name", PATIENCE_S)
        assert not side.says(OWNED_BY), "the problem is that of the watches"
    waits = [(later - sooner) / NS_PER_S for sooner, later in pairwise(tries)]
    assert len(waits) == 3
    assert all(wait >= least for wait, least in zip(waits, (0.05, 0.1, 0.2), strict=True))


@in_loop
async def test_missing_right_is_one_problem_with_its_remedy_and_ends_when_it_is_granted(pair, monkeypatch):
    monkeypatch.setattr(ownedby, "REFUSED_NS", NS_PER_S // 4)
    allow(pair)
    pair.server.do(lambda it: it.enforce_rbac())
    for number in range(5):
        pair.publish(f"web-{number}", [vip(70 + number)])
    async with a_side(pair, NODE, config=ON, service_account=ACCOUNT) as side:
        await until(lambda: side.says("apply the component owned-by"), PATIENCE_S)
        assert len([problem for problem in side.problems if OWNED_BY in problem]) == 1
        await until(lambda: len(side.kernel.owned()) == 5, PATIENCE_S)

        allow(pair, "get", "patch")
        await waited(lambda: all(said(pair, f"web-{number}") for number in range(5)), "names", PATIENCE_S)
        await until(lambda: not side.problems, PATIENCE_S)


@in_loop
async def test_without_the_right_one_service_in_a_minute_is_tried(pair, rounds):
    allow(pair)
    pair.server.do(lambda it: it.enforce_rbac())
    for number in range(5):
        pair.publish(f"web-{number}", [vip(70 + number)])
    async with a_side(pair, NODE, config=ON, service_account=ACCOUNT) as side:
        looks = []
        side.kube._owned_by._look = lambda: looks.append(1)
        await until(lambda: side.says("apply the component owned-by"), PATIENCE_S)
        await some_rounds(rounds, NODE)
        assert (pair.count(NODE, "get", "services"), looks) == (1, [1])


@in_loop
async def test_service_that_a_policy_refuses_does_not_hold_up_the_others(pair, monkeypatch):
    async def judged(client, key, wanted):
        if key[1] == "a":
            raise RejectedError(Failure("patch", "services shop/a", 422, "422 Unprocessable Entity: not here"))
        return await correct_owned_by(client, key, wanted)

    monkeypatch.setattr(ownedby, "correct_owned_by", judged)
    for name, address in (("a", A), ("b", B)):
        pair.publish(name, [address])
    async with a_side(pair, NODE, config=ON) as side:
        await waited(lambda: said(pair, "b") == f"{B}={NODE}", "the other", PATIENCE_S)
        await until(
            lambda: side.says(f"cannot write the annotation {OWNED_BY} on shop/a: cannot patch services shop/a: 422"),
            PATIENCE_S,
        )
        pair.delete("/api/v1/namespaces/shop/services/a")
        await until(lambda: not side.problems, PATIENCE_S)


@in_loop
async def test_nothing_is_written_by_default_and_what_is_left_is_a_problem_with_its_remedy(pair, rounds):
    pair.publish("web", [A], {"owned-by": f"{A}={NODE}"})
    async with a_side(pair, NODE) as side:
        await until(lambda: side.kernel.owned() == {A}, PATIENCE_S)
        await until(lambda: side.says(f"`kubectl -n shop annotate service web {OWNED_BY}-`"), PATIENCE_S)
        await some_rounds(rounds, NODE)
        assert (writes(pair, NODE), pair.events("BadAnnotation")) == (0, [])
        write(pair, None)
        await until(lambda: not side.problems, PATIENCE_S)


@in_loop
async def test_names_go_when_the_setting_is_switched_off(pair):
    pair.configure(ON)
    pair.publish("web", [A])
    async with a_side(pair, NODE, configmap=CONFIGMAP) as side:
        await waited(lambda: said(pair) == f"{A}={NODE}", "a name", PATIENCE_S)
        pair.configure(CONFIG)
        await waited(lambda: not said(pair), "no name", PATIENCE_S)
        await until(lambda: not side.problems, PATIENCE_S)
        pair.configure(ON)
        await waited(lambda: said(pair) == f"{A}={NODE}", "a name again", PATIENCE_S)


@in_loop
async def test_agent_without_the_right_to_remove_its_name_tries_once(pair, monkeypatch, rounds):
    monkeypatch.setattr(ownedby, "REFUSED_NS", 0)
    pair.configure(ON)
    allow(pair, "get", "patch")
    pair.server.do(lambda it: it.enforce_rbac())
    pair.publish("web", [A])
    async with a_side(pair, NODE, configmap=CONFIGMAP, service_account=ACCOUNT) as side:
        await waited(lambda: said(pair) == f"{A}={NODE}", "a name", PATIENCE_S)
        before = pair.count(NODE, "get", "services")
        allow(pair)
        pair.configure(CONFIG)
        await until(lambda: side.says(f"`kubectl -n shop annotate service web {OWNED_BY}-`"), PATIENCE_S)
        await some_rounds(rounds, NODE)
        assert (said(pair), pair.count(NODE, "get", "services")) == (f"{A}={NODE}", before + 1)
        assert len(side.problems) == 1


@in_loop
async def test_names_go_with_the_guard(pair, monkeypatch):
    async def removed(_self):
        return End.REMOVED

    monkeypatch.setattr("arpguard.runtime.cluster.ending.Ending.why", removed)
    for number in range(5):
        pair.publish(f"web-{number}", [vip(70 + number)], {"owner": f"node/{NODE}"} if number else {})
    async with a_side(pair, NODE, config=ON) as side:
        await waited(lambda: all(said(pair, f"web-{number}") for number in range(5)), "names", PATIENCE_S)
        assert await side.kube.leave() is End.REMOVED
        assert [said(pair, f"web-{number}") for number in range(5)] == [""] * 5


@in_loop
async def test_agent_that_only_restarts_leaves_its_name(pair, monkeypatch):
    pair.publish("web", [A])
    async with a_side(pair, NODE, config=ON) as side:
        await waited(lambda: said(pair) == f"{A}={NODE}", "a name", PATIENCE_S)
        assert await side.kube.leave() is End.STOPPED
    assert said(pair) == f"{A}={NODE}"
