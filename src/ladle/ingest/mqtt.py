"""MQTT: a listener whose messages are acknowledged to the broker when their rows are durable here, and not before.

The session at the broker is persistent, under a client id that the source has for good. So whatever ends in between, a
connection, this process, the machine, the broker sends again what it has no acknowledgement for: each message counts at
least once. Messages that come together are one push.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING

import pyarrow as pa

from ladle.errors import Closed, PipelineError
from ladle.formats.messages import messages_to_table
from ladle.pipeline.spark_reasons import reason_of
from ladle.schema import StreamSchema

if TYPE_CHECKING:
    from paho.mqtt.client import Client as MqttClient
    from paho.mqtt.client import MQTTMessage
    from paho.mqtt.reasoncodes import ReasonCode

_log = logging.getLogger(__name__)

_PORT, _PORT_TLS = 1883, 8883
_GATHER_SECONDS_MAX = 0.05
_QUIET_SECONDS = 0.01
"""A broker that waits for acknowledgements before it sends more is not kept waiting."""
_GATHERED_MAX = 10_000
_WAITING_MAX = 20_000
_LOOK_SECONDS = 0.2
_CONNECT_SECONDS_MAX = 5.0
_ANSWER_SECONDS_MAX = 10.0
_FORGET_SECONDS_MAX = 2.0
_KEEPALIVE_SECONDS = 30


@dataclass(frozen=True)
class _Message:
    topic: str
    payload: bytes
    mid: int
    qos: int


class MqttSource:
    """One connection to a broker. It ends when the connection does, or when rows can't be taken."""

    restarts = 0

    def __init__(
        self,
        stream: str,
        source: str,
        options: Mapping[str, str],
        schema: StreamSchema,
        push: Callable[[pa.Table], None],
    ) -> None:
        self.stream = stream
        self.source = source
        self.state = "running"
        self.error: str | None = None
        self._options = options
        self._schema = schema
        self._push = push
        self._waiting: queue.Queue[_Message] = queue.Queue(_WAITING_MAX)
        self._answered = threading.Event()
        self._ended = threading.Event()
        self._client = _client(options, clean_session=False)
        self._client.on_connect = self._on_connect
        self._client.on_subscribe = self._on_subscribe
        self._client.on_disconnect = self._on_disconnect
        self._client.on_message = self._on_message
        self._worker = threading.Thread(target=self._work, name=f"ladle-mqtt-{stream}-{source}", daemon=True)

    def start(self) -> None:
        """Returns when the broker has taken the subscription."""
        _connect(self._client, self._options, _CONNECT_SECONDS_MAX)
        self._client.loop_start()
        if not self._answered.wait(_ANSWER_SECONDS_MAX):
            self._fail(f"The broker at {_address(self._options)} did not answer in {_ANSWER_SECONDS_MAX:g} s.")
        if self.error is not None:
            self._end_client()
            raise PipelineError(self.error)
        self._worker.start()

    def await_drained(self, seconds: float | None = None) -> None:
        """Wait until it has ended."""
        self._ended.wait(seconds)

    def stop(self) -> None:
        """What was not acknowledged comes again, to whoever listens next under this client id."""
        if self.state == "running":
            self.state = "stopped"
        self._ended.set()
        self._worker.join()
        self._end_client()

    def _end_client(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()

    def _fail(self, reason: str) -> None:
        if not self._ended.is_set():
            self.state, self.error = "failed", reason
            self._ended.set()
        self._answered.set()

    # -- called by the client's thread --

    def _on_connect(
        self, client: MqttClient, userdata: object, flags: object, reason: ReasonCode, properties: object
    ) -> None:
        if reason.is_failure:
            self._fail(f"The broker at {_address(self._options)} refuses the connection: {reason}.")
        else:
            client.subscribe(self._options["topic"], int(self._options.get("qos", "1")))

    def _on_subscribe(
        self, client: MqttClient, userdata: object, mid: int, reasons: Sequence[ReasonCode], properties: object
    ) -> None:
        refused = next((reason for reason in reasons if reason.is_failure), None)
        if refused is not None:
            self._fail(f"The broker refuses the subscription to '{self._options['topic']}': {refused}.")
        self._answered.set()

    def _on_disconnect(
        self, client: MqttClient, userdata: object, flags: object, reason: ReasonCode, properties: object
    ) -> None:
        self._fail(f"The connection to the broker at {_address(self._options)} is lost: {reason}.")

    def _on_message(self, client: MqttClient, userdata: object, message: MQTTMessage) -> None:
        received = _Message(message.topic, bytes(message.payload), message.mid, message.qos)
        while not self._ended.is_set():
            try:
                self._waiting.put(received, timeout=_LOOK_SECONDS)
            except queue.Full:
                continue
            return

    # -- the worker --

    def _work(self) -> None:
        try:
            while not self._ended.is_set():
                gathered = self._gather()
                if gathered and not self._ended.is_set():
                    table = messages_to_table([(each.topic, each.payload) for each in gathered], self._schema)
                    self._push(table)
                    for each in gathered:
                        self._client.ack(each.mid, each.qos)
        except Closed:
            self._ended.set()
        except Exception as error:  # a full inbox, a full disk: what is not acknowledged comes again
            self._fail(reason_of(error))

    def _gather(self) -> list[_Message]:
        try:
            gathered = [self._waiting.get(timeout=_LOOK_SECONDS)]
        except queue.Empty:
            return []
        until = time.monotonic() + _GATHER_SECONDS_MAX
        while len(gathered) < _GATHERED_MAX and (left := until - time.monotonic()) > 0:
            try:
                gathered.append(self._waiting.get(timeout=min(left, _QUIET_SECONDS)))
            except queue.Empty:
                break
        return gathered


def forget_session(options: Mapping[str, str]) -> None:
    """Have the broker drop what it keeps for a source that is gone; if it does not answer, it keeps it."""
    try:
        client = _client(options, clean_session=True)
        done = threading.Event()
        client.on_connect = lambda *_: done.set()
        _connect(client, options, _FORGET_SECONDS_MAX)
        client.loop_start()
        done.wait(_FORGET_SECONDS_MAX)
        client.disconnect()
        client.loop_stop()
    except PipelineError as error:
        _log.warning("the broker at %s keeps a session: %s", _address(options), error.message)


def _client(options: Mapping[str, str], *, clean_session: bool) -> MqttClient:
    paho = _paho()
    client: MqttClient = paho.Client(
        paho.CallbackAPIVersion.VERSION2,
        client_id=options["client_id"],
        clean_session=clean_session,
        protocol=paho.MQTTv311,
        reconnect_on_failure=False,
        manual_ack=True,
    )
    if "username" in options:
        client.username_pw_set(options["username"], options.get("password"))
    if _is_tls(options):
        try:
            client.tls_set(ca_certs=options.get("certificate"))
        except (OSError, ValueError) as error:
            raise PipelineError(f"The certificate '{options.get('certificate')}' can't be read: {error}.") from None
    return client


def _connect(client: MqttClient, options: Mapping[str, str], seconds_max: float) -> None:
    client.connect_timeout = seconds_max
    try:
        client.connect(options["host"], _port(options), keepalive=_KEEPALIVE_SECONDS)
    except (OSError, ValueError) as error:
        raise PipelineError(f"The broker at {_address(options)} does not answer: {error}.") from None


def _paho() -> ModuleType:
    try:
        from paho.mqtt import client
    except ImportError:
        raise PipelineError(
            "Sources of format mqtt need the package paho-mqtt, which is not installed.",
            hint="pip install 'ladle[mqtt]'",
        ) from None
    return client


def _is_tls(options: Mapping[str, str]) -> bool:
    return options.get("tls", "false").lower() == "true" or "certificate" in options


def _port(options: Mapping[str, str]) -> int:
    return int(options.get("port", _PORT_TLS if _is_tls(options) else _PORT))


def _address(options: Mapping[str, str]) -> str:
    return f"{options['host']}:{_port(options)}"
