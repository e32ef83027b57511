//! `nigh objects`: buckets and objects through the S3 door, streamed in bounded memory.

mod copier;
mod features;
mod listing;
mod policy;
mod standard_output;
mod unpushed;

use std::borrow::Cow;

use clap::Subcommand;
use nigh_node::client::{ClientError, ObjectEntry, S3Client};
use nigh_terms::{BucketName, ObjectKey};
use serde_json::json;

use self::copier::Copier;
use self::standard_output::StandardOutput;
use crate::context::Globals;
use crate::error::CliError;
use crate::object_address::{ObjectAddress, Place, anywhere};
use crate::output;
use crate::printable;

/// Subcommands of `nigh objects`.
#[derive(Subcommand)]
#[command(after_help = "\
Examples:
  nigh objects mb pictures
  nigh objects cp -r ./pictures nigh://pictures/2026/
  nigh objects ls pictures/2026/
  nigh objects cat pictures/cat.txt
  nigh objects rm pictures/a.png pictures/b.png
  nigh objects rm -r pictures/2026/
  nigh objects rb pictures --force                     remove the bucket with all that is in it

pictures/a.png means nigh://pictures/a.png; for cp, where files stand too, write nigh://.
With --json each command prints one JSON object a line.")]
pub(crate) enum ObjectsCommand {
    /// List buckets, or the objects of one
    #[command(visible_alias = "list")]
    Ls {
        /// BUCKET, or BUCKET/PREFIX [default: all buckets]
        #[arg(value_parser = anywhere)]
        address: Option<ObjectAddress>,
        /// Also list the content of folders
        #[arg(short, long)]
        recursive: bool,
        /// List so many at most [default: all]
        #[arg(long)]
        limit: Option<usize>,
    },
    /// Print objects
    Cat {
        /// BUCKET/KEY
        #[arg(required = true, value_parser = anywhere)]
        addresses: Vec<ObjectAddress>,
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
    /// Remove objects; with -r all objects whose keys begin with the address's
    #[command(visible_alias = "delete")]
    Rm {
        /// BUCKET/KEY
        #[arg(required = true, value_parser = anywhere)]
        addresses: Vec<ObjectAddress>,
        /// Remove all objects whose keys begin with the address
        #[arg(short, long)]
        recursive: bool,
    },
    /// Make buckets
    Mb {
        /// BUCKET
        #[arg(required = true, value_parser = anywhere)]
        addresses: Vec<ObjectAddress>,
    },
    /// Remove empty buckets; with --force also others, with all their objects
    Rb {
        /// BUCKET
        #[arg(required = true, value_parser = anywhere)]
        addresses: Vec<ObjectAddress>,
        /// Remove all objects of the buckets first
        #[arg(long)]
        force: bool,
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
        ObjectsCommand::Ls { address: None, limit, .. } => listing::buckets(&s3().await?, limit, globals.json).await,
        ObjectsCommand::Ls { address: Some(address), recursive, limit } => {
            listing::objects(&s3().await?, &address, recursive, limit, globals.json).await
        }
        ObjectsCommand::Cat { addresses } => cat(&s3().await?, &addresses).await,
        ObjectsCommand::Cp { from, to, recursive, content_type } => {
            let s3 = s3().await?;
            let copier = Copier { s3: &s3, content_type: content_type.as_deref(), json: globals.json };
            copier.copy(from, to, recursive).await
        }
        ObjectsCommand::Rm { addresses, recursive } => {
            let s3 = s3().await?;
            for address in &addresses {
                remove(&s3, address, recursive, globals.json).await?;
            }
            Ok(())
        }
        ObjectsCommand::Mb { addresses } => {
            let buckets = buckets_only(&addresses)?;
            let s3 = s3().await?;
            for bucket in buckets {
                s3.create_bucket(bucket).await?;
                done(globals.json, "made", &format!("nigh://{bucket}"))?;
            }
            Ok(())
        }
        ObjectsCommand::Rb { addresses, force } => {
            let buckets = buckets_only(&addresses)?;
            let s3 = s3().await?;
            for bucket in buckets {
                remove_bucket(&s3, bucket, force, globals.json).await?;
            }
            Ok(())
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
    if address.rest.is_empty() {
        Ok(&address.bucket)
    } else {
        Err(usage(format!("name a bucket alone: nigh://{}", address.bucket)))
    }
}

/// The buckets that are named, each alone: nothing is done if one of them is an object.
fn buckets_only(addresses: &[ObjectAddress]) -> Result<Vec<&BucketName>, CliError> {
    addresses.iter().map(bucket_only).collect()
}

async fn cat(s3: &S3Client, addresses: &[ObjectAddress]) -> Result<(), CliError> {
    let objects: Vec<(&BucketName, ObjectKey)> = addresses
        .iter()
        .map(|address| Ok((&address.bucket, address.key().map_err(usage)?)))
        .collect::<Result<_, CliError>>()?;
    print(s3, &objects).await
}

/// Prints objects one after another, as they are.
async fn print(s3: &S3Client, objects: &[(&BucketName, ObjectKey)]) -> Result<(), CliError> {
    let mut out = StandardOutput::open();
    let mut printed = Ok(());
    for (bucket, key) in objects {
        printed = s3.get(bucket, key, &mut out).await.map(drop);
        if printed.is_err() {
            break;
        }
    }
    // What was printed before a failure is a line of its own, too.
    let ended = out.end_line().await;
    printed?;
    ended.map_err(CliError::Output)
}

/// Removes a bucket; with `force` its objects first, so that it is empty unless somebody writes meanwhile.
async fn remove_bucket(s3: &S3Client, bucket: &BucketName, force: bool, json: bool) -> Result<(), CliError> {
    if force {
        let count = for_each(s3, bucket, "", async |object| {
            s3.delete(bucket, &key_of(object)?).await?;
            Ok(())
        });
        let count = count.await?;
        if count > 0 && !json {
            output::remark(format_args!("removed {count} objects of nigh://{bucket}"));
        }
    }
    match s3.delete_bucket(bucket).await {
        Err(ClientError::Refused { status, code, message }) if code == "BucketNotEmpty" && !force => {
            let message = format!("{message}; --force removes its objects, too");
            Err(ClientError::Refused { status, code, message }.into())
        }
        removed => {
            removed?;
            done(json, "removed", &format!("nigh://{bucket}"))
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
