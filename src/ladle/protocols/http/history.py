"""The last minutes of what changes all the time, a sample a second, for charts."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable

from ladle.json_values import JsonFields, JsonObject
from ladle.status import Pulse

_log = logging.getLogger(__name__)

_SAMPLES_MAX = 900
_EVERY_SECONDS = 1.0


class History:
    """Remembers a sample a second, for as long as the charts of the console show."""

    def __init__(self, pulse: Callable[[], Pulse], subscribers: Callable[[], int]) -> None:
        self._pulse = pulse
        self._subscribers = subscribers
        self._samples: deque[JsonFields] = deque(maxlen=_SAMPLES_MAX)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to take samples."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        """Stop taking samples."""
        if self._task is not None:
            self._task.cancel()

    def since(self, moment: float) -> list[JsonFields]:
        """The samples after a time, oldest first."""
        return [sample for sample in list(self._samples) if sample["at"] > moment]

    async def _run(self) -> None:
        while True:
            try:
                self._samples.append(sample(await asyncio.to_thread(self._pulse), self._subscribers()))
            except Exception as error:
                # The next second is another chance; a database that is being closed has none.
                _log.debug("no sample: %s", error)
            await asyncio.sleep(_EVERY_SECONDS)


def sample(pulse: Pulse, subscribers: int) -> JsonObject:
    """One sample: the figures of streams and queries, and the tickets of eddies, at this moment."""
    return {
        "at": round(time.time(), 3),
        "epoch": pulse.epoch,
        "queries": pulse.queries,
        "invocations": pulse.invocations,
        "subscribers": subscribers,
        "streams": {
            stream.name: {
                "rows": stream.rows,
                "rows_per_second": round(stream.rows_per_second, 1),
                "pending": stream.pending,
                "quarantined": stream.quarantined,
                "epochs": stream.epochs,
                "bytes": stream.bytes,
                "error": stream.error,
            }
            for stream in pulse.streams
        },
        "tickets": {
            stream: {each.name: round(each.tickets, 4) for each in operators}
            for stream, operators in pulse.operators.items()
        },
    }
