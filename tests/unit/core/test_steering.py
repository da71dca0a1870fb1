"""One node is followed at a time, whatever an announcer's objects do, and agents agree which."""

from dataclasses import replace
from ipaddress import ip_address

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arpguard.core.cluster import Announcement, Service, SpeakerReport
from arpguard.core.following import Following, Source
from arpguard.core.speakers import Look, Speakers
from arpguard.core.steering import (
    LASTS_NS,
    MAX_NAMED,
    MAX_PROBLEMS,
    MOST,
    PAUSE_NS,
    STEADY_NS,
    WINDOW_NS,
    Steering,
)
from arpguard.units import NS_PER_MS, NS_PER_S

IP, OTHER = ip_address("192.0.2.40"), ip_address("192.0.2.41")
WEB = Service("shop", "web", uid="1", ingress_ips=(IP,), load_balancer_class="example.com/metallb")
ABOUT = (WEB.namespace, WEB.name)
LATER_NS = 60 * NS_PER_S


class Agent:
    """One node's agent: what it follows for the VIP, at a time that the test sets."""

    def __init__(self, left: str = "", now_ns: int = 0, *, known: bool = True):
        self.now_ns = now_ns
        self.known = self.knows_events = known
        self.following = Following()
        self.steering = Steering(self.following, self.is_known, {IP: left} if left else {})
        self.service = WEB
        self.ask()

    def is_known(self, source: Source, namespace: str) -> bool:
        assert namespace == WEB.namespace
        return self.knows_events if source is Source.METALLB_EVENT else self.known

    def ask(self, address=IP):
        return self.steering.node_of(self.service, address, self.now_ns)

    @property
    def node(self) -> str:
        return self.ask().node

    def put(self, name: str, node: str | None, made: str = "", version: int = 0) -> frozenset:
        return self.hear(name, None if node is None else Announcement(ABOUT, node, made, version=f"{version:020}"))

    def hear(self, name: str, said: Announcement | None, source: Source = Source.METALLB) -> frozenset:
        return self.steering.put(source, ("metallb-system", name), said, self.now_ns)

    def event(self, node: str, version: int) -> None:
        self.hear(f"event-{node}", Announcement(ABOUT, node, f"{version:020}"), Source.METALLB_EVENT)

    def wait(self, ns: int) -> "Agent":
        self.now_ns += ns
        return self


# By MetalLB's own election (speaker/layer2_controller.go of 0.16.1): the order of nodes for an address.
ELECTED = {
    "192.0.2.40": ("worker-1", "worker-2", "worker-3"),
    "198.51.100.50": ("worker-3", "worker-1", "worker-2"),
}


def swaying() -> Agent:
    """Two speakers that do not reach each other, as of MetalLB 0.16: each deletes the other's object."""
    agent = Agent()
    for number in range(MOST + 1):
        agent.put("l2-a", None)
        agent.put("l2-b", None)
        agent.put(*(("l2-a", "n2"), ("l2-b", "n1"))[number % 2])
        agent.wait(25 * NS_PER_MS)
    return agent


def test_node_that_objects_name_is_followed_at_once():
    agent = Agent()
    agent.put("l2-a", "n1")

    assert agent.node == "n1"
    assert agent.steering.next_ns(agent.now_ns) is None


def test_between_two_nodes_there_is_a_pause_in_which_none_is_followed():
    agent = Agent()
    agent.put("l2-a", "n1")
    agent.wait(NS_PER_S).put("l2-a", "n2")

    assert agent.node == ""
    assert agent.ask().why.endswith("the VIP moves to n2, and for 50 ms all nodes suppress answers for it")
    assert agent.steering.next_ns(agent.now_ns) == agent.now_ns + PAUSE_NS
    assert agent.wait(PAUSE_NS - 1).node == ""
    assert agent.wait(1).node == "n2"
    assert agent.steering.next_ns(agent.now_ns) is None


def test_while_no_object_names_a_node_the_one_that_was_followed_is():
    agent = Agent()
    agent.put("l2-a", "n1")
    agent.put("l2-a", None)

    found = agent.wait(24 * 3600 * NS_PER_S).ask()
    assert (found.node, found.why) == ("n1", "no object of MetalLB names a node; the agents still follow n1")
    agent.put("l2-b", "n1")
    assert agent.node == "n1"  # without a pause: it never went away


