"""What keepalived's lines mean, whatever happens to the FIFO, to keepalived and to the agent."""

from dataclasses import replace
from ipaddress import ip_address

import pytest

from arpguard.addresses import MacAddress
from arpguard.core.auditing import Answerer, Audited, AuditFinding, Expected
from arpguard.core.keepalived import (
    SETTLE_NS,
    UNSAID,
    FifoLook,
    FifoReading,
    InstanceStates,
    VrrpState,
    followers,
    owner_shown,
    owner_step,
    resolved,
    splits,
    unknown_states,
)
from arpguard.model import EntryKey, Owner, OwnerKind, Vip

FIFO = "/run/states"
ROOM = 65536
START = 1_000_000_000_000
VIP, OTHER_VIP = ip_address("198.51.100.50"), ip_address("198.51.100.51")
FOLLOWS = Owner(OwnerKind.KEEPALIVED, instance="VI_1")
STRANGER = MacAddress.parse("02:00:00:00:00:99")


class Pipe:
    """A FIFO as the kernel has it, and an agent that looks into it."""

    def __init__(self) -> None:
        self.content = b""
        self.is_open = True
        self.was_closed = False
        self.mtime_ns = START
        self.writers: tuple[str, ...] = ("7:100",)  # as far as the agent sees them
        self.now_ns = START
        self.file = ""
        self.reading = FifoReading(FIFO)

    def says(self, *states: str) -> str:
        """keepalived writes some lines, and the agent looks."""
        self.writes(*states)
        return self.look()

    def writes(self, *states: str) -> None:
        self.mtime_ns += len(states)
        self.content += "".join(f'INSTANCE "VI_1" {state} 100\n' for state in states).encode()

    def look(self, after_ns: int = SETTLE_NS) -> str:
        self.now_ns += after_ns
        writers = self.writers if self.is_open else ()
        look = FifoLook(self.content, self.is_open, ROOM, self.mtime_ns, writers, self.was_closed)
        self.was_closed = False
        taken = self.reading.take(look, self.now_ns)
        self.file, self.content = self.reading.remembered, self.content[taken:]
        return self.word

    @property
    def word(self) -> str:
        return self.reading.known.word("VI_1")

    @property
    def why(self) -> str:
        return self.reading.known.why_unknown("VI_1")

    def ends(self) -> None:
        """keepalived closes the FIFO; without an agent that has it open its lines are gone."""
        self.is_open = False

    def reloads(self) -> None:
        """keepalived closes the FIFO and opens it again, before the agent looks."""
        self.was_closed = True

    def restarts(self) -> None:
        """Another keepalived opens it."""
        self.was_closed, self.writers = True, ("8:200",)

    def loses(self) -> None:
        """Another program reads all that is in it."""
        self.content = b""

    def restart_agent(self) -> str:
        self.reading = FifoReading(FIFO, self.file)
        return self.look(0)


@pytest.fixture
def pipe() -> Pipe:
    return Pipe()


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        (["BACKUP"], "BACKUP"),
        (["BACKUP", "MASTER"], "MASTER"),
        (["MASTER", "FAULT"], "FAULT"),
        (["MASTER", "STOP"], "STOP"),
        (["MASTER", "DELETED"], "DELETED"),
        (["MASTER_RX_LOWER_PRI"], "MASTER"),
        (["MASTER_PRIORITY"], "MASTER"),
        (["MASTER", "BACKUP_PRIORITY"], "BACKUP"),
        ([], "unknown"),
    ],
)
def test_the_last_line_says_the_state(pipe, states, expected):
    assert pipe.says(*states) == expected
    assert bool(pipe.why) is (expected == "unknown")


def test_instances_and_groups_are_told_apart(pipe):
    pipe.content = b'GROUP "VI_1" MASTER 0\nINSTANCE "VI 2" MASTER 100\n'
    assert pipe.look() == "unknown"
    assert pipe.why == "this is the name of a vrrp_sync_group: name one of its instances instead"
    assert pipe.reading.known.states == {"VI 2": VrrpState.MASTER}


def test_before_the_first_look_nothing_is_known(pipe):
    assert pipe.why == "the agent has not looked for keepalived yet"


def test_while_nobody_has_the_fifo_open_the_state_is_unknown(pipe):
    assert pipe.says("MASTER") == "MASTER"
    pipe.ends()
    assert pipe.look() == "unknown"
    assert pipe.why.startswith("keepalived is not running")


