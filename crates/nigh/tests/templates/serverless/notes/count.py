def handler(event, context):
    return len(event.get("Records", []))


def report(event, context):
    return {"kind": event.get("kind")}
