//! Text with a report's figures in it, and tables of a report's rows: both read the JSON that the report is stored as.

use serde::Serialize;
use serde_json::Value;

use super::chart;
use super::table::table_of;

/// Fills `template` with fields of `of`.
///
/// `{field}` and `{outer.inner}` stand for a value as it is, `{field:.2}` for two digits, `{field:%}` and `{field:%.1}` for a
/// share in percent, `{field:+%.1}` with its sign, `{field:K}`, `{field:M.1}` and `{field:G.1}` for thousands, millions and
/// billions. A value that is null is shown as `-`, or as `{field|this}`. Text in `[` and `]` is left out if a value in it is
/// null.
pub(crate) fn fill(template: &str, of: &impl Serialize) -> String {
    let of = serde_json::to_value(of).unwrap_or_default();
    let parts = template.split(['[', ']']).enumerate().map(|(at, part)| (at % 2 == 1, filled(part, &of)));
    parts.filter(|(is_optional, (_, is_known))| *is_known || !is_optional).map(|(_, (text, _))| text).collect()
}

/// The text, and whether all its values are known.
fn filled(part: &str, of: &Value) -> (String, bool) {
    let mut pieces = part.split('{');
    let (mut text, mut is_known) = (pieces.next().unwrap_or_default().to_owned(), true);
    for piece in pieces {
        let (field, rest) = piece.split_once('}').unwrap_or((piece, ""));
        let (field, absent) = field.split_once('|').unwrap_or((field, "-"));
        let (path, form) = field.split_once(':').unwrap_or((field, ""));
        let value = path.split('.').fold(of, |value, name| &value[name]);
        is_known &= !value.is_null();
        text += &if value.is_null() { absent.to_owned() } else { shown(value, form) };
        text += rest;
    }
    (text, is_known)
}

fn shown(value: &Value, form: &str) -> String {
    let number = value.as_f64().filter(|_| !form.is_empty());
    let Some(number) = number else {
        return match value {
            Value::Bool(yes) => if *yes { "yes" } else { "no" }.to_owned(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
    };
    let (kind, digits) = form.split_once('.').unwrap_or((form, "0"));
    let (digits, is_signed) = (digits.parse::<usize>().unwrap_or(0), kind.starts_with('+'));
    let (factor, unit) = match kind.trim_start_matches('+') {
        "%" => (100.0, " %"),
        "K" => (1e-3, ""),
        "M" => (1e-6, ""),
        "G" => (1e-9, ""),
        _ => (1.0, ""),
    };
    let number = number * factor;
    if is_signed { format!("{number:+.digits$}{unit}") } else { format!("{number:.digits$}{unit}") }
}

/// The columns of a table, parted by ` | `: each a head, and behind ` = ` the template of its cells. A head without one names
/// the field that its cells show.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Columns(pub(crate) &'static str);

impl Columns {
    fn parts(self) -> impl Iterator<Item = (&'static str, Option<&'static str>)> {
        let part =
            |column: &'static str| column.split_once(" = ").map_or((column, None), |(head, cell)| (head, Some(cell)));
        self.0.split(" | ").map(part)
    }

    pub(crate) fn cells<R: Serialize>(self, rows: &[R]) -> Vec<Vec<String>> {
        let cell = |row: &R, (head, template): (&str, Option<&str>)| match template {
            Some(template) => fill(template, row),
            None => fill(&format!("{{{head}}}"), row),
        };
        rows.iter().map(|row| self.parts().map(|part| cell(row, part)).collect()).collect()
    }

    /// The table for a terminal.
    pub(crate) fn text<R: Serialize>(self, rows: &[R]) -> String {
        let mut table = table_of(&self.parts().map(|(head, _)| head).collect::<Vec<_>>().join(" | "));
        table.add_rows(self.cells(rows));
        table.to_string()
    }

    /// The table for a page.
    pub(crate) fn html<R: Serialize>(self, rows: &[R]) -> String {
        chart::table(&self.parts().map(|(head, _)| head).collect::<Vec<_>>(), &self.cells(rows))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_shown_as_their_form_says_and_optional_text_needs_all_of_its_values() {
        let of = json!({ "name": "f", "share": 0.456, "bytes": 2_500_000, "none": null, "inner": { "on": true } });
        assert_eq!(fill("{name} {share:.1} {share:%} {share:+%.1}", &of), "f 0.5 46 % +45.6 %");
        assert_eq!(fill("{bytes:M.1} {bytes} {inner.on} {none:.2} {none:.1|never}", &of), "2.5 2500000 yes - never");
        assert_eq!(fill("a[, {none}][; {name}]", &of), "a; f");
    }

    #[test]
    fn a_column_shows_its_template_or_the_field_of_its_name() {
        let columns = Columns("name | share of it = {share:%}");
        let rows = [json!({ "name": "a<b", "share": 0.5 })];
        assert_eq!(columns.cells(&rows), [["a<b", "50 %"]]);
        assert!(columns.text(&rows).contains("share of it"));
        assert!(columns.html(&rows).contains("a&lt;b"));
    }
}
