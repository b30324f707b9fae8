"""Messages of internal topics as Kafka's DumpLogSegments prints them, compared with Kolumn's rows."""

import base64
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from kolumn.readers.plan import STATES
from kolumn.values.internal.messages import MessageBytes, definitions, reader

BROKERS = Path(__file__).parents[1] / "data" / "internal"
"""Internal topics of brokers of other versions: ``<version>/<topic>-0/<segment>.log``, and beside it what the tool prints, as JSON."""
DECODERS = {
    "__consumer_offsets": "--offsets-decoder",
    "__transaction_state": "--transaction-log-decoder",
    "__share_group_state": "--share-group-state-decoder",
    "__remote_log_metadata": "--remote-log-metadata-decoder",
    "__cluster_metadata": "--cluster-metadata-decoder",
}
"""Options of the tool."""
LINE = re.compile(r"\| offset: (\d+) .*?headerKeys: \[\] (?:key: (\{.*?\}) payload: (\{.*\}|<DELETE>)|payload: (\{.*\})|(\w+):? (\{.*\}))$")
REMOTE = re.compile(r"\| offset: (\d+) .*?headerKeys: \[\] payload: (Remote\w+\{.*\})$")
MARKER = re.compile(r"\| offset: (\d+) .*? endTxnMarker: (COMMIT|ABORT) coordinatorEpoch: (-?\d+)$")
PROTOCOL = {"subscription": "ConsumerProtocolSubscription", "assignment": "ConsumerProtocolAssignment"}
DEFAULTS: tuple[Any, ...] = (None, -1, -2, 0, "", [], False, "A" * 22)
"""What the tool leaves out: fields that a version does not have, and tagged fields with their default."""
Printed = tuple[Any, Any, str | None]
"""JSON of a key and of a value, and the type of a control record. A value of `__remote_log_metadata` is text, from its `toString`."""


def printed(lines: Iterable[str]) -> dict[str, dict[int, Printed]]:
    """The messages in the tool's output, by segment and offset."""
    found: dict[str, dict[int, Printed]] = {}
    for line in lines:
        if line.startswith("Dumping "):
            current = found.setdefault(line.removeprefix("Dumping "), {})
        elif match := MARKER.match(line):
            current[int(match[1])] = None, {"coordinatorEpoch": int(match[3])}, match[2]
        elif match := REMOTE.match(line):
            current[int(match[1])] = None, match[2], None
        elif match := LINE.match(line):
            offset, key, value, framed, control, body = match.groups()
            key, value = (None if text in (None, "<DELETE>") else json.loads(text) for text in (key, value or framed or body))
            current[int(offset)] = key, value, control
        else:
            assert not line.startswith("| offset"), line
    return found


def kept(log: Path) -> dict[int, Printed]:
    """What the tool printed of a segment below `BROKERS`."""
    found = json.loads(log.with_suffix(".json").read_text("utf-8"))
    return {offset: (key, value, control) for offset, key, value, control in found}


def topic_of(segment: str) -> str:
    return next((topic for topic in DECODERS if topic in segment), "__cluster_metadata")


def same(own: Any, other: Any, where: str = "") -> Iterator[str]:
    """Places at which a value and the tool's JSON of it differ."""
    if isinstance(own, dict) and isinstance(other, dict):
        for name in own.keys() | other.keys():
            if name not in other:
                if own[name] not in DEFAULTS:
                    yield f"{where}.{name}: {own[name]!r} is not printed"
            elif name in PROTOCOL and isinstance(own.get(name), bytes) and isinstance(other[name], dict):
                source = MessageBytes(own[name])
                message = definitions("clients")[PROTOCOL[name]]
                yield from same(reader(message, min(source.int16(), message.versions[-1]))(source), other[name], f"{where}.{name}")
            else:
                yield from same(own.get(name), other[name], f"{where}.{name}")
    elif isinstance(own, list) and isinstance(other, list) and len(own) == len(other):
        for i, pair in enumerate(zip(own, other, strict=True)):
            yield from same(*pair, f"{where}[{i}]")
    elif (base64.b64encode(own).decode() if isinstance(own, bytes) else own) != other:
        yield f"{where}: {own!r}, not {other!r}"


def remote(type: str, own: dict[str, Any]) -> str:
    """A message of `__remote_log_metadata` as `toString` of Kafka's classes spells it."""

    def place(of: dict[str, Any]) -> str:
        return f"{of['id']}:{of['name']}-{of['partition']}"

    if type == "RemotePartitionDeleteMetadataRecord":
        state = ("MARKED", "STARTED", "FINISHED")[own["remotePartitionDeleteState"]]
        where = f"topicPartition={place(own['topicIdPartition'])}, state=DELETE_PARTITION_{state}"
        return f"RemotePartitionDeleteMetadata{{{where}, eventTimestampMs={own['eventTimestampMs']}, brokerId={own['brokerId']}}}"
    custom, state = own["customMetadata"], STATES[own["remoteLogSegmentState"]]
    spelled = {name: str(value).lower() if isinstance(value, bool) else value for name, value in own.items()}
    if "remoteLogSegmentId" in own:
        where = own["remoteLogSegmentId"]
        spelled["remoteLogSegmentId"] = f"RemoteLogSegmentId{{topicIdPartition={place(where['topicIdPartition'])}, id={where['id']}}}"
    if "segmentLeaderEpochs" in own:
        epochs = sorted({one["leaderEpoch"]: one["offset"] for one in own["segmentLeaderEpochs"]}.items())
        spelled["segmentLeaderEpochs"] = f"{{{', '.join(f'{epoch}={offset}' for epoch, offset in epochs)}}}"
        spelled["txnIdxEmpty"] = spelled["txnIndexEmpty"]
    spelled["customMetadata"] = "Optional.empty" if custom is None else f"Optional[CustomMetadata{{{len(custom)} bytes}}]"
    spelled["state"] = state
    order = ["customMetadata", "state", "eventTimestampMs", "brokerId"]
    if "segmentLeaderEpochs" in own:
        order = ["startOffset", "endOffset", "brokerId", "maxTimestampMs", "eventTimestampMs", "segmentLeaderEpochs", "segmentSizeInBytes"]
        order += ["customMetadata", "state", "txnIdxEmpty"]
    if "segmentId" in own:
        order = [name for name in order if name not in ("brokerId", "eventTimestampMs")]
    order = [name for name in ("segmentId", "remoteLogSegmentId", *order) if name in spelled]
    return f"{type.removesuffix('Record')}{{{', '.join(f'{name}={spelled[name]}' for name in order)}}}"


def differences(row: dict[str, Any], key: Any, value: Any, control: str | None) -> Iterator[str]:
    """Places at which a row and the tool's JSON of its key and value differ."""
    own = row["key"]
    if control is not None:
        assert own["type"] == _spelled(control)
        yield from same(row["value"][row["value"]["type"]], value)
        return
    if key is not None:
        assert own["version"] == int(key["type"])
        yield from same(own[own["type"]], key["data"], "key")
    if value is None:
        assert row["value"] is None
        return
    one = row["value"]
    if isinstance(value, str):
        yield from same(remote(one["type"], one[one["type"]]), value, "value")
        return
    assert one["version"] == int(value["version"])
    if key is None:
        assert _spelled(one["type"]) == value["type"]
    yield from same(one.get(one["type"]) or {}, value["data"], "value")


def _spelled(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper()
