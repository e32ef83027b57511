import json
import unittest
from pathlib import Path

import main

EVENT = json.loads(Path(__file__).with_name("event.json").read_text())


class Handle(unittest.TestCase):
    def test_it_greets_who_is_named(self):
        answer = main.handle(EVENT, None)
        self.assertEqual((answer["statusCode"], json.loads(answer["body"])), (200, {"greeting": "Hello, Ada!"}))

    def test_it_answers_get_alone(self):
        post = {"requestContext": {"http": {"method": "POST", "path": "/"}}}
        self.assertEqual(main.handle(post, None)["statusCode"], 405)


if __name__ == "__main__":
    unittest.main()
