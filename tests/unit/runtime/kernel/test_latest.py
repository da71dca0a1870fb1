from arpguard.runtime.kernel.latest import Latest


def test_same_arguments_give_the_same_object_and_others_a_new_one():
    calls: list[tuple[int, list[int]]] = []

    def count(number: int, items: list[int]) -> list[int]:
        calls.append((number, items))
        return [number, *items]

    latest = Latest(count)
    first = latest(1, [2])

    assert latest(1, [2]) is first
    assert latest(1, [3]) == [1, 3]
    assert latest(1, [2]) == first
    assert calls == [(1, [2]), (1, [3]), (1, [2])]
