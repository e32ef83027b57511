//! `nigh llc export-oci`: the configuration with which other runtimes run in Nigh's classes.

use clap::{Args, ValueEnum};
use nigh_llc::resctrl::{Resctrl, oci};
use serde_json::Value;

use crate::context::Globals;
use crate::error::CliError;
use crate::output;

/// Options of `nigh llc export-oci`.
#[derive(Args)]
#[command(
    after_help = "A class named so is used and never changed or removed by the runtime. Export again after Nigh's\n\
layout has changed."
)]
pub(crate) struct ExportArgs {
    /// The runtime's format
    #[arg(long, value_enum, default_value_t = Format::Oci)]
    format: Format,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// The parts of an OCI `config.json`, one a class (runc, crun, youki)
    Oci,
    /// An `rdt_config_file` of containerd and CRI-O (goresctrl's YAML)
    Goresctrl,
}

/// Exports.
pub(super) fn run(args: &ExportArgs, globals: &Globals) -> Result<(), CliError> {
    let failed = |reason: String| CliError::Failed(format!("there are no classes of service to export: {reason}"));
    let resctrl = Resctrl::open_kernel().map_err(|unavailable| failed(unavailable.to_string()))?;
    let live = resctrl.live().map_err(|error| failed(error.to_string()))?;
    match args.format {
        Format::Oci => {
            let parts: Vec<Value> = live.owned_names().iter().map(oci::intel_rdt).collect();
            if parts.is_empty() {
                return Err(failed("Nigh has made none; start a node with `nigh up`".to_owned()));
            }
            if globals.json {
                return output::json(&parts);
            }
            parts.iter().try_for_each(output::line)
        }
        Format::Goresctrl => {
            let probe = resctrl.probe().map_err(|unavailable| failed(unavailable.to_string()))?;
            let (text, left_out) = oci::goresctrl_classes(&probe, &live);
            if !left_out.is_empty() {
                output::remark(format!("left out because their masks have gaps: {}", left_out.join(", ")));
            }
            output::line(text.trim_end())
        }
    }
}
