//! `nigh llc status` and `nigh llc layout`: the cache, its classes with their loads, models, and the use of the cache.

use nigh_node::llc::{ClosStatus, FunctionUse, LlcStatus, UseFigure};
use nigh_terms::ByteSize;

use crate::context::Globals;
use crate::error::CliError;
use crate::output;

/// Shows the cache and the models.
pub(super) async fn status(globals: &Globals) -> Result<(), CliError> {
    let status: LlcStatus = globals.admin()?.get("/llc").await?;
    if globals.json {
        return output::json(&status);
    }
    let on = if status.level.on { "on" } else { "off" };
    output::line(format!("cache ways: {on}, {}", status.level.detail))?;
    if let (Some(shape), Some(policy)) = (&status.shape, &status.policy) {
        let devices = shape.shareable.count();
        output::line(format!(
            "{} ways ({devices} shared with devices), {} classes{}, policy {policy}",
            shape.ways,
            shape.classes,
            if status.level.on { "" } else { " assumed" }
        ))?;
    }
    match &status.uses {
        Some(uses) if uses.is_empty() => output::line("no sandbox uses the cache now")?,
        Some(uses) => used(uses)?,
        None if status.level.on => {
            output::line("this machine counts neither occupancy nor bandwidth")?;
        }
        None => {}
    }
    if status.models.is_empty() {
        return output::line("no function has a model; `nigh llc profile` makes one");
    }
    let mut table = output::table(&["namespace", "function", "code", "model", "profiled: bytes -> ways (class)"]);
    for model in &status.models {
        let rows = model.rows.iter().map(|row| format!("{} -> {} ({})", ByteSize(row.bytes), row.ways, row.class));
        table.add_row([
            model.namespace.to_string(),
            model.function.to_string(),
            model.code_sha256.chars().take(8).collect(),
            model.kind.clone(),
            rows.collect::<Vec<_>>().join(", "),
        ]);
    }
    output::print_table(&table)
}

/// Shows what functions use of the cache.
fn used(uses: &[FunctionUse]) -> Result<(), CliError> {
    let mut table =
        output::table(&["namespace", "function", "sandboxes counted", "in cache", "local memory", "all memory"]);
    for used in uses {
        table.add_row([
            used.namespace.to_string(),
            used.function.to_string(),
            format!("{} of {}", used.counted, used.sandboxes),
            figure(used.occupancy_bytes, ""),
            figure(used.local_bytes_per_s, "/s"),
            figure(used.total_bytes_per_s, "/s"),
        ]);
    }
    output::print_table(&table)
}

/// A size, or a word if there is none.
fn figure(figure: UseFigure, per: &str) -> String {
    match figure {
        UseFigure::Figure(bytes) => format!("{}{per}", ByteSize(bytes)),
        UseFigure::Word(word) => word.to_string(),
    }
}

/// Shows the classes over the ways.
pub(super) async fn layout(globals: &Globals) -> Result<(), CliError> {
    let status: LlcStatus = globals.admin()?.get("/llc").await?;
    if globals.json {
        return output::json(&status.classes);
    }
    let Some(shape) = status.shape else {
        return output::line(format!("cache ways are not allocated: {}", status.level.detail));
    };
    if !status.level.on {
        output::line("hypothetical: this machine has no such classes; Nigh would place running invocations like this")?;
    }
    let mut table = output::table(&["class", "for", "ways, the last first", "running", "load"]);
    for class in &status.classes {
        table.add_row([
            class.clos.to_string(),
            format!("{:?}", class.kind).to_lowercase(),
            drawn(class, shape.ways.0),
            class.running.to_string(),
            format!("{:.2}", class.load),
        ]);
    }
    let loads: Vec<_> = status.way_loads.iter().rev().map(|load| format!("{load:.1}")).collect();
    output::print_table(&table)?;
    output::line(format!("load by way, last way first: {}", loads.join(" ")))
}

/// A mask as a row of cells.
fn drawn(class: &ClosStatus, ways: u8) -> String {
    (0..ways).rev().map(|way| if class.mask.holds(way) { '█' } else { '·' }).collect()
}

#[cfg(test)]
mod tests {

    use nigh_llc::ClosKind;
    use nigh_node::llc::NoFigure;
    use nigh_terms::{ClosId, WayMask};

    use super::*;

    #[test]
    fn a_counter_without_a_figure_is_shown_by_its_word() {
        assert_eq!(figure(UseFigure::Figure(2 << 20), "/s"), "2 MiB/s");
        assert_eq!(figure(UseFigure::Word(NoFigure::Unavailable), "/s"), "Unavailable");
    }

    #[test]
    fn a_mask_is_drawn_with_its_lowest_way_last() {
        let class = ClosStatus {
            clos: ClosId(1),
            kind: ClosKind::Sensitive,
            mask: WayMask::from_bits(0b011),
            running: 0,
            load: 0.0,
        };
        assert_eq!(drawn(&class, 4), "··██");
    }
}
