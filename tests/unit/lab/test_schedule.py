"""What random rounds do is a matter of the seed alone, and over time all of it is done."""

from arpguard_lab.cluster.double import Double
from arpguard_lab.cluster.tampering import CLOSING, OPENING
from arpguard_lab.cluster.vouched import lease_of
from support.lab.schedules import a_schedule, digest

KINDS = {
    *("kill", "restart", "replace", "node dies", "hang", "starve"),
    *(
        "partition",
        "partition, requests lost",
        "partition, answers lost",
        "partition, 10 % lost",
        "partition, half lost",
    ),
    *("split", "split, deaf", "split, mute", "split, all nodes from each other"),
    *("unplug", "link down", "mac change"),
    *("api restart", *(f"api {fault.name}" for fault in Double.faults)),
    *("cordon", "not ready", "exclude", "endpoints", "delete vip lease", "delete node lease"),
    *(f"map {what}" for what in (*CLOSING, *OPENING)),
    *(
        "config observe",
        "config lease of 4 s",
        "config lease of 2 s",
        "config one more link",
        "config links by pattern",
    ),
    *("config one more VIP", "config no YAML", "config unknown setting"),
    *("slow clock", *(f"slow clock, then {what}" for what in ("hang", "partition", "kill"))),
}


def drawn(seed: int, rounds: int) -> list[tuple[float, str]]:
    schedule = a_schedule(seed)
    return [(deed.at_s, deed.what) for _ in range(rounds) for deed in schedule.draw()[0]]


def test_same_seed_does_the_same_at_the_same_times():
    assert drawn(7, 50) == drawn(7, 50)
    assert digest(7, 50) == digest(7, 50)


def test_another_seed_does_something_else():
    assert drawn(7, 5) != drawn(8, 5)
    assert len({digest(seed, 3) for seed in range(20)}) == 20


def test_more_rounds_begin_as_fewer_do():
    assert drawn(7, 50)[: len(drawn(7, 20))] == drawn(7, 20)


def test_everything_there_is_is_done_sooner_or_later():
    schedule = a_schedule(1)
    kinds = {deed.what.partition(":")[0] for _ in range(1000) for deed in schedule.draw()[0] if deed.harm}
    assert kinds == KINDS


def test_whatever_is_done_is_over_within_seconds():
    schedule = a_schedule(2)
    for _ in range(500):
        deeds, pause_s = schedule.draw()
        assert max(deed.at_s for deed in deeds) + pause_s < 12


def test_each_profile_of_vouching_has_its_seeds():
    assert [lease_of(seed) for seed in range(20)] == [lease_of(seed) for seed in range(20)]
    assert {lease_of(seed) for seed in range(20)} == {
        f"vouching: {{profile: {profile}}}" for profile in ("fast", "default", "slow")
    }
