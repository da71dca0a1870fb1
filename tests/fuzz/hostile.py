"""Values that nobody in his right mind writes, and random changes of trees of them. All from one seeded generator."""

import random
from collections.abc import Callable
from itertools import islice
from typing import Any

MOST_PLACES = 5000
Tree = Any  # what JSON and YAML give: dict, list, str, int, float, bool, None

TEXTS = [
    "",
    " ",
    "\0",
    "\x1b[2J\x1b[31m",
    "a\nERROR forged line",
    "a\r\n",
    "\t",
    "\ufeff",
    "\u202egnp.exe",
    "\u2028\u2029\x85",
    "\ud800",
    "\udfff\ud800",
    "\U0001f980" * 5,
    "é" * 300,
    "e\u0301",
    "\u0663",
    "\uff11\uff19\uff12.0.2.1",
    "192.0.2.1\u200b",
    "\u0430uto",
    "%s%n{0}{x}",
    "../../etc/shadow",
    "~",
    "null",
    "true",
    "yes",
    "on",
    "2026-01-01",
    "9999-12-31T23:59:59.999999Z",
    "-0001-01-01T00:00:00Z",
    "12:34:56",
    "1e400",
    "NaN",
    "-.inf",
    "0x7f",
    "0o17",
    "1_000",
    "9" * 5000,
    "A" * 300,
    "k" * 2000,
    "*" * 127,
    "[!" * 60,
    "<<",
    "!!python/object/apply:os.system",
    "255.255.255.255",
    "0.0.0.0",
    "224.0.0.1",
    "127.0.0.1",
    "169.254.1.1",
    "192.0.2.255",
    "192.0.2.0",
    "192.0.2.1/24",
    "0.0.0.0/0",
    "10.0.0.0/8",
    "::",
    "::/0",
    "::1",
    "ff02::1",
    "fe80::1%eth0",
    "fe80::1%" + "z" * 500,
    "2001:db8::",
    "::ffff:192.0.2.1",
    "2001:db8::1%25",
    "010.0.0.1",
    "1.2.3.4.5",
    "ff:ff:ff:ff:ff:ff",
    "01:00:5e:00:00:01",
    "00:00:00:00:00:00",
    "02-00-00-00-00-aa",
    "node-1",
    "elect",
    "follow",
    "external",
    "node/node-1",
    "external/02:00:00:00:00:aa",
    "auto",
    "eth0",
    "lo",
    "cidr:192.0.2.0/24",
    "cidr:::/0",
    "can_reach:192.0.2.1",
    "unix:///run/arpguard/agent.sock",
    "unix:///" + "x" * 200,
    "127.0.0.1:50051",
    "[::1]:1",
    "0.0.0.0:9469",
    "3s",
    "0.000000001ms",
    "999999m",
    "12345678-1234-1234-1234-123456789abc",
    '[{"name":"eth0","mac":"02:00:00:00:00:01","networks":["192.0.2.0/24"]}]',
    "[" * 4000,
    '{"a":' * 700,
]
NUMBERS = [0, 1, -1, 7, 80, 65535, 65536, 1 << 31, -(1 << 63), 10**18, 10**90, 10**400, 0.5, -0.0, 1e308]
ODD_NUMBERS = [float("inf"), float("-inf"), float("nan")]
OTHERS: list[Tree] = [None, True, False, [], {}, [[]], [{}], {"": ""}, [None], {"a": None}]


class Mutator:
    """Random changes of trees; the same seed makes the same."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def text(self) -> str:
        roll = self.rng.random()
        if roll < 0.9:
            return self.rng.choice(TEXTS)
        if roll < 0.97:
            return "".join(chr(self.rng.randrange(0x250)) for _ in range(self.rng.randrange(1, 40)))
        return chr(self.rng.randrange(1, 0xD800)) * self.rng.choice((1, 20, 300))

    def value(self, depth: int = 0) -> Tree:
        roll = self.rng.random()
        if roll < 0.55 or depth > 3:
            return self.text()
        if roll < 0.7:
            return self.rng.choice(NUMBERS + ODD_NUMBERS)
        if roll < 0.85:
            return copied(self.rng.choice(OTHERS))
        if roll < 0.93:
            return [self.value(depth + 1) for _ in range(self.rng.randrange(4))]
        return {self.text(): self.value(depth + 1) for _ in range(self.rng.randrange(4))}

    def spoil(self, tree: Tree, most: int = 3) -> Tree:
        """A tree with one to `most` changes; what was given is left as it is."""
        tree = copied(tree)
        for _ in range(self.rng.randint(1, most)):
            places = list(islice(_places(tree), MOST_PLACES))
            if not places:
                return self.value()
            holder, key = self.rng.choice(places)
            self.rng.choice(_CHANGES)(self, holder, key)
        return tree

    def _replace(self, holder: Tree, key: Tree) -> None:
        holder[key] = self.value()

    def _remove(self, holder: Tree, key: Tree) -> None:
        del holder[key]

    def _rename(self, holder: Tree, key: Tree) -> None:
        if isinstance(holder, dict):
            holder[self.text()] = holder.pop(key)

    def _wrap(self, holder: Tree, key: Tree) -> None:
        holder[key] = self.rng.choice(([holder[key]], {"a": holder[key]}, [[holder[key]]]))

    def _repeat(self, holder: Tree, key: Tree) -> None:
        """A list, or a text, many times as long."""
        times, found = self.rng.choice((2, 3, 50, 1100)), holder[key]
        is_small = len(found) < 100 if isinstance(found, str) else next(islice(_places(found), 10, None), None) is None
        if isinstance(found, (list, str)) and is_small:
            holder[key] = copied(found * times)

    def _add(self, holder: Tree, key: Tree) -> None:
        if isinstance(holder, dict):
            holder[self.text()] = self.value()
        else:
            holder.insert(key, self.value())

    def _bury(self, holder: Tree, key: Tree) -> None:
        """Deep in lists."""
        for _ in range(self.rng.choice((5, 20, 60))):
            holder[key] = [holder[key]]


_CHANGES: list[Callable[[Mutator, Tree, Tree], None]] = [
    *[Mutator._replace] * 5,
    Mutator._remove,
    Mutator._rename,
    Mutator._wrap,
    Mutator._repeat,
    *[Mutator._add] * 2,
    Mutator._bury,
]


def copied(tree: Tree) -> Tree:
    if isinstance(tree, dict):
        return {key: copied(value) for key, value in tree.items()}
    return [copied(value) for value in tree] if isinstance(tree, list) else tree


def _places(tree: Tree, depth: int = 0):
    """Every place in a tree that something stands at: who holds it, and under which key."""
    if depth > 200:
        return
    keys = tree if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ()
    for key in list(keys):
        yield tree, key
        yield from _places(tree[key], depth + 1)
