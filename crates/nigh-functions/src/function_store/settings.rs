//! The settings of a function that is created or changed.

use std::collections::BTreeMap;
use std::time::Duration;

use nigh_terms::{ByteSize, FunctionName};

use crate::action::Action;
use crate::function::{Function, LayerUse, Runtime};

/// A new function.
#[derive(Clone, Debug)]
pub struct NewFunction {
    /// Its name.
    pub name: FunctionName,
    /// How its process is made.
    pub runtime: (Runtime, String),
    /// The handler that the runtime calls.
    pub handler: String,
    /// All other settings that differ from the defaults.
    pub settings: FunctionSettings,
    /// Its tags.
    pub tags: BTreeMap<String, String>,
}

/// The settings of a function; None leaves one as it is, or at Lambda's default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FunctionSettings {
    /// How its process is made, and that runtime's name.
    pub runtime: Option<(Runtime, String)>,
    /// The handler that the runtime calls.
    pub handler: Option<String>,
    /// The owner's description.
    pub description: Option<String>,
    /// The memory booked.
    pub memory: Option<ByteSize>,
    /// How long an invocation may run.
    pub timeout: Option<Duration>,
    /// The size of its /tmp.
    pub ephemeral_storage: Option<ByteSize>,
    /// Its own environment, all of it.
    pub environment: Option<BTreeMap<String, String>>,
    /// Its layers, all of them.
    pub layers: Option<Vec<LayerUse>>,
    /// Nigh only returns it.
    pub role: Option<String>,
    /// What makes it an OpenWhisk action.
    pub action: Option<Action>,
}

impl FunctionSettings {
    pub(super) fn apply(self, function: &mut Function) {
        fn set<T>(place: &mut T, value: Option<T>) {
            if let Some(value) = value {
                *place = value;
            }
        }
        if let Some((runtime, name)) = self.runtime {
            (function.runtime, function.runtime_name) = (runtime, name);
        }
        set(&mut function.handler, self.handler);
        set(&mut function.description, self.description);
        set(&mut function.memory, self.memory);
        set(&mut function.timeout, self.timeout);
        set(&mut function.ephemeral_storage, self.ephemeral_storage);
        set(&mut function.environment, self.environment);
        set(&mut function.layers, self.layers);
        set(&mut function.role, self.role);
        if self.action.is_some() {
            function.action = self.action;
        }
    }
}
