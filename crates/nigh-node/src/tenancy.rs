//! Keys and namespaces, as an operator manages them: what the admin API shows and changes of them.
//!
//! Both are documents of the registry, so that all nodes of a cluster have the same. `nigh_engine::AccessKeys` decides what
//! a key may do and what a namespace may use.

mod contents;
mod documents;
mod keys;
mod namespaces;
mod upkeep;

use std::sync::Arc;

use nigh_data::ObjectError;
use nigh_engine::{AccessKeys, KeyError, NamespaceError, Registry, RegistryError};
use nigh_functions::function_store::FunctionStore;
use nigh_invoke::event_invoker::EventInvoker;
use nigh_invoke::invocation::Invoke;
use nigh_objects::ObjectMemory;
use nigh_openwhisk::entity_store::EntityStore;
use nigh_terms::{Clock, Namespace};
use nigh_workflow::machine_store::MachineStore;
use thiserror::Error;

pub use self::contents::NamespaceContents;
pub use self::documents::{CreatedKey, KeyState, ListedKey, ListedNamespace, NewKey, NewNamespace};
pub(crate) use self::upkeep::{count_stored_bytes, share_requests, write_key_uses};
use crate::credentials::FirstKeys;
use crate::state_folder::StateFolderError;

/// The longest name of a key.
const KEY_NAME_MAX: usize = 64;
/// The longest description of a key.
const DESCRIPTION_MAX: usize = 256;

/// Why a key or namespace was not shown or changed.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "each message says what the fields hold")]
pub enum TenancyError {
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    #[error("there is no namespace {0}; `nigh namespaces create {0}` makes it, `nigh namespaces ls` lists all")]
    NoNamespace(Namespace),
    #[error(
        "{0:?} cannot be a key's name: use 1 to {KEY_NAME_MAX} letters, digits, dots, dashes and underscores, and no \
         access key's id"
    )]
    KeyName(String),
    #[error("a key's description has at most {DESCRIPTION_MAX} characters")]
    Description,
    #[error("a key that expires needs a time after which it does: at least a second, at most 100 years")]
    Expiry,
    #[error("access key {0} is the one that Nigh made for namespace {1} of the settings; rotate or disable it instead")]
    KeyOfSettings(String, Namespace),
    #[error(
        "namespace {0} is in the settings; remove namespaces.{0} from nigh.toml on all nodes, and start them again"
    )]
    OfSettings(Namespace),
    #[error("a quota of {0} must be at least 1; leave it out for no limit")]
    Quota(&'static str),
    #[error("namespace {namespace} is not empty: it has {contents}; remove them, or use --with-everything")]
    NotEmpty { namespace: Namespace, contents: NamespaceContents },
    #[error("namespace {0} could not be emptied: {1}; the rest is still there, so try again")]
    NotEmptied(Namespace, String),
    #[error(transparent)]
    Objects(#[from] ObjectError),
    #[error(transparent)]
    Registry(#[from] RegistryError),
    #[error("the credentials file cannot be written: {0}; mend that and reload")]
    Credentials(#[from] StateFolderError),
}

/// What keys and namespaces need of a node.
pub(crate) struct Tenancy {
    pub(crate) keys: AccessKeys,
    pub(crate) registry: Arc<dyn Registry>,
    pub(crate) clock: Arc<dyn Clock>,
    /// The namespaces of the settings with their keys.
    pub(crate) first: FirstKeys,
    /// The namespace of the settings for which a key acts that names no other.
    pub(crate) namespace: Namespace,
    pub(crate) memory: ObjectMemory,
    pub(crate) functions: FunctionStore,
    pub(crate) entities: EntityStore,
    pub(crate) machines: MachineStore,
    pub(crate) events: EventInvoker,
    pub(crate) invoke: Arc<dyn Invoke>,
}

impl Tenancy {
    /// Checks that the keys of the registry can be read again, and that the credentials file has those that are known: a file
    /// that lacks some is written.
    ///
    /// # Errors
    /// If the keys cannot be read, or the file cannot be written.
    pub(crate) async fn check_reload(&self) -> Result<(), TenancyError> {
        self.keys.check_reload(&*self.registry).await?;
        Ok(self.first.write_file()?)
    }

    /// Reads the keys of the registry again. Returns whether one has changed.
    ///
    /// # Errors
    /// If the registry cannot be read, or the credentials file cannot be written.
    pub(crate) async fn reload(&self) -> Result<bool, TenancyError> {
        let changed = self.keys.reload(&*self.registry).await?;
        self.first.write_file()?;
        Ok(changed)
    }

    /// Whether the namespace exists: it is in the settings, an operator created it, or a key acts for it.
    fn exists(&self, namespace: &Namespace) -> bool {
        self.first.namespaces.contains(namespace)
            || self.keys.namespaces().all().iter().any(|(known, ..)| known == namespace)
            || !self.keys.of_namespace(namespace).is_empty()
    }
}
