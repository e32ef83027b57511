//! `nigh backup` and `nigh restore`.

use std::fs::File;
use std::io::{self, BufReader, IsTerminal as _, Read, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use nigh_engine::{LocalRegistry, StateFile};
use nigh_node::backup::archive::{End, Header};
use nigh_node::backup::reader::{self, Verify};
use nigh_node::backup::restore::{RestoreResult, restore};
use nigh_node::backup::source::{BackupScope, BackupSource};
use nigh_node::client::AdminClient;
use nigh_node::config::StoreKind;
use nigh_node::endpoints::{Endpoints, EndpointsError};
use nigh_node::state_folder::{StateFolder, StatePaths};
use nigh_terms::{ByteSize, Clock as _, SystemClock};
use serde_json::json;

use crate::context::Globals;
use crate::error::CliError;
use crate::output;

/// Standard input or output.
const STREAM: &str = "-";
const BUFFER: usize = 256 * 1024;
/// How often the progress is printed.
const TELL_EVERY: Duration = Duration::from_secs(2);

/// Options of `nigh backup`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  nigh backup node.tar --objects
  nigh backup - --without-keys | ssh other 'cat > node.tar'

The node may run and go on running. FILE is made with mode 0600, since the keys in it open the node; environment
variables of functions are in it too. It is read back before it has its name. Records of invocations and uploads under
way are not in it.")]
pub(crate) struct BackupArgs {
    /// The archive to write; - is standard output
    #[arg(value_name = "FILE|-")]
    file: PathBuf,
    /// Include the objects of the directory store
    #[arg(long)]
    objects: bool,
    /// Leave out the clients' keys, and nigh.toml, which may hold a store's key
    #[arg(long)]
    without_keys: bool,
}

/// Options of `nigh restore`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  nigh restore node.tar --check
  nigh --state /srv/nigh restore node.tar && nigh --state /srv/nigh up

All of FILE is verified before anything that is there is touched; a restore that is cut off has done nothing, or is
ended by the next start. Settings and objects of the state folder stay if FILE has none.")]
pub(crate) struct RestoreArgs {
    /// An archive of `nigh backup`; - is standard input
    #[arg(value_name = "FILE|-")]
    file: PathBuf,
    /// Restore although the state folder is not empty: move what the backup replaces into before-restore-* in it
    #[arg(long)]
    force: bool,
    /// Only verify FILE
    #[arg(long, conflicts_with = "force")]
    check: bool,
}

/// Prints the progress now and then.
struct Progress {
    what: &'static str,
    wanted: bool,
    told: Instant,
}

impl Progress {
    fn new(what: &'static str, globals: &Globals) -> Self {
        Self { what, wanted: !globals.json && io::stderr().is_terminal(), told: Instant::now() }
    }

    fn at(&mut self, bytes: u64) {
        if self.wanted && self.told.elapsed() >= TELL_EVERY {
            self.told = Instant::now();
            output::remark(format_args!("nigh: {}: {}", self.what, ByteSize(bytes)));
        }
    }
}

/// A writer that counts.
struct CountingWriter<'a, W> {
    inner: W,
    bytes: u64,
    progress: &'a mut Progress,
}

impl<W: Write> Write for CountingWriter<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.bytes += written as u64;
        self.progress.at(self.bytes);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Makes a backup of the node's state.
pub(crate) async fn backup(args: BackupArgs, globals: &Globals) -> Result<(), CliError> {
    let scope = BackupScope { keys: !args.without_keys, objects: args.objects };
    let mut progress = Progress::new("written", globals);
    if args.file == Path::new(STREAM) {
        let to = CountingWriter { inner: io::stdout().lock(), bytes: 0, progress: &mut progress };
        return write(scope, globals, to).await.map(drop);
    }
    if args.file.symlink_metadata().is_ok() {
        return Err(CliError::Usage(format!("{} exists already; name another file", args.file.display())));
    }
    let mut partial = args.file.clone().into_os_string();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    let outcome = write_and_verify(scope, globals, &partial, &mut progress).await;
    let (header, end) = outcome.inspect_err(|_| drop(std::fs::remove_file(&partial)))?;
    let failed = || CliError::local(args.file.display().to_string());
    let folder = args.file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::rename(&partial, &args.file).map_err(failed())?;
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed())?;
    told(&header, &end, "Backed up", globals, json!({ "file": args.file }))
}

async fn write_and_verify(
    scope: BackupScope,
    globals: &Globals,
    partial: &Path,
    progress: &mut Progress,
) -> Result<(Header, End), CliError> {
    let failed = || CliError::local(partial.display().to_string());
    let mut options = File::options();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(partial).map_err(failed())?;
    let to = CountingWriter { inner: file, bytes: 0, progress };
    let file = write(scope, globals, to).await?.inner;
    file.sync_all().map_err(failed())?;
    let written = BufReader::with_capacity(BUFFER, File::open(partial).map_err(failed())?);
    Ok(tokio::task::block_in_place(|| reader::read(written, &mut Verify))?)
}

