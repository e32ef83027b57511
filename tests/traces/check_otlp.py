#!/usr/bin/env python3
"""Reads OTLP requests in JSON, one a line, by OpenTelemetry's own protobuf definitions, and prints how many spans there are.

Unknown fields, wrong types and wrong enums are errors. Exit status 77: the definitions are not installed.
"""

import base64
import json
import sys

try:
    from google.protobuf import json_format
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
    from opentelemetry.proto.trace.v1.trace_pb2 import Span
except ImportError as absent:
    print(absent, file=sys.stderr)
    sys.exit(77)

# OTLP writes these bytes in hexadecimal, where protobuf's JSON has base64 (OTLP specification, "JSON Protobuf Encoding").
IDS = {"traceId": 16, "spanId": 8, "parentSpanId": 8}


def as_protobuf(value):
    """The value with its ids as protobuf's JSON writes bytes."""
    if isinstance(value, list):
        return [as_protobuf(item) for item in value]
    if not isinstance(value, dict):
        return value
    made = {}
    for name, item in value.items():
        if name in IDS:
            octets = bytes.fromhex(item)
            assert len(octets) == IDS[name] and any(octets) and item == item.lower(), f"{name}: {item!r}"
            item = base64.b64encode(octets).decode()
        made[name] = as_protobuf(item)
    return made


def check(span):
    assert span.name and span.kind != Span.SPAN_KIND_UNSPECIFIED, span
    assert 0 < span.start_time_unix_nano <= span.end_time_unix_nano, span
    names = [attribute.key for attribute in span.attributes]
    assert len(set(names)) == len(names), f"attributes that stand twice: {names}"
    assert all(attribute.value.WhichOneof("value") for attribute in span.attributes), span


def main():
    spans = 0
    for line in sys.stdin:
        request = json_format.ParseDict(as_protobuf(json.loads(line)), ExportTraceServiceRequest())
        for of_resource in request.resource_spans:
            names = {attribute.key for attribute in of_resource.resource.attributes}
            assert {"service.name", "service.version", "service.instance.id"} <= names, names
            for of_scope in of_resource.scope_spans:
                for span in of_scope.spans:
                    check(span)
                    spans += 1
    print(spans)


main()
