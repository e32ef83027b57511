//! A report for people, made from its JSON: each list of objects becomes a table, every other value a line. Columns and lines
//! have the names of the JSON fields.

use comfy_table::{Table, presets};
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Serialize, de};

use crate::LabError;
use crate::instrument::chart;
use crate::instrument::error::Tried;
use crate::instrument::report::{print_report, publish};

/// A JSON value whose fields keep their order.
enum Node {
    Leaf(String),
    List(Vec<Self>),
    Fields(Vec<(String, Self)>),
}

/// What a report shows, in its order.
enum Shown {
    Line(String),
    Table { name: String, head: Vec<String>, rows: Vec<Vec<String>> },
}

/// Prints a report as JSON or as text.
pub(crate) fn tell(report: &impl Serialize, json: bool) -> Result<(), LabError> {
    print_report(report, || text_of(report), json)
}

/// Writes the page of a report, if one is wanted, and prints the report.
pub(crate) fn tell_with_page<R: Serialize>(
    report: &R,
    html: Option<&std::path::Path>,
    page: fn(&R) -> Result<String, LabError>,
    json: bool,
) -> Result<(), LabError> {
    publish(report, html, page, |report| text_of(report), json)
}

/// The report as tables and lines for a terminal.
pub(crate) fn text_of(report: &impl Serialize) -> String {
    let part = |shown: &Shown| match shown {
        Shown::Line(line) => line.clone(),
        Shown::Table { name, head, rows } => {
            let mut table = Table::new();
            table.load_style(presets::UTF8_HORIZONTAL_ONLY).set_header(head).add_rows(rows);
            format!("{name}\n{table}")
        }
    };
    shown(report).map_or_else(|error| error.to_string(), |all| all.iter().map(part).collect::<Vec<_>>().join("\n"))
}

/// The same without the machine, as HTML.
pub(crate) fn html_of(report: &impl Serialize) -> Result<String, LabError> {
    let part = |shown: &Shown| match shown {
        Shown::Line(line) => format!("<p>{}</p>", chart::escape(line)),
        Shown::Table { name, head, rows } => {
            let head: Vec<&str> = head.iter().map(String::as_str).collect();
            format!("<h2>{}</h2>{}", chart::escape(name), chart::table(&head, rows))
        }
    };
    let about_machine = |shown: &&Shown| matches!(shown, Shown::Line(line) if line.starts_with("machine: "));
    Ok(shown(report)?.iter().filter(|shown| !about_machine(shown)).map(part).collect())
}

fn shown(report: &impl Serialize) -> Result<Vec<Shown>, LabError> {
    let text = serde_json::to_string(report).at("report")?;
    let Node::Fields(fields) = serde_json::from_str(&text).at("report")? else { return Ok(vec![Shown::Line(text)]) };
    // The machine last: it is the same for every figure.
    let (machine, others): (Vec<_>, Vec<_>) = fields.into_iter().partition(|(name, _)| name == "machine");
    let mut all = Vec::new();
    others.iter().chain(&machine).for_each(|(name, node)| show(name, node, &mut all));
    Ok(all)
}

fn show(name: &str, node: &Node, all: &mut Vec<Shown>) {
    match node {
        Node::List(items) if is_table(node) => {
            let cells: Vec<Vec<(String, String)>> = items.iter().map(|item| flat("", item)).collect();
            let mut head: Vec<String> = Vec::new();
            for (column, _) in cells.iter().flatten() {
                if !head.contains(column) {
                    head.push(column.clone());
                }
            }
            let row = |row: &Vec<(String, String)>| {
                let cell = |column: &String| row.iter().find(|(name, _)| name == column);
                head.iter().map(|column| cell(column).map_or_else(String::new, |(_, text)| text.clone())).collect()
            };
            all.push(Shown::Table { name: name.to_owned(), rows: cells.iter().map(row).collect(), head });
            for (at, item) in items.iter().enumerate() {
                inner_tables(&format!("{name}.{at}"), item, all);
            }
        }
        Node::Fields(fields) if name != "machine" => {
            fields.iter().for_each(|(field, node)| show(&format!("{name}.{field}"), node, all));
        }
        _ => all.push(Shown::Line(format!("{name}: {}", inline(node)))),
    }
}