def test_old_leader_that_comes_back_and_writes_no_object_is_found_by_its_event():
    """MetalLB to 0.15: the interim leader deletes the object, whose status names the one that announces again."""
    agent = Agent()
    agent.put("l2-a", "n1")
    agent.wait(LATER_NS).put("l2-a", "n2")  # the label of the same object
    agent.wait(LATER_NS).put("l2-a", None)
    assert agent.node == "n2"
    agent.event("n2", 5)
    agent.event("n1", 7)

    assert agent.wait(PAUSE_NS).node == "n1"
    agent.put("l2-b", "n3", version=8)
    assert agent.wait(PAUSE_NS).node == "n3"
    agent.put("l2-b", None)
    assert agent.node == "n3"  # the event is older than the object


def test_agent_that_starts_anew_keeps_what_it_let_through_until_something_else_is_said():
    agent = Agent(left="n1")
    assert agent.node == "n1"

    agent.put("l2-a", "n2")
    assert agent.node == ""
    assert agent.wait(PAUSE_NS).node == "n2"


def test_what_was_read_in_part_is_not_heard():
    agent = Agent(left="n1", known=False)
    agent.put("l2-a", "n2")
    assert agent.node == "n1"

    agent.put("l2-b", "n1", made="2")
    agent.known = True
    assert agent.node == "n1"
    assert agent.steering.next_ns(agent.now_ns) is None


def test_rolling_restart_is_followed_there_and_back():
    agent = Agent()
    for node in ("n1", "n2", "n1"):
        agent.put("l2-a", node)
        assert agent.wait(PAUSE_NS).node == node
    assert agent.steering.problems(agent.now_ns) == ()


def test_objects_that_sway_are_followed_no_more_and_that_is_a_problem():
    agent = swaying()
    assert agent.put("l2-b", "n2", made="9")  # whatever they say
    assert agent.wait(PAUSE_NS).node == "n1"
    assert agent.ask().why.endswith("the agents follow n1 while objects name several nodes in turn")
    (problem,) = agent.steering.problems(agent.now_ns)
    assert problem == (
        "service shop/web: its announcer's objects name n1 and n2 in turn; the agents follow n1 until only one node "
        "has been named for 3 s: check whether the announcer's pods reach each other"
    )


def test_swaying_costs_no_more_than_a_few_changes():
    agent, seen = Agent(), []
    for number in range(600):
        agent.put("l2-a", ("n1", "n2")[number % 2])
        agent.wait(25 * NS_PER_MS)
        if not seen or seen[-1] != agent.node:
            seen.append(agent.node)

    assert len(seen) <= MOST + 2
    assert seen[-1] == "n1"


def test_node_that_is_named_alone_for_long_enough_is_followed_again():
    agent = swaying()
    agent.wait(PAUSE_NS).put("l2-a", "n1")
    agent.put("l2-a", "n2", made="9")
    assert agent.node == "n1"
    assert agent.steering.next_ns(agent.now_ns) == agent.now_ns + STEADY_NS
    assert agent.wait(STEADY_NS).node == ""
    assert agent.wait(PAUSE_NS).node == "n2"
    assert agent.steering.problems(agent.now_ns) == ()


@pytest.mark.parametrize("vip", ELECTED)
def test_vip_stays_over_a_partition_where_metallb_elects_it_before_and_after(vip):
    first, other, last = ELECTED[vip]
    address = ip_address(vip)
    agent = Agent()
    agent.service = replace(WEB, ingress_ips=(address,))
    agent.put("l2-a", first)
    assert agent.ask(address).node == first
    for number in range(10 * MOST):  # each of the three announces, and deletes what the others wrote
        agent.put("l2-a", (other, last, first)[number % 3])
        agent.wait(25 * NS_PER_MS)
        assert number < MOST or agent.ask(address).node == first
    agent.put("l2-a", first)  # they reach each other again

    for _ in range(200):
        assert agent.wait(25 * NS_PER_MS).ask(address).node == first


def test_addresses_of_a_service_go_together_while_objects_sway():
    """MetalLB elects once for all of them, by the first."""
    agent = Agent()
    agent.service = replace(WEB, ingress_ips=(ip_address("198.51.100.50"), IP))
    for number in range(2 * MOST):
        agent.put("l2-a", ("worker-1", "worker-3")[number % 2])
        for address in agent.service.ingress_ips:
            agent.ask(address)
        agent.wait(25 * NS_PER_MS)

    agent.wait(PAUSE_NS)
    assert {agent.ask(address).node for address in agent.service.ingress_ips} == {"worker-3"}