/// Writes the archive: from the running node, or from the state folder of a stopped one.
async fn write<'a, W: Write>(
    scope: BackupScope,
    globals: &Globals,
    mut to: CountingWriter<'a, W>,
) -> Result<CountingWriter<'a, W>, CliError> {
    let configuration = globals.configuration(Vec::new())?;
    let paths = StatePaths::new(&configuration.settings.state);
    match Endpoints::read(&paths) {
        Ok(_) | Err(EndpointsError::Draining(_)) => {
            let path = format!("/backup?keys={}&objects={}", scope.keys, scope.objects);
            let mut pieces = AdminClient::new(&paths.admin_socket()).pieces(&path).await?;
            while let Some(piece) = pieces.next().await? {
                to.write_all(&piece).map_err(CliError::local("writing the backup"))?;
            }
            to.flush().map_err(CliError::local("writing the backup"))?;
            Ok(to)
        }
        Err(EndpointsError::NotRunning(_)) if paths.database().exists() => tokio::task::block_in_place(|| {
            let folder = StateFolder::take(paths.root())?;
            let registry = LocalRegistry::new(StateFile::open(&folder.paths().database())?);
            let source = BackupSource::new(registry, folder.paths().clone(), &configuration.settings, None);
            Ok(source.write(scope, SystemClock::new().wall(), to)?)
        }),
        Err(error) => Err(error.into()),
    }
}

/// Makes the state folder from a backup, or only verifies the backup.
pub(crate) fn run_restore(args: RestoreArgs, globals: &Globals) -> Result<(), CliError> {
    let input: Box<dyn Read> = if args.file == Path::new(STREAM) {
        Box::new(io::stdin().lock())
    } else {
        Box::new(File::open(&args.file).map_err(CliError::local(args.file.display().to_string()))?)
    };
    let input = BufReader::with_capacity(BUFFER, input);
    if args.check {
        let (header, end) = reader::read(input, &mut Verify)?;
        return told(&header, &end, "Whole", globals, json!({}));
    }
    let state = globals.configuration(Vec::new())?.settings.state;
    let mut progress = Progress::new("restored", globals);
    let now = SystemClock::new().wall();
    let done = restore(input, &state, args.force, now, &mut |bytes| progress.at(bytes))?;
    let notes = notes(&done, globals)?;
    for note in &notes {
        output::remark(format_args!("nigh: {note}"));
    }
    let RestoreResult { backup, restored, moved_away, .. } = done;
    told(&backup, &restored, "Restored", globals, json!({ "state": state, "moved_away": moved_away, "notes": notes }))
}

/// Where the present settings do not fit the restored state.
fn notes(done: &RestoreResult, globals: &Globals) -> Result<Vec<String>, CliError> {
    let store = globals.configuration(Vec::new())?.settings.store;
    let objects = done.state.join("objects");
    let mut notes = Vec::new();
    if let Some(away) = &done.moved_away {
        notes.push(format!("the old state is in {}", away.display()));
    }
    if done.backup.objects && (store.kind != StoreKind::Directory || store.path != objects) {
        let now = match store.kind {
            StoreKind::Directory => store.path.display().to_string(),
            _ => "another kind of store".to_owned(),
        };
        notes.push(format!(
            "objects were restored to {}, but the settings store.* name {now}; change these settings",
            objects.display()
        ));
    }
    if !done.backup.keys {
        notes.push("the backup has no keys: the next `nigh up` makes one".to_owned());
    }
    Ok(notes)
}

fn told(
    header: &Header,
    end: &End,
    done: &str,
    globals: &Globals,
    mut more: serde_json::Value,
) -> Result<(), CliError> {
    for damaged in &end.damaged {
        output::remark(format_args!("nigh: not in the backup: {}: {}", damaged.path, damaged.reason));
    }
    if globals.json {
        more["backup"] = serde_json::to_value(header)?;
        more["content"] = serde_json::to_value(end)?;
        return output::json(&more);
    }
    let End { documents, events, executions, code, buckets, objects, bytes, damaged_total, .. } = end;
    let left_out = if *damaged_total > 0 { format!("; {damaged_total} damaged files left out") } else { String::new() };
    output::line(format_args!(
        "{done}: {documents} documents, {events} events, {executions} rows of executions, {code} archives of code, \
         {buckets} buckets, {objects} objects, {} (nigh {}, {}{}){left_out}",
        ByteSize(*bytes),
        header.nigh,
        header.created,
        if header.keys { "" } else { ", without keys" },
    ))
}
