"""The streams of a planner: opened when they are first asked about, and kept until their end or the child's."""

from __future__ import annotations

from typing import Final

from pyspark_tierlog.options.source_options import parse_options
from pyspark_tierlog.plan.frames import FrameWriter
from pyspark_tierlog.plan.plan_answer import PlanAnswer, PlannedTier
from pyspark_tierlog.plan.requests import StreamRequest
from pyspark_tierlog.stream.stream_offsets import from_json, to_json
from pyspark_tierlog.stream.tier_stream import TierStream
from pyspark_tierlog.stream.trigger_limits import trigger_limits
from pyspark_tierlog.table_columns import picked_schema
from tierlog.scan.live.seams import BrokerFacts

_STREAMS: Final[dict[str, TierStream]] = {}


def answer_stream(request: StreamRequest, out: FrameWriter) -> None:
    """Write all frames of an answer but its last one. Raises: as the methods of TierStream."""
    if request.ask == "end":
        if ended := _STREAMS.pop(request.stream, None):
            ended.close()
        return
    options, warning = parse_options(request.options)
    if request.ask in ("seams", "plan"):
        picked_schema(options, request.columns)
    if request.ask == "seams" and options.mode == "local-only":
        out.write_json("O", {"seams": [], "topic_ids": {}})
        return
    stream = _STREAMS.get(request.stream)
    if stream is None:
        options.check_stream()
        read = {(topic, partition): (offset, epoch) for topic, partition, offset, epoch in request.read}
        stream = _STREAMS[request.stream] = TierStream(options, topic_ids=request.topic_ids, read=read)
        if warning is not None:
            out.warn(warning)
    limits = trigger_limits(options)
    if request.ask == "plan":
        brokers = {(each[0], each[1]): BrokerFacts(each[2], each[3], each[4], each[5]) for each in request.brokers}
        record_filter, _ = request.record_filter()
        start, end = from_json(request.start), from_json(request.end)
        scan = stream.plan(start, end, brokers=brokers, record_filter=record_filter)
        PlanAnswer(options, [PlannedTier(stream.tier, scan)], out).write_records(None)
        stream.told(scan.warnings)
        return
    if request.ask == "seams":
        local_starts = None if request.local is None else from_json(request.local)
        seams = stream.live.seams(from_json(request.start), from_json(request.end), local_starts=local_starts)
        by_place = [[*place, *seam] for place, seam in sorted(seams.items())]
        out.write_json("O", {"seams": by_place, "topic_ids": stream.live.topic_ids})
        return
    if request.ask == "read":
        last = [[*place, *at] for place, at in sorted(stream.live.read.items())]
        out.write_json("O", {"topic_ids": stream.live.topic_ids, "read": last})
        return
    if request.ask == "begin":
        offsets = stream.initial_offsets()
    elif request.ask == "ends":
        offsets = stream.tier_ends(is_fresh=request.fresh)
    else:
        final = None if request.final is None else from_json(request.final)
        offsets = stream.next_offsets(from_json(request.start), limits if request.limited else None, final=final)
    told = {"offsets": to_json(offsets), "topic_ids": stream.live.topic_ids, "limits": limits.to_json()}
    out.write_json("O", told)
