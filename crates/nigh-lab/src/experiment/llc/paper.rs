//! What CASY (CCGrid 2022) prints: its table III, the figures of its text, and the names of its table IV.

/// The four functions, by the names of `functions/`, in table III's order.
pub(super) const FUNCTIONS: [&str; 4] = ["effect", "blur", "speech", "resize"];

/// Table III: the recordings of its sizes, with the ways found.
pub(super) const TABLE_3: [(&str, u8); 16] = [
    ("effect-26m", 1),
    ("effect-51m", 1),
    ("effect-76m", 1),
    ("effect-100m", 1),
    ("blur-124k", 1),
    ("blur-361k", 1),
    ("blur-699k", 4),
    ("blur-1.4m", 7),
    ("speech-40m", 10),
    ("speech-79m", 11),
    ("speech-118m", 11),
    ("speech-157m", 11),
    ("resize-31m", 1),
    ("resize-61m", 1),
    ("resize-92m", 1),
    ("resize-127m", 1),
];

/// Figure 1 as section III's text has it: time together over time alone. It prints no number for the two others ("less
/// impacted").
pub(super) const CONTENTION: [(&str, Option<f64>); 4] =
    [("effect", None), ("blur", Some(1.37)), ("speech", Some(1.16)), ("resize", None)];

/// Section VI-C: the largest gain over no partitioning that its text names, by how many functions run.
pub(super) const GAINS: [(usize, &str); 3] =
    [(6, "blur 11 %"), (10, "blur 7 %, speech 5 %"), (20, "\"little improvements\" of blur and speech")];

/// Section VI-B: "Blur and Speech Recognition are CS and Effect and Resize are CI".
pub(super) fn class_of(function: &str) -> Option<&'static str> {
    match function {
        "blur" | "speech" => Some("sensitive"),
        "effect" | "resize" => Some("insensitive"),
        _ => None,
    }
}

pub(super) fn ways_of(recording: &str) -> Option<u8> {
    TABLE_3.iter().find(|(name, _)| *name == recording).map(|(_, ways)| *ways)
}
