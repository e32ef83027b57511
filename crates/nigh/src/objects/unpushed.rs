//! `nigh objects unpushed`: lists acknowledged writes that the store does not have, and drops one.

use clap::Args;
use nigh_node::unpushed::{self, UnpushedRow};
use nigh_terms::ObjectKey;

use super::{shown, usage};
use crate::context::Globals;
use crate::error::CliError;
use crate::object_address::{ObjectAddress, anywhere};
use crate::output;

/// Options of `nigh objects unpushed`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  nigh objects unpushed                                  all unpushed writes
  nigh objects unpushed nigh://pictures
  nigh objects unpushed nigh://pictures/a.png --drop     drop its last write for good

What waits for a bucket that others removed goes on when the bucket is made again (nigh objects mb).
To keep an object elsewhere, copy it first (nigh objects cp): it is read here until it is dropped.
docs/howto/stores.md says more.")]
pub(crate) struct UnpushedArgs {
    /// BUCKET/PREFIX, or BUCKET/KEY with --drop [default: all buckets]
    #[arg(value_parser = anywhere)]
    address: Option<ObjectAddress>,
    /// List so many at most
    #[arg(long, default_value_t = 1000)]
    limit: usize,
    /// Drop the last write of the object for good, although it was acknowledged
    #[arg(long, requires = "address")]
    drop: bool,
}

fn state(row: &UnpushedRow) -> String {
    if row.damaged {
        "damaged in the journal".to_owned()
    } else if row.homeless {
        "its bucket is gone from the store".to_owned()
    } else if row.failures > 0 {
        format!("failed {} times, will be retried", row.failures)
    } else {
        "waits".to_owned()
    }
}

/// Runs it.
pub(super) async fn run(args: UnpushedArgs, globals: &Globals) -> Result<(), CliError> {
    let admin = globals.admin()?;
    let namespace = globals.namespace().await?;
    let prefix = args.address.as_ref().map_or("", |address| &address.rest);
    let bucket = args.address.as_ref().map(|address| &address.bucket);
    let path = format!("{}&limit={}", unpushed::path(&namespace, bucket, prefix), args.limit);
    let rows: Vec<UnpushedRow> = admin.get(&path).await?;
    if args.drop {
        let address = args.address.ok_or_else(|| usage("name the object: nigh://bucket/key"))?;
        let key = ObjectKey::new(&address.rest).map_err(|error| usage(format!("name the object: {error}")))?;
        // The list is sorted: the key itself comes before longer keys.
        let row = rows.first().filter(|row| row.name.key == key);
        let row = row.ok_or_else(|| {
            usage(format!("{key} has no unpushed write; without --drop, the unpushed writes are listed"))
        })?;
        admin.give(&unpushed::drop_path(&namespace), &row.name).await?;
        return super::done(globals.json, "dropped", &format!("nigh://{}/{key}", address.bucket));
    }
    if globals.json {
        return rows.iter().try_for_each(|row| output::line(serde_json::to_string(row)?));
    }
    let mut table = output::table(&["OBJECT", "MODE", "BYTES", "STATE"]);
    for row in &rows {
        let name = format!("nigh://{}/{}", row.name.bucket, row.name.key);
        let bytes = row.bytes.map_or_else(|| "-".to_owned(), |bytes| bytes.to_string());
        table.add_row([shown(&name).into_owned(), row.mode.to_string(), bytes, state(row)]);
    }
    output::print_table(&table)
}
