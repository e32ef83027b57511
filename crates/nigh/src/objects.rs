//! `nigh objects`: buckets and objects through the S3 door, streamed in bounded memory.

mod features;
mod policy;
mod unpushed;

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use nigh_node::client::{ObjectEntry, S3Client};
use nigh_terms::{BucketName, ByteSize, ObjectKey};
use serde_json::json;

use crate::context::Globals;
use crate::error::CliError;
use crate::object_address::{ObjectAddress, Place, local_name};
use crate::output;
use crate::printable;

/// Subcommands of `nigh objects`.
#[derive(Subcommand)]
#[command(after_help = "\
Examples:
  nigh objects mb nigh://pictures
  nigh objects cp -r ./pictures nigh://pictures/2026/
  nigh objects ls nigh://pictures/2026/
  nigh objects cp nigh://pictures/cat.png -            print an object
  nigh objects rm -r nigh://pictures/2026/
  nigh objects rb nigh://pictures                      remove the bucket, which must be empty

With --json each command prints one JSON object a line.")]
pub(crate) enum ObjectsCommand {
    /// List buckets, or the objects of one
    Ls {
        /// nigh://bucket/prefix [default: all buckets]
        address: Option<ObjectAddress>,
        /// Also list the content of folders
        #[arg(short, long)]
        recursive: bool,
    },
    /// Copy between files and objects; - is standard input or output
    Cp {
        /// A file, a folder, or nigh://bucket/key
        from: Place,
        /// A file, a folder, or nigh://bucket/key
        to: Place,
        /// Copy whole folders
        #[arg(short, long)]
        recursive: bool,
        /// The content type to store [default: none; browsers guess]
        #[arg(long)]
        content_type: Option<String>,
    },
    /// Remove an object; with -r all objects whose keys begin with the address's
    Rm {
        /// nigh://bucket/key
        address: ObjectAddress,
        /// Remove all objects whose keys begin with the address
        #[arg(short, long)]
        recursive: bool,
    },
    /// Make a bucket
    Mb {
        /// nigh://bucket
        address: ObjectAddress,
    },
    /// Remove an empty bucket
    Rb {
        /// nigh://bucket
        address: ObjectAddress,
    },
    /// Show or change the write modes of a bucket
    Policy(policy::PolicyArgs),
    /// Show the recorded features of an object
    Features(features::FeaturesArgs),
    /// List acknowledged writes that are not in the store yet, or drop one
    Unpushed(unpushed::UnpushedArgs),
}

/// Runs it.
pub(crate) async fn run(command: ObjectsCommand, globals: &Globals) -> Result<(), CliError> {
    let s3 = async || globals.s3().await;
    match command {
        ObjectsCommand::Ls { address: None, .. } => buckets(&s3().await?, globals.json).await,
        ObjectsCommand::Ls { address: Some(address), recursive } => {
            list(&s3().await?, &address, recursive, globals.json).await
        }
        ObjectsCommand::Cp { from, to, recursive, content_type } => {
            let s3 = s3().await?;
            let copier = Copier { s3: &s3, content_type: content_type.as_deref(), json: globals.json };
            copier.copy(from, to, recursive).await
        }
        ObjectsCommand::Rm { address, recursive } => remove(&s3().await?, &address, recursive, globals.json).await,
        ObjectsCommand::Mb { address } => {
            let bucket = bucket_only(&address)?;
            s3().await?.create_bucket(bucket).await?;
            done(globals.json, "made", &format!("nigh://{bucket}"))
        }
        ObjectsCommand::Rb { address } => {
            let bucket = bucket_only(&address)?;
            s3().await?.delete_bucket(bucket).await?;
            done(globals.json, "removed", &format!("nigh://{bucket}"))
        }
        ObjectsCommand::Policy(args) => policy::run(args, globals).await,
        ObjectsCommand::Features(args) => features::run(args, globals).await,
        ObjectsCommand::Unpushed(args) => unpushed::run(args, globals).await,
    }
}

fn usage(why: impl Into<String>) -> CliError {
    CliError::Usage(why.into())
}

/// A key or a path for standard output.
fn shown(name: &str) -> Cow<'_, str> {
    printable::shown(&std::io::stdout(), name)
}

fn done(json: bool, what: &str, name: &str) -> Result<(), CliError> {
    if json { output::line(json!({ what: name })) } else { output::line(format_args!("{what} {}", shown(name))) }
}

fn bucket_only(address: &ObjectAddress) -> Result<&BucketName, CliError> {
    if address.rest.is_empty() { Ok(&address.bucket) } else { Err(usage("name a bucket alone: nigh://bucket")) }
}

async fn buckets(s3: &S3Client, json: bool) -> Result<(), CliError> {
    let buckets = s3.list_buckets().await?;
    if json {
        return buckets.iter().try_for_each(|bucket| output::line(serde_json::to_string(bucket)?));
    }
    let mut table = output::table(&["BUCKET", "MADE"]);
    for bucket in buckets {
        table.add_row([bucket.name, bucket.created]);
    }
    output::print_table(&table)
}

