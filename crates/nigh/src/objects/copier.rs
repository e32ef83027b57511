//! `nigh objects cp`: copies between files and objects, streamed in bounded memory.

use std::path::{Path, PathBuf};

use nigh_node::client::S3Client;
use nigh_terms::{BucketName, ByteSize, ObjectKey};
use serde_json::json;

use super::{for_each, key_of, print, shown, usage};
use crate::error::CliError;
use crate::object_address::{ObjectAddress, Place, local_name};
use crate::output;

/// Copies, and tells each copy.
pub(super) struct Copier<'a> {
    pub(super) s3: &'a S3Client,
    pub(super) content_type: Option<&'a str>,
    pub(super) json: bool,
}

impl Copier<'_> {
    /// Copies from one place to the other.
    pub(super) async fn copy(&self, from: Place, to: Place, recursive: bool) -> Result<(), CliError> {
        match (from, to) {
            (Place::Local(_), Place::Local(to)) => {
                let to = to.display();
                Err(usage(format!("one side must be an object; for an object write nigh://{to}, for two files use cp")))
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
            return print(self.s3, &[(bucket, key.clone())]).await;
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
