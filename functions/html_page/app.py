"""Renders JSON records as a web page with jinja2: a list of objects in, HTML with a sum for each number column out."""

import json

import boto3
from jinja2 import Environment


def shown(value):
    """Nothing is an empty cell."""
    return "" if value is None else value


# Escaping is on: what the records hold is text, never markup.
PAGE = Environment(autoescape=True, finalize=shown, trim_blocks=True, lstrip_blocks=True).from_string(
    """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{{ title }}</title></head><body>
<h1>{{ title }}</h1>
<p>{{ records | length }} records</p>
<table>
<thead><tr>{% for name in names %}<th>{{ name }}</th>{% endfor %}</tr></thead>
<tbody>
{% for record in records %}
<tr class="{{ loop.cycle('odd', 'even') }}">{% for name in names %}<td>{{ record.get(name) }}</td>{% endfor %}</tr>
{% endfor %}
</tbody>
<tfoot><tr>{% for name in names %}<td>{{ sums.get(name) }}</td>{% endfor %}</tr></tfoot>
</table>
</body></html>
"""
)

s3 = boto3.client("s3")


def handler(event, context):
    source, target = event["input"], event["output"]
    title = str(event.get("title", "Report"))

    body = s3.get_object(Bucket=source["bucket"], Key=source["key"])["Body"]
    records = json.loads(body.read())
    if not (isinstance(records, list) and all(isinstance(record, dict) for record in records)):
        raise ValueError("a list of objects was expected, as in [{...}, {...}]")
    names = list(dict.fromkeys(name for record in records for name in record))
    sums = {}
    for name in names:
        found = [record[name] for record in records if record.get(name) is not None]
        if found and all(type(value) in (int, float) for value in found):
            sums[name] = sum(found)

    page = PAGE.render(title=title, records=records, names=names, sums=sums).encode()
    s3.put_object(Bucket=target["bucket"], Key=target["key"], Body=page, ContentType="text/html; charset=utf-8")
    return {"rows": len(records), "columns": len(names), "bytes": len(page)}
