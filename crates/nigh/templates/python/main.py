"""The function: `handle` is called with each event."""


def handle(event, context):
    name = event.get("name", "world")
    print("greeting", name)
    return {"greeting": f"Hello, {name}!"}