/// The tables within a row.
fn inner_tables(name: &str, node: &Node, all: &mut Vec<Shown>) {
    let Node::Fields(fields) = node else { return };
    for (field, node) in fields {
        let name = format!("{name}.{field}");
        if is_table(node) {
            show(&name, node, all);
        } else {
            inner_tables(&name, node, all);
        }
    }
}

fn is_table(node: &Node) -> bool {
    matches!(node, Node::List(items) if items.iter().any(|item| matches!(item, Node::Fields(_))))
}

/// The fields of a row, those of inner objects under `outer.inner`.
fn flat(name: &str, node: &Node) -> Vec<(String, String)> {
    match node {
        table if is_table(table) => Vec::new(),
        Node::Fields(fields) => {
            let named = |field: &str| if name.is_empty() { field.to_owned() } else { format!("{name}.{field}") };
            fields.iter().flat_map(|(field, node)| flat(&named(field), node)).collect()
        }
        other => vec![(name.to_owned(), inline(other))],
    }
}

fn inline(node: &Node) -> String {
    match node {
        Node::Leaf(text) => text.clone(),
        // A table in a cell is read in the JSON.
        Node::List(items) if items.iter().any(|item| matches!(item, Node::Fields(_))) => {
            format!("{} rows", items.len())
        }
        Node::List(items) => items.iter().map(inline).collect::<Vec<_>>().join(", "),
        Node::Fields(fields) => {
            let field = |(name, node): &(String, Node)| format!("{name} {}", inline(node));
            fields.iter().map(field).collect::<Vec<_>>().join(", ")
        }
    }
}

/// Three digits or four: what a measurement is worth.
fn short(number: f64) -> String {
    match number.abs() {
        0.0 => "0".to_owned(),
        1000.0.. => format!("{number:.0}"),
        100.0.. => format!("{number:.1}"),
        1.0.. => format!("{number:.2}"),
        0.01.. => format!("{number:.3}"),
        _ => format!("{number:.2e}"),
    }
}

struct AnyNode;

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyNode)
    }
}

impl<'de> Visitor<'de> for AnyNode {
    type Value = Node;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E: de::Error>(self, is: bool) -> Result<Node, E> {
        Ok(Node::Leaf(if is { "yes" } else { "no" }.to_owned()))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Node, E> {
        Ok(Node::Leaf(number.to_string()))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Node, E> {
        Ok(Node::Leaf(number.to_string()))
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Node, E> {
        Ok(Node::Leaf(short(number)))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Node, E> {
        Ok(Node::Leaf(text.to_owned()))
    }

    fn visit_unit<E: de::Error>(self) -> Result<Node, E> {
        Ok(Node::Leaf(String::new()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Node::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Node, A::Error> {
        let mut fields = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            fields.push(entry);
        }
        Ok(Node::Fields(fields))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lists_of_objects_are_tables_and_all_else_are_lines() {
        let report = json!({
            "machine": { "cores": 2 },
            "rows": [{ "name": "a", "times": { "p50": 1.2345 }, "points": [{ "x": 1 }] }, { "name": "b", "times": { "p50": 1234.5 }, "more": true }],
            "summary": { "ratio": 0.5 },
            "violations": ["x < y", "z"],
        });
        let text = text_of(&report);
        for part in [
            "times.p50",
            "1.23",
            "more",
            "yes",
            "summary.ratio: 0.500",
            "violations: x < y, z",
            "rows.0.points",
            "machine: cores 2",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let html = html_of(&report).unwrap();
        assert!(html.contains("x &lt; y") && html.contains("<td>1.23") && !html.contains("cores"), "{html}");
    }
}
