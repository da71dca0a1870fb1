"""Kubernetes Events, written with best effort: nothing waits for them, and those that cannot be written are counted."""

import asyncio
import logging
import random
from time import time_ns

from arpguard.clock import boot_ns
from arpguard.core.backoff import Backoff
from arpguard.core.reporting import EventBook, Notice, Posting
from arpguard.core.times import micro_time
from arpguard.kube.client import Client
from arpguard.kube.errors import (
    ClusterError,
    ConflictError,
    JsonObject,
    NotFoundError,
    ThrottledError,
    UnavailableError,
)
from arpguard.kube.resources import EVENTS, Request

log = logging.getLogger(__name__)

CONTROLLER = "arpguard.io/agent"
WAITING = 256
ATTEMPTS = 4
RETRY_S = 1.0
MAX_RETRY_S = 10.0
SWEEP_S = 60.0
MAX_NOTE = 1024  # bytes, as events.k8s.io validates; so are the others
MAX_WORD = 128


class EventWriter:
    """Writes posted notices, one after the other, while `run` runs."""

    def __init__(self, client: Client, node: str) -> None:
        self._client = client
        self._instance = f"arpguard-{node}"[:MAX_WORD]
        self._book = EventBook()
        self._queue: asyncio.Queue[Posting] = asyncio.Queue(WAITING)
        self._failing = False
        self.written = 0
        self._dropped = 0

    @property
    def dropped(self) -> int:
        """How many Events were not written: too many, or refused."""
        return self._dropped + self._book.suppressed

    def post(self, notice: Notice) -> None:
        """Queues a notice; returns at once."""
        posting = self._book.say(notice, boot_ns(), time_ns())
        if posting is not None:
            self._enqueue(posting)

    async def run(self) -> None:
        """Writes until it is cancelled."""
        while True:
            try:
                async with asyncio.timeout(SWEEP_S):  # wait_for of Python 3.11 may forget that it was cancelled
                    posting = await self._queue.get()
            except TimeoutError:
                for ended in self._book.take_ended(boot_ns()):
                    self._enqueue(ended)
            else:
                await self._deliver(posting)

    def _enqueue(self, posting: Posting) -> None:
        try:
            self._queue.put_nowait(posting)
        except asyncio.QueueFull:
            self._lose(posting)

    async def _deliver(self, posting: Posting) -> None:
        """Tries a few times, always with the same name, so that the Event is not created twice."""
        backoff = Backoff(RETRY_S, MAX_RETRY_S, random.random)

        for attempt in range(1, ATTEMPTS + 1):
            try:
                await self._send(posting)
            except (UnavailableError, ThrottledError) as error:
                if attempt == ATTEMPTS:
                    self._fail(posting, error)
                    return
                await asyncio.sleep(max(backoff.next_s(), min(error.failure.retry_after_s, MAX_RETRY_S)))
            except ClusterError as error:
                self._fail(posting, error)
                return
            else:
                self.written += 1
                self._failing = False
                return

    async def _send(self, posting: Posting) -> None:
        namespace = posting.notice.subject.namespace or "default"  # events.k8s.io validates it so
        if posting.count > 1:
            series = {"count": posting.count, "lastObservedTime": micro_time(posting.last_wall_ns)}
            request = Request("patch", EVENTS, namespace, posting.name, body={"series": series})
        else:
            request = Request("create", EVENTS, namespace, body=self._event(posting, namespace))
        try:
            await self._client.call(request)
        except ConflictError:
            if posting.count > 1:
                raise
            # It exists: an earlier attempt has arrived after all.

    def _event(self, posting: Posting, namespace: str) -> JsonObject:
        notice, subject = posting.notice, posting.notice.subject
        return {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": posting.name, "namespace": namespace},
            "eventTime": micro_time(posting.first_wall_ns),
            "type": "Warning" if notice.warning else "Normal",
            "reason": notice.reason[:MAX_WORD],
            "action": notice.action[:MAX_WORD],
            "note": notice.note.encode("utf-8", "replace")[:MAX_NOTE].decode("utf-8", "ignore"),
            "regarding": {
                "apiVersion": subject.api_version,
                "kind": subject.kind,
                "namespace": subject.namespace,
                "name": subject.name,
                "uid": subject.uid,
            },
            "reportingController": CONTROLLER,
            "reportingInstance": self._instance,
        }

    def _fail(self, posting: Posting, error: ClusterError) -> None:
        self._lose(posting)
        is_news = not (self._failing or isinstance(error, NotFoundError))  # the server forgets Events after an hour
        if is_news:
            log.warning("cannot write Events; dropping them until a write succeeds: %s", error)
            self._failing = True

    def _lose(self, posting: Posting) -> None:
        self._dropped += 1
        self._book.lost(posting.notice)
