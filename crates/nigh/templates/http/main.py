"""The function: it answers HTTP requests (payload format 2.0 of Lambda's function URLs)."""

import json


def handle(event, context):
    request = event["requestContext"]["http"]
    query = event.get("queryStringParameters") or {}
    print(request["method"], request["path"])
    if request["method"] != "GET":
        return answer(405, {"error": "only GET is answered"})
    return answer(200, {"greeting": f"Hello, {query.get('name', 'world')}!"})


def answer(status, body):
    return {"statusCode": status, "headers": {"content-type": "application/json"}, "body": json.dumps(body)}
