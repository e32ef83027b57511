"""The function of both steps of the workflow: each step names itself in its event."""


def split(event):
    return event["text"].split()


def count(event):
    return {word: event["words"].count(word) for word in sorted(set(event["words"]))}


STEPS = {"split": split, "count": count}


def handle(event, context):
    print("step", event["step"])
    return STEPS[event["step"]](event)
