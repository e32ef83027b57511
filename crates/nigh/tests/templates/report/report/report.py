import os


def handler(event, context):
    return {"stage": os.environ["STAGE"], "to": os.environ["TO"], "kind": event.get("kind")}


def clean(event, context):
    return None