def test_swaying_that_has_ended_is_forgotten():
    agent = swaying()
    agent.put("l2-a", None)
    agent.put("l2-b", "n1")
    agent.wait(WINDOW_NS)

    assert agent.node == "n1"
    assert agent.steering.next_ns(agent.now_ns) is None
    agent.put("l2-b", "n2")
    assert agent.wait(PAUSE_NS).node == "n2"


def test_nodes_that_are_remembered_are_few():
    agent = Agent()
    for number in range(10 * MAX_NAMED):
        agent.put("l2-a", f"n{number}")
    (course,) = agent.steering._steered[ABOUT].courses.values()

    assert len(course._left) == MAX_NAMED
    assert course.rivals(agent.now_ns)[-1] == f"n{10 * MAX_NAMED - 1}"


def test_address_that_a_service_has_no_more_is_forgotten_and_the_others_are_not():
    agent = Agent()
    agent.service = replace(WEB, ingress_ips=(IP, OTHER))
    agent.put("l2-a", "n1")
    assert [agent.ask(address).node for address in (IP, OTHER)] == ["n1", "n1"]
    agent.put("l2-a", None)
    agent.service = replace(WEB, labels=(("a", "b"),))
    assert agent.ask(IP).node == "n1"
    assert list(agent.steering._steered[ABOUT].courses) == [IP]


def test_service_that_was_made_anew_begins_anew():
    agent = Agent()
    agent.put("l2-a", "n1")
    agent.put("l2-a", None)
    agent.service = replace(WEB, uid="2")

    assert agent.node == ""


def test_service_that_follows_no_longer_is_forgotten():
    agent = swaying()
    agent.steering.leave([ABOUT, ("no", "such")])

    assert agent.steering.next_ns(agent.now_ns) is None
    assert agent.following.sources == frozenset()
    agent.put("l2-a", None)
    agent.put("l2-b", None)
    assert agent.node == ""


def test_agent_that_starts_waits_for_events_where_objects_do_not_settle_who_announces():
    """Else it would let the labelled node through for the moment that reading the Events takes."""
    agent = Agent(left="n1")
    agent.knows_events = False
    agent.hear("l2-a", Announcement(ABOUT, "n2", version=f"{1:020}", also="n1"))
    assert (agent.node, agent.steering.next_ns(agent.now_ns)) == ("n1", None)
    agent.event("n2", 2)
    agent.event("n1", 3)
    agent.knows_events = True
    assert (agent.node, agent.steering.next_ns(agent.now_ns)) == ("n1", None)


def test_agent_that_starts_follows_what_is_settled_without_events():
    agent = Agent(left="n1")
    agent.knows_events = False
    agent.put("l2-a", "n2")
    assert agent.wait(PAUSE_NS).node == "n2"


def test_agent_that_runs_waits_for_no_events():
    """They are watched only once objects dispute, and a move does not wait for that."""
    agent = Agent()
    agent.put("l2-a", "n1")
    agent.knows_events = False
    agent.hear("l2-a", Announcement(ABOUT, "n2", version=f"{2:020}", also="n1"))
    assert agent.wait(PAUSE_NS).node == "n2"


def starting_speaker() -> Agent:
    """n2 began to announce last and left its label, though n1 announces: the status is still its own."""
    agent = Agent()
    agent.event("n1", 1)
    agent.event("n2", 2)
    agent.hear("l2-a", Announcement(ABOUT, "n2", version=f"{3:020}", also="n1"))
    assert agent.wait(PAUSE_NS).node == "n2"
    return agent


def report(*, answers: bool) -> dict:
    return {ABOUT: SpeakerReport(f"{2:020}", answers=answers)}


def test_announcer_that_is_reported_silent_is_left_at_once():
    agent = starting_speaker()
    assert agent.steering.hear("n2", report(answers=False), agent.now_ns) == {ABOUT}
    assert agent.node == "n1"


def test_before_a_node_that_was_reported_silent_is_followed_there_is_a_pause_all_the_same():
    agent = starting_speaker()
    agent.steering.hear("n1", report(answers=False), agent.now_ns)
    agent.put("l2-a", "n1", version=4)
    assert agent.node == ""
    assert agent.wait(PAUSE_NS - 1).node == ""
    assert agent.wait(1).node == "n1"


