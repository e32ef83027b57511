"""wordcount, text_summary and compress: what is said of a text is true, and nothing of it is lost."""

import bz2
import gzip
import json
import lzma
import random

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


class TextSummaryTest(HandlerTest):
    function = "text_summary"

    def test_the_summary_is_sentences_of_the_text_in_their_order(self):
        original = self.read_input("text/kjv-40k.txt")
        answer, output, content_type = self.run_on(original, sentences=5)
        text, kept = " ".join(original.decode().split()), output.decode().split("\n")
        places = [text.index(sentence) for sentence in kept]
        self.assertEqual((answer["kept"], len(kept), content_type), (5, 5, "text/plain; charset=utf-8"))
        self.assertEqual(places, sorted(places))
        self.assertLess(len(output), len(original) / 5)

    def test_what_most_sentences_speak_of_is_kept_and_what_none_else_does_is_not(self):
        theme = ["The whale swam past the northern harbour.", "Every northern whale knows that harbour."]
        text = " ".join(theme * 3 + ["Bread costs money."] + theme * 3)
        _, output, _ = self.run_on(text.encode(), sentences=4)
        self.assertNotIn("Bread", output.decode())
        self.assertEqual(output.decode().count("harbour"), 4)

    def test_a_text_shorter_than_its_summary_is_kept_whole_and_an_empty_one_stays_empty(self):
        short = "Only one sentence, of Zoë."
        self.assertEqual(self.run_on(short.encode())[1].decode(), short)
        for body in (b"", b"1 2 3. ! ?"):
            with self.subTest(body):
                self.assertEqual(self.run_on(body)[0], {"sentences": 0, "kept": 0, "bytes": 0})

    def test_a_number_of_sentences_out_of_bounds_is_an_error(self):
        for sentences in (0, 1001):
            with self.subTest(sentences), self.assertRaises(ValueError):
                self.run_on(b"", sentences=sentences)


class CompressTest(HandlerTest):
    function = "compress"
    EXPAND = {"gzip": gzip.decompress, "bz2": bz2.decompress, "xz": lzma.decompress}  # noqa: RUF012

    def test_each_format_is_smaller_and_gives_the_same_bytes_back(self):
        original = self.read_input("text/kjv-400k.txt")
        for form, expand in self.EXPAND.items():
            with self.subTest(form):
                answer, output, _ = self.run_on(original, format=form, level=9)
                self.assertEqual(expand(output), original)
                self.assertLess(len(output), len(original) / 2.5)
                self.assertEqual(answer, {"format": form, "bytes": len(output), "input_bytes": len(original)})

    def test_an_empty_object_and_noise_come_back_too(self):
        for body in (b"", random.Random(1).randbytes(3_000_000)):
            with self.subTest(bytes=len(body)):
                _, output, content_type = self.run_on(body)
                self.assertEqual((gzip.decompress(output), content_type), (body, "application/gzip"))

    def test_an_unknown_format_and_a_level_out_of_bounds_are_errors(self):
        for arguments in ({"format": "rar"}, {"format": None}, {"level": 0}, {"level": 10}):
            with self.subTest(arguments), self.assertRaises(ValueError):
                self.run_on(b"x", **arguments)
