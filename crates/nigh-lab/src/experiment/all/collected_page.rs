//! All stored results as one page.

use super::collected::{CollectedResults, FigureTable, StoredResult};
use crate::instrument::chart::{escape, table};

pub(super) fn page(collected: &CollectedResults) -> String {
    let link = |result: &StoredResult| {
        let (name, about) = (escape(&result.name), escape(&result.about));
        format!("<tr><td><a href='#{name}'>{name}</a><td>{about}<td>{}", escape(&result.date))
    };
    let contents = collected.results.iter().map(link).collect::<String>();
    let faults = if collected.faults.is_empty() {
        String::new()
    } else {
        let lines = collected.faults.iter().map(|fault| format!("<li>{}", escape(fault))).collect::<String>();
        format!("<h2>Missing or broken</h2><ul class=faults>{lines}</ul>")
    };
    let sections = collected.results.iter().map(section).collect::<String>();
    format!(
        "<!doctype html><html lang=en><meta charset=utf-8><title>Nigh: measured figures</title>\
         <meta name=viewport content='width=device-width'>\
         <style>body{{font:15px/1.5 system-ui,sans-serif;max-width:1100px;margin:2em auto;padding:0 1em;color:#222}}\
         table{{border-collapse:collapse;width:100%;margin:1em 0;font-size:13px}}\
         td,th{{padding:.2em .5em;text-align:right;border-bottom:1px solid #ddd}}\
         td:first-child,th:first-child,.contents td{{text-align:left}}section{{margin-top:4em}}\
         figure{{margin:2em 0}}figcaption{{font-weight:600}}svg{{max-width:100%;height:auto}}\
         .faults{{color:#a00}}details{{overflow-x:auto}}</style>\
         <h1>Measured figures</h1><p>Each with the command that prints it and the machine it was taken on. Machines differ \
         and are noisy: the figures to read are the ratios, taken in one run.</p>\
         <table class=contents>{contents}</table>{faults}{sections}</html>"
    )
}

fn section(result: &StoredResult) -> String {
    let figure =
        |(name, text): &(String, String)| format!("<tr><td>{}<td>{}", escape(&name.replace('_', " ")), escape(text));
    let figures = result.figures.iter().map(figure).collect::<String>();
    let figures = if figures.is_empty() { figures } else { format!("<table>{figures}</table>") };
    let charts = result.charts.concat();
    let tables = result.tables.iter().map(|table| whole_table(table, result.charts.is_empty())).collect::<String>();
    format!(
        "<section id='{name}'><h2>{name}</h2><p>{}</p><p><code>{}</code><br>{}, {}</p>{charts}{figures}{tables}</section>",
        escape(&result.about),
        escape(&result.command),
        escape(&result.machine),
        escape(&result.date),
        name = escape(&result.name),
    )
}

/// A table that is open where there is no chart.
fn whole_table(figures: &FigureTable, open: bool) -> String {
    let head: Vec<&str> = figures.head.iter().map(String::as_str).collect();
    let more =
        if figures.more > 0 { format!("<p>{} more rows are in the result.</p>", figures.more) } else { String::new() };
    format!(
        "<details{}><summary>{}</summary>{}{more}</details>",
        if open { " open" } else { "" },
        escape(&figures.name),
        table(&head, &figures.rows),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(name: &str, charts: Vec<String>) -> StoredResult {
        StoredResult {
            name: name.to_owned(),
            about: "a<b".to_owned(),
            machine: "2 x X".to_owned(),
            date: "today".to_owned(),
            command: "nigh x --json".to_owned(),
            figures: vec![("share_of_all".to_owned(), "0.5".to_owned())],
            tables: vec![FigureTable {
                name: "rows".to_owned(),
                head: vec!["what".to_owned()],
                rows: vec![vec!["<i>".to_owned()]],
                more: 7,
            }],
            charts,
        }
    }

    #[test]
    fn every_result_has_its_command_machine_date_charts_and_figures_and_faults_are_named() {
        let chart = "<figure><svg></svg></figure>".to_owned();
        let results = vec![result("with", vec![chart.clone()]), result("without", Vec::new())];
        let page = page(&CollectedResults { results, faults: vec!["x/result.json: no JSON".to_owned()] });
        for part in ["nigh x --json", "2 x X", "today", &chart, "share of all", "a&lt;b", "&lt;i&gt;", "7 more rows"] {
            assert!(page.contains(part), "{part}");
        }
        assert!(page.contains("x/result.json: no JSON"));
        assert_eq!(page.matches("<details open>").count(), 1, "figures are shown at once where no chart is");
    }
}
