"""Every function can be deployed: its function.toml names what is there. These tests need no S3."""

import ast
import json
import unittest

from .support import FUNCTIONS, INPUTS, NO_INPUTS, skip_unless

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10: pip carries the same reader.
    from pip._vendor import tomli as tomllib


class DescriptionTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.functions = {
            path.parent.name: tomllib.loads(path.read_text()) for path in FUNCTIONS.glob("*/function.toml")
        }

    def test_casy_s_four_and_more_are_described(self):
        self.assertLessEqual({"blur", "effect", "resize", "speech"}, set(self.functions))

    def test_each_of_ofc_s_kinds_has_a_function_and_they_are_nineteen_or_more(self):
        wand = {"blur", "convert", "denoise", "edge", "resize", "rotate", "sepia", "sharpen", "thumbnail"}
        sound_and_video = {"audio_compress", "effect", "resize", "speech", "video_grayscale"}
        text_and_data = {"compress", "csv_summary", "html_page", "json_to_csv", "matrix_product", "pdf_report"}
        kinds = {f"wand_{kind}" for kind in wand} | sound_and_video | text_and_data | {"text_summary", "wordcount"}
        self.assertLessEqual(kinds, set(self.functions))
        self.assertGreaterEqual(len(self.functions), 19)

    def test_each_folder_with_a_handler_is_described_under_its_own_name(self):
        handlers = {path.parent.name for path in FUNCTIONS.glob("*/app.py")}
        self.assertEqual(
            {name: function["name"] for name, function in self.functions.items()}, {n: n for n in handlers}
        )

    def test_the_handler_named_is_defined_and_knows_nothing_of_this_platform(self):
        for name, function in self.functions.items():
            with self.subTest(name):
                module, entry = function["handler"].split(".")
                source = (FUNCTIONS / name / f"{module}.py").read_text()
                defined = {node.name for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)}
                self.assertIn(entry, defined)
                self.assertNotIn("nigh", source.lower())

    def test_the_demo_s_inputs_are_of_the_function_s_kind(self):
        for name, function in self.functions.items():
            for path in function["demo"]["inputs"]:
                with self.subTest(name, path=path):
                    self.assertEqual(path.split("/")[0], function["input"]["kind"])
                    self.assertTrue(path.endswith(tuple(function["input"]["suffixes"])))

    def test_the_demo_s_mixture_is_seven_functions_on_three_inputs_each(self):
        mixture = {name: len(function["demo"]["inputs"]) for name, function in self.functions.items()}
        names = ("blur", "effect", "resize", "sepia", "speech", "thumbnail", "wordcount")
        self.assertEqual({name: count for name, count in mixture.items() if count}, dict.fromkeys(names, 3))

    @skip_unless((INPUTS / "MANIFEST.json").exists(), "test_each_function_has_inputs_over_three_orders_of_magnitude", NO_INPUTS)
    def test_each_function_has_inputs_over_three_orders_of_magnitude(self):
        entries = json.loads((INPUTS / "MANIFEST.json").read_text())["inputs"]
        for name, function in self.functions.items():
            kind, suffixes = function["input"]["kind"], function["input"]["suffixes"]
            with self.subTest(name):
                sizes = [e["bytes"] for e in entries if e["kind"] == kind and e["path"].endswith(suffixes[0])]
                self.assertGreaterEqual(max(sizes), 1000 * min(sizes))

    @skip_unless((INPUTS / "MANIFEST.json").exists(), "test_the_demo_s_inputs_are_made_and_named_in_their_order_of_size", NO_INPUTS)
    def test_the_demo_s_inputs_are_made_and_named_in_their_order_of_size(self):
        entries = json.loads((INPUTS / "MANIFEST.json").read_text())["inputs"]
        sizes = {entry["path"]: entry["bytes"] for entry in entries}
        for name, function in self.functions.items():
            with self.subTest(name):
                named = [sizes[path] for path in function["demo"]["inputs"]]
                self.assertEqual(named, sorted(named))


if __name__ == "__main__":
    unittest.main()
