import json
import unittest
from pathlib import Path

import main

EVENT = json.loads(Path(__file__).with_name("event.json").read_text())


class Handle(unittest.TestCase):
    def test_a_text_is_split(self):
        self.assertEqual(main.handle(EVENT, None), ["to", "be", "or", "not", "to", "be"])

    def test_words_are_counted(self):
        self.assertEqual(main.handle({"step": "count", "words": ["to", "be", "to"]}, None), {"be": 1, "to": 2})


if __name__ == "__main__":
    unittest.main()
