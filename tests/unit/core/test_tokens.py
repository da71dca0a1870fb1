"""How often something may happen."""

from arpguard.core.tokens import TokenBucket
from arpguard.units import NS_PER_S

START = 10**12
BURST, PER_S = 200, 10


def a_bucket() -> TokenBucket:
    return TokenBucket(BURST, NS_PER_S // PER_S)


def test_a_burst_is_let_through_and_then_some_in_a_second():
    bucket = a_bucket()
    assert [bucket.take(START) for _ in range(BURST + 1)] == [True] * BURST + [False]
    # A hundred in a second, for a minute.
    taken = sum(bucket.take(START + number * NS_PER_S // 100) for number in range(1, 6001))
    assert 60 * PER_S - 1 <= taken <= 60 * PER_S


def test_quiet_makes_room_for_a_burst_and_no_more():
    bucket = a_bucket()
    assert all(bucket.take(START) for _ in range(BURST))
    assert sum(bucket.take(START + 1000 * NS_PER_S) for _ in range(2 * BURST)) == BURST


def test_asking_takes_nothing():
    bucket = a_bucket()
    assert all(bucket.has_one(START) and bucket.is_full(START) for _ in range(2))
    assert all(bucket.take(START) for _ in range(BURST))
    assert not bucket.has_one(START)
    assert bucket.has_one(START + NS_PER_S // PER_S)
    assert not bucket.is_full(START + NS_PER_S)
