//! `nigh journal`: lists and verifies a stopped node's journal, and does not change it.

use std::process::ExitCode;

use clap::Subcommand;
use nigh_engine::Change;
use nigh_engine::journal::{
    Damage, DamageKind, InspectedRecord, JournalInspection, RecoveredRecord, TornTail, inspect,
};
use nigh_node::state_folder::{StateFolderError, is_held};
use nigh_terms::ByteSize;
use serde::Serialize;

use crate::context::Globals;
use crate::error::CliError;
use crate::output;
use crate::printable;

/// Subcommands of `nigh journal`.
#[derive(Subcommand)]
#[command(after_help = "\
Examples:
  nigh down && nigh journal ls         writes that are not in the store
  nigh journal verify                  exit code 1 if acknowledged bytes are damaged

The node must be stopped: a running node changes its journal.")]
pub(crate) enum JournalCommand {
    /// List the writes in the journal that are not in the store
    #[command(visible_alias = "list")]
    Ls {
        /// Also list writes that are in the store already, if they are still in the journal
        #[arg(long)]
        all: bool,
        /// List so many at most [default: all]
        #[arg(long)]
        limit: Option<usize>,
    },
    /// Check the whole journal
    Verify,
}

/// A write, as `ls` shows it.
#[derive(Serialize)]
struct RecordRow {
    version: String,
    shard: u16,
    namespace: String,
    bucket: String,
    key: String,
    kind: &'static str,
    bytes: u64,
    stored: bool,
}

/// A damaged place, as `verify` shows it.
#[derive(Serialize)]
struct ShownDamage {
    file: String,
    offset: u64,
    what: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    record: Option<RecordRow>,
}

#[derive(Serialize)]
struct ShownTail {
    file: String,
    offset: u64,
}

/// What `verify` finds.
#[derive(Serialize)]
struct JournalVerification {
    whole: bool,
    epoch: u64,
    segments: usize,
    bytes: u64,
    records: usize,
    not_stored: usize,
    torn: Option<ShownTail>,
    damage: Vec<ShownDamage>,
}

fn listed(record: RecoveredRecord, stored: bool) -> RecordRow {
    let RecoveredRecord { shard, version, record, body_bytes } = record;
    let kind = match record.change {
        Change::Put { .. } => "put",
        Change::Delete { .. } => "delete",
        Change::Amend { .. } => "amend",
        Change::Fence { .. } => "fence",
        Change::Transaction { .. } => "transaction",
    };
    RecordRow {
        version: version.to_string(),
        shard: shard.0,
        namespace: record.namespace.as_str().to_owned(),
        bucket: record.bucket.as_str().to_owned(),
        key: record.key.as_str().to_owned(),
        kind,
        bytes: body_bytes,
        stored,
    }
}

/// Runs it.
pub(crate) fn run(command: &JournalCommand, globals: &Globals) -> Result<ExitCode, CliError> {
    let paths = globals.paths()?;
    if is_held(&paths)? {
        return Err(StateFolderError::Held(paths.root().to_owned()).into());
    }
    let inspected = inspect(&paths.journal())?;
    match command {
        JournalCommand::Ls { all, limit } => list(inspected, *all, limit.unwrap_or(usize::MAX), globals.json),
        JournalCommand::Verify => verify(inspected, globals.json),
    }
}

fn list(inspected: JournalInspection, all: bool, limit: usize, json: bool) -> Result<ExitCode, CliError> {
    let damaged = inspected.damage.len();
    let records: Vec<RecordRow> = inspected
        .records
        .into_iter()
        .filter(|one| all || !one.stored)
        .take(limit)
        .map(|InspectedRecord { record, stored }| listed(record, stored))
        .collect();
    if json {
        output::json(&records)?;
    } else {
        let mut table = output::table(&["VERSION", "KIND", "BYTES", "STORED", "OBJECT"]);
        for one in &records {
            let object = format!("{}/{}/{}", one.namespace, one.bucket, one.key);
            table.add_row([
                one.version.clone(),
                one.kind.to_owned(),
                one.bytes.to_string(),
                if one.stored { "yes" } else { "no" }.to_owned(),
                printable::shown(&std::io::stdout(), &object).into_owned(),
            ]);
        }
        output::print_table(&table)?;
    }
    if damaged > 0 {
        output::remark(format_args!(
            "nigh: the journal is damaged in {damaged} places; `nigh journal verify` lists them"
        ));
    }
    Ok(ExitCode::SUCCESS)
}

fn verify(inspected: JournalInspection, json: bool) -> Result<ExitCode, CliError> {
    let JournalInspection { epoch, records, damage, torn, segments, bytes } = inspected;
    let whole = damage.is_empty();
    let is_hidden = damage.iter().any(|damage| damage.kind.hides_writes());
    let not_stored = records.iter().filter(|one| !one.stored).count();
    if json {
        let shown = |damage: Damage| {
            let what = damage.to_string();
            let record = match damage.kind {
                DamageKind::Record { record, stored } => Some(listed(*record, stored)),
                _ => None,
            };
            ShownDamage { file: damage.file, offset: damage.offset, what, record }
        };
        output::json(&JournalVerification {
            whole,
            epoch: epoch.0,
            segments,
            bytes,
            records: records.len(),
            not_stored,
            torn: torn.map(|TornTail { file, offset }| ShownTail { file, offset }),
            damage: damage.into_iter().map(shown).collect(),
        })?;
    } else {
        for one in &damage {
            output::line(printable::shown(&std::io::stdout(), &one.to_string()))?;
        }
        if is_hidden {
            output::line("some damage names no object: any object may have lost a write")?;
        }
        if let Some(TornTail { file, offset }) = torn {
            let was =
                if is_hidden { "the damage hides whether it was acknowledged" } else { "it was not acknowledged" };
            output::line(format_args!("{file} at {offset}: an incomplete write; {was}"))?;
        }
        let is = if whole { "whole" } else { "damaged" };
        output::line(format_args!(
            "{is}: {} records, {not_stored} of them wait for the store; {segments} segments, {} read",
            records.len(),
            ByteSize(bytes)
        ))?;
    }
    Ok(if whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
