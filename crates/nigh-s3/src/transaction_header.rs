//! The header that names the transaction of an operation on one object.

use http::{HeaderMap, HeaderName};
use nigh_objects::TransactionName;
use s3s::S3Result;

use crate::error::{invalid_argument, s3_error};

/// Names the transaction of an operation.
pub(crate) static TRANSACTION: HeaderName = HeaderName::from_static("x-nigh-transaction");

/// The transaction of an operation, if it is in one.
pub(crate) fn transaction_of(headers: &HeaderMap) -> S3Result<Option<TransactionName>> {
    let Some(name) = headers.get(&TRANSACTION) else { return Ok(None) };
    let name = name.to_str().map_err(|_| invalid_argument("x-nigh-transaction is no text"))?;
    name.parse().map(Some).map_err(s3_error)
}
