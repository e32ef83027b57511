//! `nigh objects features`: the recorded features of an object.

use clap::Args;
use nigh_learn::FeatureValue;
use nigh_node::features::{self, ShownFeatures};

use super::{shown, usage};
use crate::context::Globals;
use crate::error::CliError;
use crate::object_address::{ObjectAddress, anywhere};
use crate::output;

/// Options of `nigh objects features`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  nigh objects features nigh://pictures/a.png
  nigh objects features nigh://pictures/a.png --look     read its header now, if no features are recorded
  nigh --json objects features nigh://pictures/a.png

They are recorded when an object is stored, out of its header; an invocation that names the object is predicted by them.
docs/design/learning.md says what there is.")]
pub(crate) struct FeaturesArgs {
    /// BUCKET/KEY
    #[arg(value_parser = anywhere)]
    address: ObjectAddress,
    /// Read the object's header now, if no features are recorded
    #[arg(long)]
    look: bool,
}

/// Runs it.
pub(super) async fn run(args: FeaturesArgs, globals: &Globals) -> Result<(), CliError> {
    let key = args.address.key().map_err(usage)?;
    let namespace = globals.namespace().await?;
    let path = features::path(&namespace, &args.address.bucket, &key, args.look);
    let known: ShownFeatures = globals.admin()?.get(&path).await?;
    if globals.json {
        return output::json(&known);
    }
    let name = format!("nigh://{}/{key}", args.address.bucket);
    if known.version.is_none() {
        output::remark(format_args!("no features are recorded of {}", shown(&name)));
        return Ok(());
    }
    let mut table = output::table(&["FEATURE", "VALUE"]);
    for (name, value) in &known.features {
        let value = match value {
            FeatureValue::Number(number) => number.to_string(),
            FeatureValue::Word(word) => shown(word).into_owned(),
        };
        table.add_row([name.clone(), value]);
    }
    output::print_table(&table)
}
