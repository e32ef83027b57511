//! The vocabulary of Nigh: identifiers, units, versions, tokens, principals and the clock.
//!
//! Nothing here does I/O or decides anything; every other crate uses these words.

mod access_key;
mod admin_role;
mod cache_ways;
mod clock;
mod hex;
mod id;
mod id_prefix;
mod installation;
mod invariant;
mod name;
mod principal;
mod size;
mod version;

pub use access_key::{AccessKeyId, SecretKey};
pub use admin_role::AdminRole;
pub use cache_ways::{CacheDomain, ClosId, WayMask, Ways};
pub use clock::{Clock, ManualClock, Monotonic, SystemClock, Timestamp};
pub use hex::{Hex, hex};
pub use id::{Epoch, Incarnation, InvocationId, NodeId, NodeNumber, SandboxId, Sequence, ShardId};
pub use id_prefix::{InvocationIdPrefix, ParseIdPrefixError};
pub use installation::companion_programs;
pub use invariant::broken_invariant;
pub use name::{BucketName, FunctionName, NameError, Namespace, ObjectKey};
pub use principal::{ACCOUNT, Admission, Principal};
pub use size::{ByteSize, ParseByteSizeError};
pub use version::{Token, Version};
