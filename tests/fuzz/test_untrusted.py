"""Whatever stands in configurations and objects: a value or problems in words, and never an exception.

The seed is printed; ARPGUARD_SEED=N repeats a run, and `make fuzz` runs many more.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from arpguard.config import files, reading
from arpguard.config.files import MAX_PROBLEMS, parse_config
from arpguard.errors import ConfigError
from fuzz.config_cases import WHOLE, ConfigFuzzer, ConfigJudge
from fuzz.object_cases import BASES, ObjectFuzzer, ObjectJudge
from fuzz.untrusted import peak_kib

RUN = Path(__file__).with_name("untrusted.py")
CASES = 600
MOST_MB = 400


def test_random_configurations_and_objects_are_read_or_explained():
    """In a process of its own, whose memory is limited."""
    done = subprocess.run(
        [sys.executable, RUN, "--configs", str(CASES), "--objects", str(CASES)],
        capture_output=True,
        text=True,
        check=False,
    )
    print(done.stdout)

    assert done.returncode == 0, done.stdout + done.stderr
    assert re.findall(r"(\w+)=600 failed=(\d+)", done.stdout) == [("configs", "0"), ("objects", "0")]
    assert max(map(int, re.findall(r"peak_mb=(\d+)", done.stdout))) < MOST_MB
    assert all(int(valid) > CASES // 20 for valid in re.findall(r"valid (\d+)", done.stdout))


def test_judge_of_configurations_has_teeth(monkeypatch):
    """It fails where problems are not bounded, or are no text to print."""
    monkeypatch.setattr(reading, "shown", str)

    assert any(fails(ConfigJudge(), ConfigFuzzer(number).text_of_config()) for number in range(500))


def test_judge_of_objects_has_teeth(monkeypatch):
    """It fails where an object can hide another one."""
    judge = ObjectJudge()
    monkeypatch.setattr(judge, "_services", {})

    assert any(fails(judge, ObjectFuzzer(number).json_of_object()) for number in range(500))


def fails(judge, case) -> bool:
    try:
        judge.judge(case)
    except AssertionError:
        return True
    return False


def test_same_seed_makes_the_same_case():
    assert ConfigFuzzer(7).text_of_config() == ConfigFuzzer(7).text_of_config()
    assert ObjectFuzzer(7).json_of_object() == ObjectFuzzer(7).json_of_object()


def test_what_the_cases_are_made_of_is_valid():
    ConfigJudge().judge(repr(WHOLE))
    judge = ObjectJudge()
    for number in range(500):
        fuzzer = ObjectFuzzer(number)
        fuzzer.spoil = lambda tree, _most: tree
        judge.judge(fuzzer.json_of_object())

    assert parse_config(repr(WHOLE)).bpf.max_entries == 4096
    assert judge.ends["read"] > 450, (judge.ends, len(BASES))


# ---- what is large ----

MIB = 1 << 20
SIZE = MIB // 8
LARGE = {
    "list of texts": "vips: [" + "a," * (SIZE // 2) + "]",
    "list of lists": "vips: [" + "[]," * (SIZE // 3) + "]",
    "list of keys": "vips: [" + "a: b," * (SIZE // 5) + "]",
    "mapping": "{" + ",".join(f"a{number}" for number in range(SIZE // 8)) + "}",
    "selector": "services: {selector: {" + ",".join(f"a{number}: b" for number in range(SIZE // 12)) + "}}",
    "text": 'mode: "' + "x" * SIZE + '"',
    "text of zeros": 'mode: "' + "\\0" * (SIZE // 2) + '"',
    "key": '? "' + "k" * SIZE + '"\n: 1',
    "key twice": 2 * ('? "' + "k" * (SIZE // 2) + '"\n: 1\n'),
    "anchors": "vips: [" + "&a a," * (SIZE // 5) + "]",
    "aliases": "a: &a [x]\nb: [" + "*a," * (SIZE // 3) + "]",
    "aliases of aliases": "\n".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9) if n else 'x'}]" for n in range(30)),
    "merges": "a: &a {x: 1}\n" + "\n".join(f"b{n}: {{<<: [*a, *a, *a]}}" for n in range(1000)),
    "comments": "#" * SIZE,
    "nested": "[" * SIZE,
    "nested mappings": "{a: " * (SIZE // 4),
    "addresses to listen at": "grpc: {listen: [" + ",".join(f"'127.0.0.1:{port}'" for port in range(1, 20_000)) + "]}",
    "interfaces": "interfaces: [" + "can_reach:192.0.2.1," * (SIZE // 20) + "]",
    "documents": "---\n{}\n" * (SIZE // 7),
    "tags": "vips: [" + "!!python/object/apply:os.system x," * (SIZE // 34) + "]",
    "tabs": "\t" * SIZE,
    "megabytes": "#" * (files.MAX_FILE_BYTES + 1),
}


@pytest.mark.parametrize("text", LARGE.values(), ids=LARGE.keys())
def test_large_configuration_is_refused_in_few_words(text):
    with pytest.raises(ConfigError) as caught:
        parse_config(text)

    assert 0 < len(caught.value.problems) <= MAX_PROBLEMS + 1
    assert sum(len(str(problem)) for problem in caught.value.problems) < 20_000
    assert len(str(caught.value)) < 3000
    ConfigJudge().judge(text)


def test_values_are_counted(monkeypatch):
    monkeypatch.setattr(files, "MAX_VALUES", 12)

    assert parse_config("vips: []\nranges: [" + "192.0.2.0/24," * 9 + "]").ranges
    with pytest.raises(ConfigError, match="line 2, column 127: more than 12 values"):
        parse_config("vips: []\nranges: [" + "192.0.2.0/24," * 10 + "]")


def test_large_configuration_needs_little_memory():
    """A megabyte of two letters each. Nodes for them, and a problem for each, were 230 MB."""
    script = "import sys; sys.path.insert(0, sys.argv[1]); from fuzz import test_untrusted as it; it.print_peak()"
    done = subprocess.run(
        [sys.executable, "-c", script, str(RUN.parents[1])], capture_output=True, text=True, check=True
    )

    assert int(done.stdout) < 64 << 10, "KiB"


def print_peak() -> None:
    """Run in a process of its own."""
    before = peak_kib()
    ConfigJudge().judge("vips: [" + "a," * (MIB // 2) + "]")
    print(peak_kib() - before)


def test_configuration_of_a_large_site_is_taken():
    vips = "".join(f"- {{address: 10.0.{n >> 8}.{n & 255}, owner: elect}}\n" for n in range(1, 20_000))

    assert len(parse_config("vips:\n" + vips).vips) == 19_999
