"""Checks a day of trades against portfolios and the market (after Apta's FINRA): seven stages.

`fetch_market` and `fetch_portfolios` bring what is to be compared, four checks look at one thing each, and
`margin_balance` puts the findings into the portfolios, under the same key.
"""

import csv
import io
import json

import boto3

s3 = boto3.client("s3")


def read(event, name):
    return s3.get_object(Bucket=event["bucket"], Key=event["read"][name])["Body"].read()


def write(event, name, value):
    body = json.dumps(value).encode()
    s3.put_object(
        Bucket=event["bucket"], Key=event["write"][name], Body=body, ContentType="application/json"
    )
    return len(body)


def fetch_market(event, context):
    quotes = {}
    for quote in json.loads(read(event, "feed")):
        quotes[quote["symbol"]] = {key: quote[key] for key in ("low", "high", "close", "volume")}
    return {"symbols": len(quotes), "bytes": write(event, "market", quotes)}


def fetch_portfolios(event, context):
    trades = []
    for row in csv.DictReader(io.StringIO(read(event, "book").decode())):
        row.update(quantity=int(row["quantity"]), price=float(row["price"]))
        trades.append(row)
    return {"trades": len(trades), "bytes": write(event, "portfolios", trades)}


def check(event, breaks):
    """The numbers of the trades that a rule finds wrong."""
    trades, market = json.loads(read(event, "portfolios")), json.loads(read(event, "market"))
    return {"wrong": [number for number, trade in enumerate(trades) if breaks(trade, market.get(trade["symbol"]))]}


def volume(event, context):
    return check(event, lambda trade, quote: quote is None or not 0 < trade["quantity"] <= quote["volume"])


def trade_date(event, context):
    return check(event, lambda trade, _: trade["settled"] < trade["traded"])


def last_price(event, context):
    return check(event, lambda trade, quote: quote is None or not quote["low"] <= trade["price"] <= quote["high"])


def side(event, context):
    return check(event, lambda trade, _: trade["side"] not in ("buy", "sell"))


def margin_balance(event, context):
    trades, market = json.loads(read(event, "portfolios")), json.loads(read(event, "market"))
    wrong = {number for answer in event["previous"] for number in answer["wrong"]}
    balance = 0.0
    for number, trade in enumerate(trades):
        trade["ok"] = number not in wrong
        if trade["ok"]:
            value = trade["quantity"] * market[trade["symbol"]]["close"]
            balance += value if trade["side"] == "buy" else -value
    write(event, "portfolios", trades)
    return {"wrong": len(wrong), "balance": round(balance, 2)}
