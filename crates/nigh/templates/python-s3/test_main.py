import io
import json
import unittest
from pathlib import Path
from unittest import mock

import main

EVENT = json.loads(Path(__file__).with_name("event.json").read_text())


class Handle(unittest.TestCase):
    def test_it_writes_the_counts_of_each_object(self):
        with mock.patch.object(main, "s3") as s3:
            s3.get_object.return_value = {"Body": io.BytesIO(b"one two\nthree\n")}
            [count] = main.handle(EVENT, None)
        self.assertEqual((count["lines"], count["words"]), (2, 3))
        written = s3.put_object.call_args.kwargs
        self.assertEqual(written["Key"], f"counts-of-{count['key']}.json")
        self.assertFalse(written["Key"].startswith("{{name}}/"), "the trigger would run it for its own results")
        self.assertEqual(json.loads(written["Body"]), count)


if __name__ == "__main__":
    unittest.main()
