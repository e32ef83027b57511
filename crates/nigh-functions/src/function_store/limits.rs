//! The limits of a store, and why it refuses a change.

use nigh_engine::RegistryError;
use nigh_terms::{ByteSize, FunctionName};
use thiserror::Error;

use crate::code_archive::ArchiveLimits;
use crate::code_store::CodeStoreError;
use crate::layer_store::LayerError;
use crate::schedule_store::ScheduleError;

/// The limits of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FunctionLimits {
    /// Of each archive.
    pub archive: ArchiveLimits,
    /// Of all code of a namespace, zipped and unpacked, replaced versions included until they are removed.
    pub code: ByteSize,
    /// The memory of all sandboxes: a function that books more could never run. None if that is unknown.
    pub memory: Option<ByteSize>,
}

impl Default for FunctionLimits {
    /// Lambda's: 75 GB of code an account.
    fn default() -> Self {
        Self { archive: ArchiveLimits::LAMBDA, code: ByteSize::gib(75), memory: None }
    }
}

impl FunctionLimits {
    pub(super) fn check_memory(&self, booked: Option<ByteSize>) -> Result<(), FunctionStoreError> {
        match (booked, self.memory) {
            (Some(booked), Some(memory)) if booked > memory => Err(FunctionStoreError::BooksTooMuch { booked, memory }),
            _ => Ok(()),
        }
    }
}

/// Why a change is refused.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "each message says what the fields hold")]
pub enum FunctionStoreError {
    #[error("function not found: {0}")]
    NotFound(FunctionName),
    #[error("function already exists: {0}")]
    Exists(FunctionName),
    #[error("an update of the function {0} is in progress; try again when it has ended")]
    Busy(FunctionName),
    #[error("the revision is {found} and not {asked}; read the function again and repeat the change")]
    OtherRevision { asked: String, found: String },
    #[error("the namespace has {0} functions, which is the limit; delete some")]
    TooMany(usize),
    #[error(
        "the code of the namespace takes more than {limit}; delete functions, or wait until replaced code is removed"
    )]
    CodeStorage { limit: ByteSize },
    #[error("the code of {0} is not in the registry that the nodes share; deploy it again")]
    CodeGone(FunctionName),
    #[error(transparent)]
    Code(#[from] CodeStoreError),
    #[error(transparent)]
    Layers(#[from] LayerError),
    #[error(transparent)]
    Schedules(#[from] ScheduleError),
    #[error(transparent)]
    Registry(#[from] RegistryError),
    #[error("the document of function {0} cannot be read: {1}; start the nigh that wrote it, or restore a backup")]
    Document(String, String),
    #[error(
        "Specified ReservedConcurrentExecutions for function decreases account's UnreservedConcurrentExecution below its \
         minimum value of [{unreserved_min}]."
    )]
    TooMuchReserved { unreserved_min: usize },
    #[error(
        "Function code combined with layers exceeds the maximum allowed size of {limit}. The actual size is {size}."
    )]
    WithLayers { size: ByteSize, limit: ByteSize },
    #[error(
        "the function would book {booked} and the node has {memory} for all sandboxes (functions.memory): book less, or \
         start the node with more"
    )]
    BooksTooMuch { booked: ByteSize, memory: ByteSize },
    #[error("the change was interrupted: {0}")]
    Aborted(String),
}
