"""What `make chaos` does with a folder of traces: it reads all of it in the order of time, and names what is broken."""

import json
import random

import pytest

from arpguard.clock import boot_ns
from arpguard_lab.cluster.traces import Traces
from support.protocol.simulation import recording
from support.protocol.stories import a_pair
from support.protocol.trace_files import JOURNAL, of_folder
from support.protocol.trace_rules import broken_rules
from traces import check


@pytest.fixture(scope="module")
def lines():
    """Of a hand-over between two nodes."""
    with recording() as recorded:
        sim, owner, _ = a_pair()
        owner.wish(())
        sim.run_quickly(10)
    return recorded[0].lines


def a_folder(folder, lines):
    """As the lab writes it: the agents of a node in several files, and leases as the API server has them."""
    folder.mkdir()
    for node in ("n0", "n1"):
        own = [{**line, "ns": line["at"]} for line in lines if line.get("node") == node]
        texts = [json.dumps({name: what for name, what in line.items() if name != "at"}) for line in own]
        (folder / f"{node}.0001.trace").write_text("\n".join(texts) + "\n")
    rows = [_row(line) for line in lines if "node" not in line]
    (folder / JOURNAL).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def _row(line):
    kind, of = ("node", line["of"]) if "of" in line else ("vip", line["vip"])
    row = {"ns": line["at"], "name": f"{kind}.{of}"}
    if line["found"] is None:
        return row
    found = line["found"]
    uid, version = found["version"].split("/")
    notes = {"epoch": found["epoch"], "holder-epoch": found["epoch"], "instance": found.get("instance", "")}
    spec = {"leaseDurationSeconds": found.get("duration_ns", 0) // 10**9, "holderIdentity": found.get("holder")}
    metadata = {
        "uid": uid,
        "resourceVersion": version,
        "annotations": {f"arpguard.io/{k}": v for k, v in notes.items()},
    }
    return {**row, "object": {"metadata": metadata, "spec": spec}}


def test_a_run_that_went_well_breaks_no_rule(tmp_path, lines, capsys):
    a_folder(tmp_path / "rounds", lines)

    assert check.main([str(tmp_path)]) == 0
    assert "of 2 agents" in capsys.readouterr().out


def test_a_broken_rule_is_named_with_node_vip_and_lines(tmp_path, lines, capsys):
    put_in = next(line for line in lines if line["event"] == "entry put in")
    vip, node = put_in["effect"]["vip"], put_in["node"]
    told = [line for line in lines if not (line["event"] == "claim answered" and line["node"] == node)]
    a_folder(tmp_path / "rounds", told)

    assert check.main([str(tmp_path)]) == 1
    said = capsys.readouterr().out
    assert f"2 Claim: an entry after a CAS and a renewal: {node}, {vip}: an entry without a CAS" in said
    assert f"  {node}.0001.trace:" in said


def test_lines_about_a_kernel_count_until_an_agent_without_a_trace_has_it(lines):
    """The lab starts agents with slow clocks without a trace: such an agent may remove entries unseen."""
    told = [line for line in lines if line["event"] != "entry taken out"]
    freed = next(line for line in told if line["event"] == "claim stored" and not line["found"]["holder"])
    owner = next(line["node"] for line in lines if line["event"] == "entry taken out")
    beats = [line for line in told[: told.index(freed)] if line["event"] == "heartbeat stored" and line["of"] == owner]
    beat = {**beats[-1], "at": freed["at"], "found": {**beats[-1]["found"], "instance": "untraced"}}
    rule = "who answers has the claim"

    assert rule in {broken.rule for broken in broken_rules(told)}
    told.insert(told.index(freed), beat)
    assert rule not in {broken.rule for broken in broken_rules(told)}


def test_an_empty_folder_is_no_success(tmp_path, capsys):
    assert check.main([str(tmp_path)]) == 2
    assert "no traces" in capsys.readouterr().out


def test_files_are_read_in_the_order_of_time_whatever_their_number_and_their_lines_order(tmp_path, lines):
    folder = a_folder(tmp_path / "rounds", lines)
    first, *late = (folder / "n0.0001.trace").read_text().splitlines()
    random.Random(1).shuffle(late)
    (folder / "n0.0001.trace").write_text("\n".join([first, *late]))
    for number in range(2, 50):
        (folder / f"n2.{number:04}.trace").write_text(
            json.dumps({"ns": 10**15 + number, "event": "other", "node": "n2"})
        )

    with (folder / JOURNAL).open("a") as journal:
        journal.write(json.dumps({"ns": 2 * 10**15, "name": "another"}))

    found = list(of_folder(folder))
    assert [line["at"] for line in found] == sorted(line["at"] for line in found)
    assert len(found) == len(lines) + 48
    assert list(broken_rules(found)) == []


def test_lines_after_the_end_of_the_journal_are_left_out(tmp_path, lines):
    """Nothing says any more what the API server has."""
    folder = a_folder(tmp_path / "rounds", lines)
    last = max(line["at"] for line in lines if "node" not in line)
    with (folder / "n0.0001.trace").open("a") as file:
        file.write(json.dumps({"ns": last + 1, "node": "n0", "instance": "n0/1", "event": "other"}) + "\n")

    assert {line["event"] for line in of_folder(folder)}.isdisjoint({"other"})


def test_a_line_that_is_half_written_is_left_out(tmp_path, lines):
    folder = a_folder(tmp_path / "rounds", lines)
    with (folder / "n0.0001.trace").open("a") as file:
        file.write('{"ns": 7')
    (folder / "n3.0001.trace").write_text('{"ns": 7')

    last = max(line["at"] for line in lines if "node" not in line)
    assert len(list(of_folder(folder))) == sum(line["at"] <= last for line in lines)


def test_each_agent_has_a_file_and_rows_have_the_time_of_the_boot_clock(tmp_path):
    (tmp_path / "left.trace").write_text("of a run before")
    traces = Traces(tmp_path)
    one, other = traces.file_for("node-1"), traces.file_for("node-1")
    traces.keep([{"time_ns": 0, "name": "vip.192-0-2-1"}])

    assert one != other
    row = json.loads((tmp_path / JOURNAL).read_text())
    assert row["ns"] < boot_ns()
    assert [path.name for path in tmp_path.iterdir()] == [JOURNAL]
