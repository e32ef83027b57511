//! What may be said of a function when it is made or changed.

use std::collections::BTreeMap;
use std::time::Duration;

use nigh_terms::{ByteSize, FunctionName};

use crate::action::Action;
use crate::function::{Function, LayerUse, Runtime};

/// A function that is to be.
#[derive(Clone, Debug)]
pub struct NewFunction {
    /// Its name.
    pub name: FunctionName,
    /// How its process is made.
    pub runtime: (Runtime, String),
    /// What the runtime shall call.
    pub handler: String,
    /// All else, where it differs from the defaults.
    pub settings: FunctionSettings,
    /// Its tags.
    pub tags: BTreeMap<String, String>,
}

/// What may be set of a function; `None` leaves it as it is, or as Lambda defaults it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FunctionSettings {
    /// How its process is made, and that runtime's name.
    pub runtime: Option<(Runtime, String)>,
    /// What the runtime shall call.
    pub handler: Option<String>,
    /// In its owner's words.
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
    /// Kept and given back.
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
