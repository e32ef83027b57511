//! `nigh llc status` and `nigh llc layout`: the level, its classes with their loads, and what is known of functions.

use nigh_node::llc::{ClosStatus, LlcStatus};

use crate::context::Globals;
use crate::error::CliError;
use crate::output;

/// Shows the level and the models.
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
    if status.models.is_empty() {
        return output::line("no function has a model; `nigh llc profile` makes one");
    }
    let mut table = output::table(&["namespace", "function", "code", "model", "profiled: bytes -> ways (class)"]);
    for model in &status.models {
        let rows =
            model.rows.iter().map(|row| format!("{} -> {} ({})", nigh_terms::ByteSize(row.bytes), row.ways, row.class));
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

/// Shows the classes over the ways.
pub(super) async fn layout(globals: &Globals) -> Result<(), CliError> {
    let status: LlcStatus = globals.admin()?.get("/llc").await?;
    if globals.json {
        return output::json(&status.classes);
    }
    let Some(shape) = status.shape else {
        return output::line(format!("there is no layout: {}", status.level.detail));
    };
    if !status.level.on {
        output::line("hypothetical: this machine has no such classes; so Nigh would place what runs if it had")?;
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
    output::line(format!("load by way, the last first: {}", loads.join(" ")))
}

/// A mask as a row of cells.
fn drawn(class: &ClosStatus, ways: u8) -> String {
    (0..ways).rev().map(|way| if class.mask.holds(way) { '█' } else { '·' }).collect()
}

#[cfg(test)]
mod tests {
    use nigh_llc::ClosKind;
    use nigh_terms::{ClosId, WayMask};

    use super::*;

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
