"""`arpguard replay`: a capture through the guard's programs, with nothing attached and nothing sent."""

import argparse
import gzip
import io
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from arpguard.cli import documents, exits
from arpguard.cli.arguments import need_root
from arpguard.cli.replay import page
from arpguard.cli.replay.page import FrameLines, Story
from arpguard.config.files import read_config
from arpguard.core.replay import ReplayScene
from arpguard.dataplane.replay import Judged, Replay
from arpguard.errors import ConfigError, Problem
from arpguard.verdict import Mode, Verdict
from arpguard.wire.capture import BrokenCaptureError, NotACaptureError, read_capture

_GZIP = b"\x1f\x8b"
_STDIN = "-"
_BUFFER = 1 << 18


def run_replay(options: argparse.Namespace) -> int:
    """`arpguard replay`; exit code 1 when more than one MAC answered for an address."""
    scene = _scene(options)
    with _opened(options.file) as read:
        try:
            frames = read_capture(read)
        except NotACaptureError as error:
            raise _no_capture(options.file, str(error)) from error

        need_root()
        exits.leave_on_signals()
        replay = Replay(scene)
        story = Story(options.file, scene, replay.ledger)
        interrupted = _show_frames(options, replay.run(frames), story)

    _show_summary(options, story)
    if interrupted:
        return interrupted
    return exits.NOT_RIGHT if replay.ledger.doubled() else exits.OK


def _show_summary(options: argparse.Namespace, story: Story) -> None:
    """The last of several documents, or the only one."""
    if options.output == "table":
        print(page.summary(story))
        return
    show = documents.document if options.summary else documents.stream_document
    print(show({"summary": page.summary_dict(story)}, options.output))


def _scene(options: argparse.Namespace) -> ReplayScene:
    macs = {mac: node or options.node for node, mac in options.mac}
    return ReplayScene(
        node=options.node,
        config=read_config(options.config),
        mode=Mode[options.mode.upper()] if options.mode else Mode.INHERIT,
        owners=dict(options.owner),
        macs=macs,
        addresses=tuple(options.own_address),
        link=options.link,
        vlan=options.vlan,
    )


def _show_frames(options: argparse.Namespace, judged: Iterator[Judged], story: Story) -> int:
    """Prints the frames that are asked for; where the capture breaks, or the user does, what was read still counts.

    Gives the exit code of an interruption, or 0.
    """
    lines = FrameLines(story, options.output)
    try:
        for found in judged:
            if not options.summary and _is_wanted(options, found):
                lines.show(found)
    except BrokenCaptureError as error:
        story.broken = str(error)
        sys.stderr.write(f"arpguard replay: {options.file} {error}; the frames before that are shown\n")
    except KeyboardInterrupt:
        story.broken = f"interrupted after frame {story.ledger.read:,}"
        lines.end()
        return 130
    lines.end()
    return 0


def _is_wanted(options: argparse.Namespace, found: Judged) -> bool:
    """By default what is about a VIP, and what does not pass."""
    if not (options.all or found.concerned or any(about.verdict is not Verdict.PASS for about in found.decisions)):
        return False
    return any(
        options.vip in (None, about.vip)
        and options.verdict in ("", about.verdict.name.lower())
        and options.reason in ("", about.reason.name.lower())
        for about in found.decisions
    )


def _no_capture(name: str, why: str) -> ConfigError:
    advice = "name a capture from tcpdump, dumpcap or tshark (pcap or pcapng)"
    return ConfigError(name, [Problem("", f"{why}: {advice}")])


@contextmanager
def _opened(name: str) -> Iterator[Callable[[int], bytes]]:
    """A file's bytes, unpacked if it is gzipped."""
    stdin = name == _STDIN
    try:
        raw = open(0 if stdin else name, "rb", buffering=0, closefd=not stdin)  # noqa: SIM115 - closed below
    except OSError as error:
        raise _no_capture(name, error.strerror or str(error)) from error
    with io.BufferedReader(raw, _BUFFER) as file:
        packed = file.peek(2)[:2] == _GZIP
        yield gzip.GzipFile(fileobj=file).read if packed else file.read