/// Prints page by page: a bucket may hold millions of objects.
async fn list(s3: &S3Client, address: &ObjectAddress, recursive: bool, json: bool) -> Result<(), CliError> {
    let delimiter = (!recursive).then_some("/");
    let mut next = None;
    loop {
        let page = s3.list(&address.bucket, &address.rest, delimiter, next.as_deref()).await?;
        for prefix in &page.common_prefixes {
            if json {
                output::line(json!({ "prefix": prefix }))?;
            } else {
                output::line(format_args!("{:>12}  {:24}  {}", "", "", shown(prefix)))?;
            }
        }
        for object in &page.objects {
            if json {
                output::line(serde_json::to_string(object)?)?;
            } else {
                output::line(format_args!(
                    "{:>12}  {:24}  {}",
                    ByteSize(object.size).to_string(),
                    object.modified,
                    shown(&object.key)
                ))?;
            }
        }
        next = page.next;
        if next.is_none() {
            return Ok(());
        }
    }
}

/// Calls `each` with every object whose key begins with `prefix`.
async fn for_each(
    s3: &S3Client,
    bucket: &BucketName,
    prefix: &str,
    mut each: impl AsyncFnMut(&ObjectEntry) -> Result<(), CliError>,
) -> Result<usize, CliError> {
    let (mut next, mut count) = (None, 0);
    loop {
        let page = s3.list(bucket, prefix, None, next.as_deref()).await?;
        for object in &page.objects {
            each(object).await?;
            count += 1;
        }
        next = page.next;
        if next.is_none() {
            return Ok(count);
        }
    }
}

fn key_of(object: &ObjectEntry) -> Result<ObjectKey, CliError> {
    ObjectKey::new(&object.key).map_err(|error| usage(error.to_string()))
}

async fn remove(s3: &S3Client, address: &ObjectAddress, recursive: bool, json: bool) -> Result<(), CliError> {
    let bucket = &address.bucket;
    if !recursive {
        let key = address.key().map_err(|why| usage(format!("{why}; -r removes all objects below it")))?;
        let was_there = s3.exists(bucket, &key).await?;
        s3.delete(bucket, &key).await?;
        let name = format!("nigh://{bucket}/{key}");
        let what = match (was_there, json) {
            (true, _) => "removed",
            (false, true) => "missing",
            (false, false) => "there was no",
        };
        return done(json, what, &name);
    }
    let count = for_each(s3, bucket, &address.rest, async |object| {
        s3.delete(bucket, &key_of(object)?).await?;
        done(json, "removed", &format!("nigh://{bucket}/{}", object.key))
    });
    if count.await? == 0 && !json {
        output::remark(format_args!("no key begins with nigh://{bucket}/{}", address.rest));
    }
    Ok(())
}

struct Copier<'a> {
    s3: &'a S3Client,
    content_type: Option<&'a str>,
    json: bool,
}