def test_a_reload_closes_the_fifo_for_a_moment_and_says_nothing_of_a_master(pipe):
    pipe.says("BACKUP", "MASTER")
    pipe.ends()
    assert pipe.look(1) == "unknown"
    pipe.is_open = True
    assert pipe.look(1) == "unknown", "it may have more to say"
    assert pipe.look() == "MASTER"


def test_a_start_says_its_states_before_anything_older_counts(pipe):
    pipe.says("BACKUP", "MASTER")
    pipe.ends()
    pipe.look(1)
    pipe.is_open = True
    pipe.look(1)
    pipe.writes("BACKUP")
    assert pipe.look(1) == "BACKUP"
    assert pipe.look() == "BACKUP"


@pytest.mark.parametrize("is_seen_closed", [True, False])
def test_another_keepalived_counts_from_its_first_word(pipe, is_seen_closed):
    """One with a track_script says nothing until that has run."""
    pipe.says("BACKUP", "MASTER")
    if is_seen_closed:
        pipe.ends()
        pipe.look(1)
        pipe.is_open = True
    pipe.restarts()
    for _ in range(3):
        assert pipe.look() == "unknown"
    assert pipe.why.startswith("keepalived is running but has not reported this instance")
    assert "VI_1" not in pipe.file
    assert pipe.says("BACKUP") == "BACKUP"
    assert pipe.says("MASTER") == "MASTER"


def test_where_the_writer_cannot_be_seen_nothing_said_before_a_reload_counts(pipe):
    pipe.writers = ()
    assert pipe.says("MASTER") == "MASTER"
    pipe.reloads()
    pipe.look()
    assert pipe.look() == "unknown"
    assert pipe.says("MASTER") == "MASTER"


def test_a_reload_between_two_looks_keeps_what_the_same_process_said(pipe):
    pipe.says("BACKUP", "MASTER")
    pipe.reloads()
    assert pipe.look() == "unknown"
    assert pipe.look() == "MASTER"


@pytest.mark.parametrize(("last", "expected"), [("BACKUP", "BACKUP"), ("MASTER", "unknown")])
def test_a_line_from_before_a_restart_or_after_it_counts_unless_it_says_master(pipe, last, expected):
    pipe.says("MASTER")
    pipe.writes(last)
    pipe.restarts()
    assert pipe.look() == "unknown"
    assert pipe.look() == expected


def test_an_agent_that_starts_again_recalls_nothing_of_another_process(pipe):
    pipe.says("BACKUP", "MASTER")
    pipe.content, pipe.writers = b"", ("8:200",)
    pipe.restart_agent()
    assert pipe.look() == "unknown"


def test_lines_that_an_older_process_left_in_the_fifo_count_no_longer(pipe):
    """It was still ending when the new one opened the FIFO."""
    pipe.says("BACKUP", "MASTER")
    pipe.writers = ("8:200",)
    assert pipe.restart_agent() == "unknown"
    assert pipe.look() == "unknown"


def test_a_process_that_ends_after_the_next_one_opened_the_fifo_takes_its_words_with_it(pipe):
    pipe.says("BACKUP", "MASTER")
    pipe.writers = ("8:200",)
    assert pipe.look() == "unknown"
    pipe.was_closed = True
    pipe.look()
    assert pipe.look() == "unknown"


def test_an_agent_that_starts_again_recalls_nothing_if_it_missed_a_line(pipe):
    pipe.says("BACKUP", "MASTER")
    pipe.writes("BACKUP")
    pipe.content = b""  # a reload closed the FIFO, and did not say that again
    pipe.restart_agent()
    assert pipe.look() == "unknown"


def test_what_was_written_down_without_its_writer_is_not_recalled(pipe):
    pipe.file = 'INSTANCE "VI_1" MASTER\n'
    pipe.restart_agent()
    assert pipe.look() == "unknown"


def test_a_line_that_left_nothing_was_read_by_somebody_else(pipe):
    pipe.says("BACKUP", "MASTER")
    pipe.reloads()
    pipe.look()
    assert pipe.look() == "MASTER"
    pipe.writes("BACKUP")
    pipe.loses()
    assert pipe.look() == "unknown"
    assert pipe.why.startswith("another program reads")


def test_the_time_of_a_write_may_come_just_after_its_line(pipe):
    pipe.says("MASTER")
    pipe.reloads()
    pipe.look()
    pipe.mtime_ns += 1
    pipe.look(1)
    assert pipe.look() == "MASTER"


