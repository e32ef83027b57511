//! Whatever a service exports: no panic, and of two scrapes the window holds what the counts say, never more.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nigh_llc::{ExportedHistogram, HistogramChoice, Percentile};

fuzz_target!(|texts: (&str, &str, &str)| {
    let (choice, earlier, later) = texts;
    let choice = HistogramChoice::parse(choice).unwrap_or_default();
    let Ok(later) = ExportedHistogram::parse(later, &choice) else { return };
    let nothing = later.since(&later).unwrap();
    assert_eq!(nothing.total(), 0);
    assert_eq!(nothing.quantile(Percentile::try_from(99.0).unwrap()), None);
    if let Ok(earlier) = ExportedHistogram::parse(earlier, &choice)
        && let (Ok(_), Ok(back)) = (later.since(&earlier), earlier.since(&later))
    {
        assert_eq!(back.total(), 0, "two scrapes cannot each be later than the other");
    }
});
