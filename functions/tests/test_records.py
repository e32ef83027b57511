"""csv_summary, csv_to_json, json_to_csv, html_page and pdf_report: tables in, tables, pages and print out."""

import base64
import csv
import json
import re
import statistics
import zlib
from html.parser import HTMLParser
from io import StringIO

from .support import HandlerTest

ODD_TABLE = 'name,amount\n"Zoë, ""the"" cat",1.5\n"two\nlines",-2\n,NA\n'.encode()


class CsvSummaryTest(HandlerTest):
    function = "csv_summary"

    def test_the_flights_are_summed_up_as_the_statistics_module_says(self):
        original = self.read_input("csv/flights-1000.csv")
        answer, output, content_type = self.run_on(original)
        summary = json.loads(output)
        rows = list(csv.DictReader(StringIO(original.decode())))
        delays = [float(row["dep_delay"]) for row in rows if row["dep_delay"] != "NA"]
        column = summary["columns"]["dep_delay"]
        self.assertEqual(content_type, "application/json")
        self.assertEqual(answer, {"rows": 1000, "columns": 19})
        self.assertEqual((column["numbers"], column["missing"]), (len(delays), 1000 - len(delays)))
        self.assertEqual((column["min"], column["max"]), (min(delays), max(delays)))
        self.assertAlmostEqual(column["mean"], statistics.fmean(delays))
        self.assertAlmostEqual(column["deviation"], statistics.pstdev(delays))
        self.assertEqual(summary["columns"]["origin"]["distinct"], len({row["origin"] for row in rows}))

    def test_quotes_and_line_ends_inside_a_field_and_missing_values_are_understood(self):
        _, output, _ = self.run_on(ODD_TABLE)
        columns = json.loads(output)["columns"]
        self.assertEqual(columns["name"]["top"], [['Zoë, "the" cat', 1], ["two\nlines", 1]])
        self.assertEqual((columns["name"]["missing"], columns["amount"]["missing"]), (1, 1))
        self.assertEqual((columns["amount"]["min"], columns["amount"]["max"]), (-2, 1.5))

    def test_a_column_of_very_many_values_is_not_counted_value_by_value(self):
        _, output, _ = self.run_on(("id\n" + "".join(f"{n}\n" for n in range(10_001))).encode())
        column = json.loads(output)["columns"]["id"]
        self.assertNotIn("distinct", column)
        self.assertEqual((column["numbers"], column["max"]), (10_001, 10_000))

    def test_a_row_too_short_is_an_error_that_names_its_line(self):
        with self.assertRaisesRegex(ValueError, "line 3 has 1 fields, the header 2"):
            self.run_on(b"a,b\n1,2\n3\n")

    def test_an_empty_object_and_two_columns_of_one_name_are_errors(self):
        for body, reason in ((b"", "empty"), (b"a,a\n1,2\n", "one name")):
            with self.subTest(reason), self.assertRaisesRegex(ValueError, reason):
                self.run_on(body)


class CsvToJsonTest(HandlerTest):
    function = "csv_to_json"

    def test_the_flights_become_the_records_they_are(self):
        answer, output, content_type = self.run_on(self.read_input("csv/flights-100.csv"))
        known = json.loads(self.read_input("json/flights-40.json"))
        self.assertEqual(json.loads(output)[:40], known)
        self.assertEqual(answer, {"rows": 100, "columns": 19, "bytes": len(output)})
        self.assertEqual(content_type, "application/json")

    def test_only_what_json_calls_a_number_becomes_one(self):
        _, output, _ = self.run_on(b"a,b,c,d,e\n007,1e3,-0.5,nan,12\n")
        self.assertEqual(json.loads(output), [{"a": "007", "b": 1000.0, "c": -0.5, "d": "nan", "e": 12}])

    def test_quotes_and_line_ends_inside_a_field_are_understood(self):
        _, output, _ = self.run_on(ODD_TABLE)
        self.assertEqual([record["name"] for record in json.loads(output)], ['Zoë, "the" cat', "two\nlines", None])

    def test_what_is_no_table_is_an_error(self):
        odd = ((b"", "empty"), (b"a,b\n1\n", "line 2"), (b"a,a\n1,2\n", "one name"), (b"a\n\xff\n", "utf-8"))
        for body, error in odd:
            with self.subTest(error), self.assertRaisesRegex(ValueError, error):
                self.run_on(body)


