"""Prints JSON records as a PDF with reportlab: a list of objects in, A4 pages with a header, rows and numbers out."""

import json
from io import BytesIO

import boto3
from reportlab.lib.pagesizes import A4, landscape
from reportlab.pdfgen.canvas import Canvas

PAGE = landscape(A4)
MARGIN_PT, FONT_PT, LEADING_PT = 36, 7, 9
LINES_A_PAGE = int((PAGE[1] - 2 * MARGIN_PT) / LEADING_PT) - 3
# Courier's letters are six tenths of its size wide.
LETTERS_A_LINE = int((PAGE[0] - 2 * MARGIN_PT) / (0.6 * FONT_PT))

s3 = boto3.client("s3")


def lines(records: list[dict]) -> tuple[str, list[str]]:
    """The header and one line for each record, in columns as wide as their widest cell, cut at the page's edge."""
    names = list(dict.fromkeys(name for record in records for name in record))
    table = [[" ".join(str(record.get(name, "")).split()) for name in names] for record in records]
    widths = [max(map(len, column)) for column in zip(names, *table, strict=True)]
    header, *rows = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))[:LETTERS_A_LINE].rstrip()
        for row in (names, *table)
    )
    return header, rows


def typeset(title: str, records: list[dict]) -> tuple[bytes, int]:
    header, rows = lines(records)
    pages = max(1, -(-len(rows) // LINES_A_PAGE))
    pdf = BytesIO()
    # Invariant: no date, so that the same records give the same bytes.
    canvas = Canvas(pdf, pagesize=PAGE, pageCompression=1, invariant=1)
    canvas.setTitle(title)
    for page in range(pages):
        canvas.setFont("Helvetica-Bold", 10)
        canvas.drawString(MARGIN_PT, PAGE[1] - MARGIN_PT, title)
        canvas.drawRightString(PAGE[0] - MARGIN_PT, PAGE[1] - MARGIN_PT, f"{page + 1} / {pages}")
        text = canvas.beginText(MARGIN_PT, PAGE[1] - MARGIN_PT - 2 * LEADING_PT)
        text.setFont("Courier-Bold", FONT_PT, LEADING_PT)
        text.textLine(header)
        text.setFont("Courier", FONT_PT, LEADING_PT)
        text.textLines(rows[page * LINES_A_PAGE : (page + 1) * LINES_A_PAGE], trim=0)
        canvas.drawText(text)
        canvas.showPage()
    canvas.save()
    return pdf.getvalue(), pages


def handler(event, context):
    source, target = event["input"], event["output"]
    title = str(event.get("title", "Report"))

    body = s3.get_object(Bucket=source["bucket"], Key=source["key"])["Body"]
    records = json.loads(body.read())
    if not (isinstance(records, list) and all(isinstance(record, dict) for record in records)):
        raise ValueError("a list of objects was expected, as in [{...}, {...}]")

    pdf, pages = typeset(title, records)
    s3.put_object(Bucket=target["bucket"], Key=target["key"], Body=pdf, ContentType="application/pdf")
    return {"rows": len(records), "pages": pages, "bytes": len(pdf)}
