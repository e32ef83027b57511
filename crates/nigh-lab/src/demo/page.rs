//! The demonstration as one page: the sentence, the picture, and the table below them. Pure.

use super::report::{DemoReport, comparisons};
use super::sentence::{explanations, sentence};
use super::{picture, table};
use crate::LabError;
use crate::instrument::chart;

pub(super) fn page(report: &DemoReport) -> Result<String, LabError> {
    let all = comparisons(&report.summaries);
    let mut body = chart::figure("Where the time goes", &picture::svg(&all));
    body += &chart::list(explanations(report));
    body += &table::html(&all);
    body += &chart::list(report.conditions());
    Ok(chart::page("Functions directly at their store and through Nigh", &sentence(report), &body, &report.machine))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::report::Side;
    use crate::demo::report::tests::{made_up, report};

    #[test]
    fn a_page_has_the_sentence_one_picture_and_the_table_and_claims_only_what_was_compared() {
        let mut summaries = made_up("a<b", [20.0, 10.0, 20.0], [2.0, 9.0, 1.5], [0.2, 0.3]);
        let both = page(&report(summaries.clone())).unwrap();
        assert_eq!(both.matches("<svg").count(), 1);
        assert!(both.contains("a&lt;b runs 4.0 times as fast") && both.contains("<td>a&lt;b"), "{both}");
        assert!(both.contains("bootstrap of pairs") && !both.contains("no improvement is claimed"));
        summaries.retain(|one| one.side == Side::Nigh);
        (summaries[0].ratio_low, summaries[0].ratio_high) = (None, None);
        assert!(page(&report(summaries)).unwrap().contains("no improvement is claimed"));
    }
}
