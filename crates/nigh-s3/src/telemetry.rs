//! Counts requests by operation and status class, bytes, and the time until the head of an answer.
//!
//! The meters are created once, so that a request costs a few atomic additions. They belong to the recorder that is
//! installed when the door is created.

use std::time::Duration;

use metrics::{Counter, Histogram, counter, histogram};

macro_rules! operations {
    ($($name:ident),+ $(,)?) => {
        /// An operation of the S3 API that the door answers.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Operation {
            $($name,)+
            /// A request that was refused before it was routed, or that is answered with `NotImplemented`.
            Unknown,
        }

        impl Operation {
            const ALL: &[Self] = &[$(Self::$name,)+ Self::Unknown];

            /// The operation's name in the API reference.
            pub(crate) const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)+
                    Self::Unknown => "Unknown",
                }
            }

            /// The operation that the API reference calls `name`.
            pub(crate) fn of(name: &str) -> Self {
                match name {
                    $(stringify!($name) => Self::$name,)+
                    _ => Self::Unknown,
                }
            }
        }
    };
}

operations! {
    AbortMultipartUpload,
    AbortTransaction,
    BeginTransaction,
    CommitTransaction,
    CompleteMultipartUpload,
    CopyObject,
    CreateBucket,
    CreateMultipartUpload,
    DeleteBucket,
    DeleteObject,
    DeleteObjectTagging,
    DeleteObjects,
    GetBucketLocation,
    GetBucketNotificationConfiguration,
    GetBucketVersioning,
    GetObject,
    GetObjectAttributes,
    GetObjectTagging,
    HeadBucket,
    HeadObject,
    ListBuckets,
    ListMultipartUploads,
    ListObjects,
    ListObjectsV2,
    ListParts,
    PutBucketNotificationConfiguration,
    PutObject,
    PutObjectTagging,
    UploadPart,
    UploadPartCopy,
}

impl Operation {
    /// True if the request's body is a document, which is read whole, and not an object's bytes.
    pub(crate) const fn has_document(self) -> bool {
        matches!(
            self,
            Self::CompleteMultipartUpload
                | Self::CreateBucket
                | Self::DeleteObjects
                | Self::PutBucketNotificationConfiguration
                | Self::PutObjectTagging
        )
    }
}

const STATUS_CLASSES: [&str; 4] = ["2xx", "3xx", "4xx", "5xx"];

struct Meters {
    requests: [Counter; STATUS_CLASSES.len()],
    seconds: Histogram,
}

/// The door's meters.
pub(crate) struct Telemetry {
    operations: Vec<Meters>,
    bytes_in: Counter,
    bytes_out: Counter,
}

impl Telemetry {
    /// Creates meters that belong to the recorder that is installed now.
    pub(crate) fn new() -> Self {
        let operations = Operation::ALL
            .iter()
            .map(|operation| Meters {
                requests: STATUS_CLASSES.map(
                    |class| counter!("nigh_s3_requests_total", "operation" => operation.name(), "status" => class),
                ),
                seconds: histogram!("nigh_s3_request_duration_seconds", "operation" => operation.name()),
            })
            .collect();
        Self {
            operations,
            bytes_in: counter!("nigh_s3_received_bytes_total"),
            bytes_out: counter!("nigh_s3_sent_bytes_total"),
        }
    }

    /// Counts bytes of request bodies.
    pub(crate) fn bytes_in(&self) -> &Counter {
        &self.bytes_in
    }

    /// Counts one answer with `bytes` bytes of body; `took` is the time until its head was ready.
    pub(crate) fn answered(&self, operation: Operation, status: http::StatusCode, bytes: u64, took: Duration) {
        let Some(meters) = self.operations.get(operation as usize) else { return };
        let class = usize::from(status.as_u16() / 100).clamp(2, 5) - 2;
        meters.requests[class].increment(1);
        meters.seconds.record(took.as_secs_f64());
        self.bytes_out.increment(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_finds_its_meters_by_its_name() {
        for (index, &operation) in Operation::ALL.iter().enumerate() {
            assert_eq!(operation as usize, index);
            assert_eq!(Operation::of(operation.name()), operation);
        }
        assert_eq!(Operation::of("PutBucketPolicy"), Operation::Unknown);
        assert_eq!(Telemetry::new().operations.len(), Operation::ALL.len());
    }
}