def test_two_programs_that_write_make_all_unknown(pipe):
    pipe.says("MASTER")
    pipe.writers = ("7:100", "8:200")
    assert pipe.look() == "unknown"
    assert pipe.why == (
        "2 programs have /run/states open for writing: give each keepalived a FIFO of its own, and restart "
        "the one that arpguard follows"
    )
    pipe.writers = ("8:200",)
    pipe.reloads()
    pipe.look()
    assert pipe.look() == "unknown"


def test_an_agent_that_starts_again_reads_the_lines_again(pipe):
    pipe.says("BACKUP", "MASTER")
    assert pipe.content
    assert pipe.restart_agent() == "MASTER"


def test_an_agent_that_starts_again_recalls_what_a_reload_did_not_repeat(pipe):
    pipe.says("BACKUP", "MASTER")
    pipe.content = b""  # meanwhile keepalived was reloaded
    assert pipe.restart_agent() == "unknown"
    assert pipe.look() == "MASTER"


def test_lines_count_more_than_what_is_recalled(pipe):
    pipe.says("BACKUP", "MASTER")
    pipe.content = b""
    pipe.writes("BACKUP")
    assert pipe.restart_agent() == "BACKUP"
    assert pipe.look() == "BACKUP"


def test_an_agent_that_starts_again_recalls_nothing_of_a_keepalived_that_is_gone(pipe):
    pipe.says("MASTER")
    pipe.content = b""
    pipe.ends()
    assert pipe.restart_agent() == "unknown"
    assert pipe.look() == "unknown"


def test_another_fifo_at_the_path_begins_with_what_was_said_before(pipe):
    pipe.says("MASTER")
    pipe.content = b""
    pipe.reading.replaced()
    assert pipe.look(1) == "unknown"
    assert pipe.reading.known.trouble == ""
    assert pipe.look() == "MASTER"


def test_lines_that_are_gone_were_read_by_somebody_else(pipe):
    pipe.says("BACKUP", "MASTER")
    pipe.content = b""
    pipe.writes("MASTER")
    assert pipe.look() == "unknown"
    assert pipe.why == (
        "another program reads /run/states too, and took lines from it: give arpguard a FIFO of its own, and restart "
        "keepalived"
    )
    assert (pipe.file, pipe.content) == ("", b"")
    assert pipe.look() == "unknown"
    assert pipe.why.startswith("another program"), "as long as nothing new is known"
    assert pipe.says("BACKUP") == "BACKUP"


def test_a_fifo_that_fills_up_is_emptied_and_the_states_stay(pipe):
    pipe.content = b'INSTANCE "VI_2" BACKUP 100\n'
    pipe.look()
    for _ in range(1000):
        pipe.says("MASTER")
        assert len(pipe.content) <= ROOM // 4
    assert pipe.reading.known.word("VI_2") == "BACKUP"
    assert pipe.restart_agent() == "MASTER"
    pipe.look()
    assert pipe.reading.known.word("VI_2") == "BACKUP"


def test_a_fifo_that_was_full_may_lack_lines(pipe):
    pipe.writes(*["MASTER"] * 2400)
    assert len(pipe.content) < ROOM
    assert pipe.look() == "unknown"
    assert pipe.why == "/run/states was full, so keepalived may have been unable to write to it: restart keepalived"
    assert pipe.content == b""


@pytest.mark.parametrize("line", ["RS [1.2.3.4]:80 VS UP", 'INSTANCE "VI_1" MAINSTANCE', "x" * 100, ""])
def test_a_line_that_is_not_about_vrrp_makes_all_unknown(pipe, line):
    pipe.says("MASTER")
    pipe.content += f"{line}\n".encode()
    assert pipe.look() == "unknown"
    assert pipe.why == f"{FIFO} has a line that is not about VRRP, {line[:60]!r}: use vrrp_notify_fifo, not notify_fifo"


def test_without_a_fifo_the_reason_is_shown(pipe):
    pipe.says("MASTER")
    pipe.reading.fail("gone")
    assert (pipe.word, pipe.why) == ("unknown", "gone")


# ---- VIPs ----

VIPS = {VIP: Vip(VIP, FOLLOWS), OTHER_VIP: Vip(OTHER_VIP, Owner(OwnerKind.NODE, node="n1"))}


def known(state: VrrpState | None = None) -> InstanceStates:
    return InstanceStates({"VI_1": state} if state else {}, trouble="")