impl Copier<'_> {
    async fn copy(&self, from: Place, to: Place, recursive: bool) -> Result<(), CliError> {
        match (from, to) {
            (Place::Local(_), Place::Local(_)) => {
                Err(usage("one side must be an object: nigh://bucket/key; use cp for files"))
            }
            (Place::Local(from), Place::Remote(to)) if recursive => self.upload_folder(&from, &to).await,
            (Place::Local(from), Place::Remote(to)) => {
                let key = match (to.is_folder(), from.file_name().and_then(|name| name.to_str())) {
                    (true, Some(name)) if from != Path::new("-") => to.below(name),
                    _ => to.key(),
                };
                self.upload(&from, &to.bucket, &key.map_err(usage)?).await
            }
            (Place::Remote(from), Place::Local(to)) if recursive => self.download_folder(&from, &to).await,
            (Place::Remote(from), Place::Local(to)) => {
                let key = from.key().map_err(|why| usage(format!("{why}; -r copies whole folders")))?;
                let target = if to.is_dir() { to.join(local_name(last_part(&key)).map_err(usage)?) } else { to };
                self.download(&from.bucket, &key, &target).await
            }
            (Place::Remote(from), Place::Remote(to)) => self.copy_remote(&from, &to, recursive).await,
        }
    }

    async fn upload(&self, from: &Path, bucket: &BucketName, key: &ObjectKey) -> Result<(), CliError> {
        let opened;
        let length;
        if from == Path::new("-") {
            // The door needs the length first; an unnamed file holds the bytes meanwhile.
            let spooled = tokio::task::spawn_blocking(spool_stdin);
            let (file, size) =
                spooled.await.map_err(|error| usage(error.to_string()))?.map_err(CliError::local("standard input"))?;
            (opened, length) = (tokio::fs::File::from_std(file), size);
        } else {
            let failed = || CliError::local(from.display());
            let file = tokio::fs::File::open(from).await.map_err(failed())?;
            let metadata = file.metadata().await.map_err(failed())?;
            if metadata.is_dir() {
                return Err(usage(format!("{} is a folder; copy it with -r", from.display())));
            }
            (opened, length) = (file, metadata.len());
        }
        self.s3.put(bucket, key, length, self.content_type, opened).await?;
        self.copied(&from.display().to_string(), &format!("nigh://{bucket}/{key}"), length)
    }

    async fn download(&self, bucket: &BucketName, key: &ObjectKey, to: &Path) -> Result<(), CliError> {
        if to == Path::new("-") {
            let mut out = tokio::io::stdout();
            self.s3.get(bucket, key, &mut out).await?;
            return Ok(());
        }
        // Written beside the file and renamed: an interrupted copy leaves the old file.
        let mut name = to.as_os_str().to_owned();
        name.push(".part");
        let part = PathBuf::from(name);
        let mut file = tokio::fs::File::create(&part).await.map_err(CliError::local(part.display()))?;
        match self.s3.get(bucket, key, &mut file).await {
            Ok(length) => {
                tokio::fs::rename(&part, to).await.map_err(CliError::local(to.display()))?;
                self.copied(&format!("nigh://{bucket}/{key}"), &to.display().to_string(), length)
            }
            Err(error) => {
                // The first error is the one to report.
                let _ = tokio::fs::remove_file(&part).await;
                Err(error.into())
            }
        }
    }

    async fn upload_folder(&self, from: &Path, to: &ObjectAddress) -> Result<(), CliError> {
        let mut folders = vec![from.to_owned()];
        while let Some(folder) = folders.pop() {
            let failed = || CliError::local(folder.display());
            let mut entries = tokio::fs::read_dir(&folder).await.map_err(failed())?;
            while let Some(entry) = entries.next_entry().await.map_err(failed())? {
                let path = entry.path();
                let kind = entry.file_type().await.map_err(failed())?;
                if kind.is_dir() {
                    folders.push(path);
                } else if path.is_file() {
                    let inside = path.strip_prefix(from).unwrap_or(&path);
                    let name =
                        inside.to_str().ok_or_else(|| usage(format!("{}: the name is not UTF-8", path.display())))?;
                    self.upload(&path, &to.bucket, &to.below(name).map_err(usage)?).await?;
                }
            }
        }
        Ok(())
    }

    async fn download_folder(&self, from: &ObjectAddress, to: &Path) -> Result<(), CliError> {
        let folder = from.rest.rsplit_once('/').map_or(0, |(folder, _)| folder.len() + 1);
        let count = for_each(self.s3, &from.bucket, &from.rest, async |object| {
            let key = key_of(object)?;
            if object.key.ends_with('/') {
                // Other tools store such an object to mark a folder.
                return Ok(());
            }
            let target = to.join(local_name(&object.key[folder..]).map_err(usage)?);
            if let Some(parent) = target.parent() {
                tokio::fs::create_dir_all(parent).await.map_err(CliError::local(parent.display()))?;
            }
            self.download(&from.bucket, &key, &target).await
        });
        if count.await? == 0 {
            return Err(usage(format!("no key begins with nigh://{}/{}", from.bucket, from.rest)));
        }
        Ok(())
    }

    async fn copy_remote(&self, from: &ObjectAddress, to: &ObjectAddress, recursive: bool) -> Result<(), CliError> {
        if !recursive {
            let key = from.key().map_err(usage)?;
            let target = if to.is_folder() { to.below(last_part(&key)) } else { to.key() }.map_err(usage)?;
            self.s3.copy((&from.bucket, &key), (&to.bucket, &target)).await?;
            return self.copied_remote(&from.bucket, &key, &to.bucket, &target);
        }
        let folder = from.rest.rsplit_once('/').map_or(0, |(folder, _)| folder.len() + 1);
        for_each(self.s3, &from.bucket, &from.rest, async |object| {
            let (key, target) = (key_of(object)?, to.below(&object.key[folder..]).map_err(usage)?);
            self.s3.copy((&from.bucket, &key), (&to.bucket, &target)).await?;
            self.copied_remote(&from.bucket, &key, &to.bucket, &target)
        })
        .await
        .map(drop)
    }

    fn copied_remote(
        &self,
        from: &BucketName,
        key: &ObjectKey,
        to: &BucketName,
        target: &ObjectKey,
    ) -> Result<(), CliError> {
        let (from, to) = (format!("nigh://{from}/{key}"), format!("nigh://{to}/{target}"));
        if self.json {
            return output::line(json!({ "from": from, "to": to }));
        }
        output::line(format_args!("{} -> {}", shown(&from), shown(&to)))
    }

    fn copied(&self, from: &str, to: &str, bytes: u64) -> Result<(), CliError> {
        if self.json {
            return output::line(json!({ "from": from, "to": to, "bytes": bytes }));
        }
        output::line(format_args!("{} -> {}  {}", shown(from), shown(to), ByteSize(bytes)))
    }
}

fn last_part(key: &ObjectKey) -> &str {
    key.as_str().rsplit('/').next().unwrap_or_default()
}

/// Standard input in an unnamed file, and its length.
fn spool_stdin() -> std::io::Result<(std::fs::File, u64)> {
    use std::io::Seek;

    let mut file = tempfile::tempfile()?;
    let length = std::io::copy(&mut std::io::stdin().lock(), &mut file)?;
    file.rewind()?;
    Ok((file, length))
}
