//! Functions as bare processes under the vendor's runtime client: an idle process gets the next event, and one more is started
//! where all are busy.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use super::peer::bare_runtime::{BareAnswer, BareRuntime};

/// The processes of one store's clients, each with the same environment.
pub(crate) struct BarePool {
    python: PathBuf,
    environment: BTreeMap<String, String>,
    idle: Mutex<BTreeMap<String, Vec<BareRuntime>>>,
}

impl BarePool {
    pub(crate) fn new(python: &Path, environment: BTreeMap<String, String>) -> Self {
        Self { python: python.to_owned(), environment, idle: Mutex::default() }
    }

    /// Gives `event` to a process of `name`, which runs `handler` of `code`. True if the process was started for it.
    pub(crate) fn invoke(
        &self,
        name: &str,
        (code, handler): (&Path, &str),
        event: &[u8],
    ) -> Result<(BareAnswer, bool), String> {
        let idle = self.idle.lock().get_mut(name).and_then(Vec::pop);
        let is_cold = idle.is_none();
        let start = || BareRuntime::start(&self.python, code, handler, &self.environment);
        let mut process = idle.map_or_else(start, Ok).map_err(|error| error.to_string())?;
        let answer = process.invoke(event).map_err(|error| error.to_string())?;
        self.idle.lock().entry(name.to_owned()).or_default().push(process);
        if answer.succeeded {
            Ok((answer, is_cold))
        } else {
            Err(String::from_utf8_lossy(&answer.payload).into_owned())
        }
    }

    /// What idle processes have printed since their last answers.
    pub(crate) fn take_logs(&self) -> Vec<String> {
        self.idle.lock().values().flatten().flat_map(BareRuntime::take_log).collect()
    }
}
