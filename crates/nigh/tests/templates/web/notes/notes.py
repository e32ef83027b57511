import json


def handler(event, context):
    http = event.get("requestContext", {}).get("http", {})
    return {"statusCode": 200, "body": json.dumps([http.get("method"), http.get("path")])}