class JsonToCsvTest(HandlerTest):
    function = "json_to_csv"

    def test_the_flights_become_the_table_they_came_from(self):
        answer, output, content_type = self.run_on(self.read_input("json/flights-40.json"))
        table = self.read_input("csv/flights-100.csv").decode().splitlines()[:41]
        self.assertEqual(output.decode().splitlines(), [line.replace("NA", "") for line in table])
        self.assertEqual(answer, {"rows": 40, "columns": 19, "bytes": len(output)})
        self.assertEqual(content_type, "text/csv; charset=utf-8")

    def test_objects_inside_become_columns_and_lists_stay_json(self):
        records = [{"a": {"x": 1, "y": {"z": "ü"}}}, {"b": [1, "two"], "c": True, "d": None}]
        _, output, _ = self.run_on(json.dumps(records).encode())
        rows = list(csv.DictReader(StringIO(output.decode())))
        self.assertEqual(list(rows[0]), ["a.x", "a.y.z", "b", "c", "d"])
        self.assertEqual((rows[0]["a.y.z"], rows[1]["b"], rows[1]["c"], rows[1]["d"]), ("ü", '[1, "two"]', "true", ""))

    def test_an_empty_list_is_an_empty_table(self):
        answer, _, _ = self.run_on(b"[]")
        self.assertEqual((answer["rows"], answer["columns"]), (0, 0))

    def test_what_is_no_list_of_objects_is_an_error(self):
        for body in (b"", b"{", b'{"a": 1}', b"[1, 2]"):
            with self.subTest(body), self.assertRaises(ValueError):
                self.run_on(body)


class Cells(HTMLParser):
    """The texts of a page's cells, row by row, and the other tags that stood in them."""

    def __init__(self, page: str):
        super().__init__()
        self.rows: list[list[str]] = []
        self.tags: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_data(self, data):
        if self.rows and self.rows[-1] and data.strip():
            self.rows[-1][-1] += data


class HtmlPageTest(HandlerTest):
    function = "html_page"

    def test_the_page_has_a_row_for_each_flight_and_their_sums(self):
        original = self.read_input("json/flights-400.json")
        answer, output, content_type = self.run_on(original, title="Flights")
        rows, records = Cells(output.decode()).rows, json.loads(original)
        self.assertEqual((len(rows), content_type), (402, "text/html; charset=utf-8"))
        self.assertEqual(rows[0], list(records[0]))
        self.assertEqual(rows[1][9:13], ["UA", "1545", "N14228", "EWR"])
        miles = rows[0].index("distance")
        self.assertEqual(rows[-1][miles], str(sum(record["distance"] for record in records)))
        self.assertEqual(answer, {"rows": 400, "columns": 19, "bytes": len(output)})

    def test_markup_in_a_record_or_the_title_stays_text(self):
        evil = "<script>alert('x')</script>"
        _, output, _ = self.run_on(json.dumps([{"<b>": evil, "n": None}]).encode(), title=evil)
        page = Cells(output.decode())
        self.assertFalse({"script", "b"} & page.tags)
        self.assertEqual(page.rows[:2], [["<b>", "n"], [evil, ""]])

    def test_what_is_no_list_of_objects_is_an_error(self):
        for body in (b"", b'{"a": 1}', b"[[]]"):
            with self.subTest(body), self.assertRaises(ValueError):
                self.run_on(body)


def printed(pdf: bytes) -> str:
    """The operators of all content streams: what is drawn, with its texts in brackets."""
    streams = re.findall(rb"stream\r?\n(.*?)endstream", pdf, re.DOTALL)
    return b"".join(zlib.decompress(base64.a85decode(b"<~" + s.strip(), adobe=True)) for s in streams).decode("latin-1")



class PdfReportTest(HandlerTest):
    function = "pdf_report"

    def test_every_flight_is_printed_on_as_many_pages_as_it_takes(self):
        answer, output, content_type = self.run_on(self.read_input("json/flights-400.json"), title="Flights")
        text = printed(output)
        self.assertEqual((output[:5], content_type), (b"%PDF-", "application/pdf"))
        self.assertEqual(text.count("2013-01-01T"), 400)
        self.assertEqual(len(re.findall(rb"/Type /Page\b", output)), answer["pages"])
        self.assertGreater(answer["pages"], 5)
        self.assertIn("(Flights)", text)
        self.assertEqual((answer["rows"], answer["bytes"]), (400, len(output)))

    def test_the_same_records_give_the_same_bytes(self):
        original = self.read_input("json/flights-40.json")
        self.assertEqual(self.run_on(original)[1], self.run_on(original)[1])

    def test_no_records_and_letters_of_all_languages_are_printed_without_an_error(self):
        for body in (b"[]", json.dumps([{"名": "猫\n(Zoë) \\ 🐈", "x": None}]).encode()):
            with self.subTest(body):
                answer, output, _ = self.run_on(body)
                self.assertEqual((answer["pages"], output[:5]), (1, b"%PDF-"))

    def test_what_is_no_list_of_objects_is_an_error(self):
        for body in (b"", b'{"a": 1}', b"[null]"):
            with self.subTest(body), self.assertRaises(ValueError):
                self.run_on(body)