def test_report_from_before_the_last_word_of_the_announcer_spares_no_pause():
    agent = starting_speaker()
    agent.steering.hear("n2", {ABOUT: SpeakerReport(f"{1:020}", answers=False)}, agent.now_ns)
    agent.event("n1", 5)
    assert agent.node == ""
    assert agent.wait(PAUSE_NS).node == "n1"


def test_report_of_another_node_from_before_the_last_word_is_no_reason_to_report():
    agent = starting_speaker()
    agent.steering.hear("n1", {ABOUT: SpeakerReport(f"{1:020}", answers=False)}, agent.now_ns)
    assert list(agent.steering.looks("n2", [ABOUT])) == [(ABOUT, Look(f"{2:020}", followed=True), (IP,))]


def test_node_that_is_followed_has_to_see_whether_its_announcer_answers():
    agent = starting_speaker()
    look = Look(f"{2:020}", followed=True)
    assert list(agent.steering.looks("n2", [ABOUT])) == [(ABOUT, look, (IP,))]

    agent.steering.hear("n1", report(answers=True), agent.now_ns)
    assert list(agent.steering.looks("n2", [ABOUT])) == [(ABOUT, replace(look, followed=False, answering=True), ())]
    agent.steering.hear("n2", report(answers=False), agent.now_ns)
    assert list(agent.steering.looks("n1", [ABOUT])) == [(ABOUT, replace(look, silent=True), (IP,))]


def test_node_that_alone_is_named_or_not_at_all_has_nothing_to_report():
    agent = starting_speaker()
    assert list(agent.steering.looks("n3", [ABOUT])) == []
    alone = Agent()
    alone.event("n1", 1)
    assert list(alone.steering.looks("n1", [ABOUT])) == []


