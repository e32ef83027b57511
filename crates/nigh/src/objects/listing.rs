//! `nigh objects ls`: buckets, and the objects of one.

use nigh_node::client::S3Client;
use nigh_terms::ByteSize;
use serde_json::json;

use super::shown;
use crate::error::CliError;
use crate::object_address::ObjectAddress;
use crate::output;

/// Lists the buckets.
pub(super) async fn buckets(s3: &S3Client, limit: Option<usize>, json: bool) -> Result<(), CliError> {
    let mut buckets = s3.list_buckets().await?;
    buckets.truncate(limit.unwrap_or(usize::MAX));
    if json {
        return buckets.iter().try_for_each(|bucket| output::line(serde_json::to_string(bucket)?));
    }
    let mut table = output::table(&["BUCKET", "MADE"]);
    for bucket in buckets {
        table.add_row([bucket.name, bucket.created]);
    }
    output::print_table(&table)
}

/// Lists folders and objects, page by page: a bucket may hold millions of objects.
pub(super) async fn objects(
    s3: &S3Client,
    address: &ObjectAddress,
    recursive: bool,
    limit: Option<usize>,
    json: bool,
) -> Result<(), CliError> {
    let delimiter = (!recursive).then_some("/");
    let (mut next, mut left) = (None, limit.unwrap_or(usize::MAX));
    loop {
        let page = s3.list(&address.bucket, &address.rest, delimiter, next.as_deref()).await?;
        for prefix in page.common_prefixes.iter().take(left) {
            if json {
                output::line(json!({ "prefix": prefix }))?;
            } else {
                output::line(format_args!("{:>12}  {:24}  {}", "", "", shown(prefix)))?;
            }
        }
        left = left.saturating_sub(page.common_prefixes.len());
        for object in page.objects.iter().take(left) {
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
        left = left.saturating_sub(page.objects.len());
        next = page.next;
        if next.is_none() || left == 0 {
            return Ok(());
        }
    }
}
