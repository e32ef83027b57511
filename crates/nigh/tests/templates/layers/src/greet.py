import os

from words import GREETINGS


def handler(event, context):
    return {"greeting": GREETINGS[os.environ["LANGUAGE"]], "polite": os.environ["POLITE"]}