def test_only_vips_of_an_instance_that_is_master_get_this_node_as_owner():
    assert followers(VIPS) == {VIP: "VI_1"}
    master = known(VrrpState.MASTER)
    assert resolved(VIPS[VIP], "me", master) == Vip(VIP, replace(FOLLOWS, node="me"))
    assert resolved(VIPS[OTHER_VIP], "me", master) is VIPS[OTHER_VIP]
    for state in (None, *set(VrrpState) - {VrrpState.MASTER}):
        assert resolved(VIPS[VIP], "me", known(state)) is VIPS[VIP]


def test_no_instance_is_called_nothing():
    nameless = InstanceStates({"": VrrpState.MASTER})
    assert resolved(VIPS[OTHER_VIP], "me", nameless) is VIPS[OTHER_VIP]


def test_lists_show_the_state():
    assert owner_shown(FOLLOWS, known(VrrpState.FAULT)) == "keepalived VI_1 (FAULT)"
    assert owner_shown(FOLLOWS, known()) == "keepalived VI_1 (unknown)"
    assert owner_shown(VIPS[OTHER_VIP].owner, known()) == "n1"


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (
            VrrpState.MASTER,
            "keepalived runs on me and says that VI_1 is MASTER, so the guard there passes answers for the VIP",
        ),
        (VrrpState.BACKUP, "keepalived says that VI_1 is BACKUP on me, so this node is silent"),
        (None, f"the state of VI_1 on me is unknown, so this node is silent: {UNSAID}"),
    ],
)
def test_explain_says_why(state, expected):
    assert owner_step(FOLLOWS, "me", known(state), waits=False) == expected


@pytest.mark.parametrize(
    ("state", "begins"),
    [
        (
            VrrpState.MASTER,
            "keepalived says that VI_1 is MASTER on me, but the agent does not yet know everything",
        ),
        (
            VrrpState.BACKUP,
            "keepalived says that VI_1 is BACKUP on me, but the agent does not yet know everything",
        ),
        (
            None,
            f"the state of VI_1 on me is unknown: {UNSAID}; the agent does not yet know everything",
        ),
    ],
)
def test_explain_does_not_say_silent_while_the_agent_changes_nothing(state, begins):
    step = owner_step(FOLLOWS, "me", known(state), waits=True)

    assert step.startswith(begins)
    assert step.endswith(": until then, this node treats the VIP as it did before the agent started")


def test_an_unknown_state_is_one_problem_for_all_vips_that_follow():
    followed = {VIP: "VI_1", OTHER_VIP: "VI_1"}
    (problem,) = unknown_states(followed, known(), waits=False)
    assert problem.startswith("keepalived: the state of VI_1 is unknown (")
    assert problem.endswith("), so this node does not answer for 198.51.100.50, 198.51.100.51")
    assert unknown_states(followed, known(VrrpState.BACKUP), waits=False) == []


def test_while_the_agent_changes_nothing_it_does_not_say_that_the_node_is_silent():
    (problem,) = unknown_states({VIP: "VI_1"}, known(), waits=True)
    assert "this node treats 198.51.100.50 as it did before the agent started" in problem
    assert "does not answer" not in problem


def audited(finding: AuditFinding, *, here: bool = True) -> Audited:
    expected = Expected(node="me", here=here, delegated=True)
    return Audited(EntryKey(2, VIP), "eth0", expected, finding, (Answerer(STRANGER, fits=False),), START)


def test_two_masters_are_a_split():
    (problem,) = splits({VIP: "VI_1"}, known(VrrpState.MASTER), [audited(AuditFinding.SEVERAL)])
    assert problem == (
        f"keepalived: VI_1 is MASTER here, and {STRANGER} answers for 198.51.100.50 too: two routers are MASTER, and "
        "arpguard does not choose between them; let their VRRP advertisements reach each other, or stop one"
    )


@pytest.mark.parametrize(
    ("state", "found"),
    [
        (VrrpState.BACKUP, audited(AuditFinding.SEVERAL)),
        (VrrpState.MASTER, audited(AuditFinding.SEVERAL, here=False)),
        (VrrpState.MASTER, audited(AuditFinding.NONE)),
    ],
    ids=["not master", "asked elsewhere", "nobody"],
)
def test_nothing_else_is_a_split(state, found):
    assert splits({VIP: "VI_1"}, known(state), [found]) == []
