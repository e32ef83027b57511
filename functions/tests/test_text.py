"""wordcount: the counts are right."""

import json

from .support import HandlerTest


class WordcountTest(HandlerTest):
    function = "wordcount"

    def test_words_are_counted_whatever_their_case_and_neighbours(self):
        text = "The cat saw the dog.\nDon't -- THE end, it's Zoë's naïve café 42 times_over\n"
        answer, output, content_type = self.run_on(text.encode(), top=1)
        summary = json.loads(output)
        self.assertEqual(content_type, "application/json")
        self.assertEqual(summary["top"], [["the", 3]])
        self.assertEqual(answer, {"lines": 2, "words": 14, "distinct": 12})

    def test_a_known_text_has_its_known_counts(self):
        _, output, _ = self.run_on(self.read_input("text/kjv-4k.txt"))
        top = dict(json.loads(output)["top"])
        text = self.read_input("text/kjv-4k.txt").decode().lower()
        self.assertEqual(top["firmament"], text.count("firmament"))
        self.assertGreater(top["firmament"], 3)

    def test_bytes_that_are_no_text_do_no_harm(self):
        answer, _, _ = self.run_on(b"one \xff\xfe two")
        self.assertEqual(answer["words"], 2)

    def test_an_empty_object_has_no_words(self):
        answer, _, _ = self.run_on(b"")
        self.assertEqual(answer, {"lines": 0, "words": 0, "distinct": 0})