class Speaking:
    """Nodes whose agents hear each other's reports late, and a client that asks every 20 ms."""

    def __init__(self, announcing: str | None, agents: str = "n1 n2 n3", late_ns: int = 30 * NS_PER_MS) -> None:
        self.announcing = announcing
        self.late_ns = late_ns
        self.agents = {node: starting_speaker() for node in agents.split()}
        self.speakers = {node: Speakers() for node in self.agents}
        self.counts = dict.fromkeys(self.agents, (0, 0))
        self.now_ns = next(iter(self.agents.values())).now_ns
        self.said = {node: {} for node in self.agents}
        self.heard: list[tuple[int, str, dict]] = []
        self.answered: list[str | None] = []

    def run(self, seconds: float) -> list[str | None]:
        """Who answered each request."""
        self.answered.clear()
        for _ in range(round(seconds * NS_PER_S) // (20 * NS_PER_MS)):
            self.now_ns += 20 * NS_PER_MS
            self.ask()
            for node in self.agents:
                self.look(node)
            self.tell()
        return self.answered

    def ask(self) -> None:
        answers = []
        for node, agent in self.agents.items():
            agent.now_ns = self.now_ns
            if agent.node == node:
                requests, replies = self.counts[node]
                self.counts[node] = requests + 1, replies + (node == self.announcing)
                answers += [node] * (node == self.announcing)
        assert len(answers) < 2
        self.answered.append(answers[0] if answers else None)

    def look(self, node: str) -> None:
        requests, answers = self.counts[node]
        looks = self.agents[node].steering.looks(node, [ABOUT])
        counted = {key: replace(look, requests=requests, answers=answers) for key, look, _ in looks}
        self.speakers[node].look(counted, self.now_ns)
        if self.speakers[node].reports != self.said[node]:
            self.said[node] = dict(self.speakers[node].reports)
            self.heard.append((self.now_ns + self.late_ns, node, self.said[node]))

    def tell(self) -> None:
        due = [each for each in self.heard if each[0] <= self.now_ns]
        self.heard = [each for each in self.heard if each[0] > self.now_ns]
        for _, node, reports in due:
            for agent in self.agents.values():
                agent.now_ns = self.now_ns
                agent.steering.hear(node, reports, self.now_ns)


def test_vip_returns_to_the_announcer_that_goes_on_and_stays_there():
    """A speaker that began alone has found the others, and has ceased."""
    nodes = Speaking("n1")
    assert nodes.run(0.4).count(None) <= 10
    assert set(nodes.run(100)) == {"n1"}


def test_vip_is_not_moved_where_the_announcer_named_last_answers():
    nodes = Speaking("n2")
    assert set(nodes.run(10)) == {"n2"}


def test_where_none_answers_the_one_that_begins_is_let_through_soon():
    nodes = Speaking(None)
    nodes.run(5)
    nodes.announcing = "n2"
    assert "n2" in nodes.run(2)
    assert set(nodes.run(60)) == {"n2"}


def test_announcer_that_answers_late_is_followed_again_where_the_other_node_is_gone():
    nodes = Speaking(None, agents="n2 n3")
    nodes.run(0.5)
    assert nodes.agents["n3"].node == "n1"
    nodes.announcing = "n2"
    assert "n2" in nodes.run(3)
    assert set(nodes.run(100)) == {"n2"}


# Several agents


NODES = ("n1", "n2", "n3")
STATUS = st.tuples(st.just("status"), st.sampled_from(("l2-a", "l2-b")), st.sampled_from((*NODES, None)))
EVENT = st.tuples(st.just("event"), st.sampled_from(NODES), st.none())
RESTART = st.tuples(st.just("restart"), st.sampled_from(NODES), st.none())
PASS = st.tuples(st.just("pass"), st.sampled_from((10, 30, 80)), st.none())
STEP_NS = 10 * NS_PER_MS


class Server:
    """The objects now, and every change of them in its order; agents hear it, each when it comes to it."""

    def __init__(self) -> None:
        self.log: list[tuple[int, str, Announcement | None]] = []
        self.writes = 0
        self.objects: dict[tuple[str, str], Announcement] = {}
        self.first: dict[str, str] = {}
        self.now_ns = 0

    def write(self, kind: str, name: str, node: str | None) -> None:
        """MetalLB's Events outlive its objects, whose status names for ever who made them.

        A speaker writes both when it begins to announce, and sometimes no object.
        """
        if kind == "status" and node is not None:
            self.write("event", node, node)
        self.writes += 1
        made = f"{self.writes:020}"
        said = None
        if kind == "event":
            said = Announcement(ABOUT, node, made)
        elif node is not None:
            first = self.first.setdefault(name, node)
            said = Announcement(ABOUT, node, made, version=made, also=first if first != node else "")
        else:
            self.first.pop(name, None)
        if kind == "status":
            self.log.append((self.now_ns, name, said))
        if said is None:
            self.objects.pop((kind, name), None)
        else:
            self.objects[kind, name] = said


class Watcher:
    """An agent that hears of the server's changes late, and reads Events where nothing else names a node."""

    def __init__(self, node: str, server: Server, lag_ns: int, left: str = "") -> None:
        self.me, self.server, self.lag_ns = node, server, lag_ns
        self.agent = Agent(left, server.now_ns, known=False)
        self.heard = len(server.log)
        for (kind, name), said in server.objects.items():
            if kind == "status":
                self.agent.hear(name, said)
        self.agent.known = True

    @property
    def passes(self) -> bool:
        return self.agent.node == self.me

    def catch_up(self) -> None:
        now_ns = self.server.now_ns
        while self.heard < len(self.server.log):
            at_ns, name, said = self.server.log[self.heard]
            if at_ns + self.lag_ns > now_ns:
                break
            self.agent.now_ns = max(self.agent.now_ns, at_ns + self.lag_ns)
            self.agent.hear(name, said)
            self.heard += 1
        self.agent.now_ns = now_ns
        self.agent.ask()

    def read_events(self) -> None:
        if self.agent.following.unsettled:
            for (kind, name), said in self.server.objects.items():
                if kind == "event":
                    self.agent.hear(f"event-{name}", said, Source.METALLB_EVENT)
            self.agent.knows_events = True

    def restarted(self) -> "Watcher":
        """The kernel keeps what the agent let through."""
        return Watcher(self.me, self.server, self.lag_ns, self.me if self.passes else "")


def _go_on(server: Server, watchers: dict[str, Watcher], ns: int) -> None:
    server.now_ns += ns
    for watcher in watchers.values():
        watcher.catch_up()


def run(steps, lags, look) -> list[Watcher]:
    server = Server()
    watchers = {node: Watcher(node, server, lag) for node, lag in zip(NODES, lags, strict=True)}
    for kind, name, said in steps:
        if kind == "pass":
            for _ in range(name * NS_PER_MS // STEP_NS):
                _go_on(server, watchers, STEP_NS)
                look(watchers.values())
        elif kind == "read":
            watchers[name].read_events()
        elif kind == "restart":
            watchers[name] = watchers[name].restarted()
        else:
            server.write(kind, name, said if kind == "status" else name)
    for wait_ns in (PAUSE_NS, PAUSE_NS, STEADY_NS, WINDOW_NS, PAUSE_NS):
        _go_on(server, watchers, wait_ns)
        for watcher in watchers.values():
            watcher.read_events()
    return list(watchers.values())


READ = st.tuples(st.just("read"), st.sampled_from(NODES), st.none())
LAGS = st.lists(st.sampled_from((0, 10 * NS_PER_MS, PAUSE_NS - 2 * STEP_NS)), min_size=3, max_size=3)


@given(st.lists(STATUS | EVENT | RESTART | PASS | READ, max_size=30), LAGS)
@settings(deadline=None)
def test_when_all_have_heard_everything_all_follow_the_same_node_and_none_where_none_was_named(steps, lags):
    watchers = run(steps, lags, lambda _: None)

    named = any(kind in ("status", "event") and (said or kind == "event") for kind, _, said in steps)
    followed = {watcher.agent.node for watcher in watchers if watcher.agent.node}
    assert sum(watcher.passes for watcher in watchers) <= 1
    assert bool(followed) <= named
    still_said = {watcher.agent.following.node_of(WEB, IP).node for watcher in watchers} - {""}
    if still_said:
        assert followed <= still_said


@given(st.lists(STATUS | PASS, max_size=30), LAGS)
@settings(deadline=None)
def test_two_never_pass_at_the_same_time_while_watches_lag_less_than_the_pause(steps, lags):
    def look(watchers):
        assert sum(watcher.passes for watcher in watchers) <= 1

    run(steps, lags, look)


@pytest.mark.parametrize("lag_ns", [0, 40 * NS_PER_MS])
def test_speakers_that_delete_each_others_objects_are_followed_by_one_node(lag_ns):
    """The VIP is on one node but for moments, and never on two."""
    steps = []
    for number in range(400):
        steps += [("status", "l2-a", None), ("status", "l2-a", NODES[number % 2]), ("pass", 30, None)]
    passing = []
    run(steps, (0, lag_ns, 0), lambda watchers: passing.append(sum(each.passes for each in watchers)))

    assert set(passing) <= {0, 1}
    assert passing.count(0) * 10 < (MOST + 1) * 80  # ms


# ---- what is wrong with objects ----


def test_objects_that_disagree_are_a_problem_once_that_has_lasted():
    agent = Agent()
    agent.put("l2-a", "n1", made="1")
    agent.put("l2-b", "n2", made="2")
    agent.ask()

    assert agent.steering.problems(agent.now_ns) == ()
    agent.wait(LASTS_NS - 1)
    assert agent.steering.problems(agent.now_ns) == ()
    (problem,) = agent.steering.problems(agent.wait(1).now_ns)
    assert "names the node n2, and " in problem
    agent.put("l2-a", None)
    agent.ask()
    assert agent.steering.problems(agent.now_ns) == ()


def test_objects_that_disagree_again_and_again_are_one_problem_and_no_more():
    """In a partition each speaker makes its object anew, with a new name."""
    agent, said = Agent(), set()
    for number in range(400):
        agent.put(f"l2-{number - 2}", None)
        agent.put(f"l2-{number}", ("n1", "n2")[number % 2], made=f"{number:03}")
        agent.ask()
        said |= set(agent.steering.problems(agent.now_ns))
        agent.wait(25 * NS_PER_MS)

    assert len(said) == 1
    assert "n1 and n2 in turn" in said.pop()


def test_problems_are_bounded():
    agent = Agent()
    for number in range(50):
        service = replace(WEB, name=f"web-{number}")
        for node in ("n1", "n2"):
            said = Announcement((service.namespace, service.name), node)
            agent.steering.put(Source.METALLB, ("metallb-system", f"{number}-{node}"), said, 0)
        agent.steering.node_of(service, IP, 0)
    agent.steering.problems(0)

    problems = agent.steering.problems(LASTS_NS)
    assert len(problems) == MAX_PROBLEMS + 1
    assert problems[-1] == "and 30 more problems"
