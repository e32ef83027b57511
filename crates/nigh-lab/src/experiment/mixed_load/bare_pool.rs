//! The functions as processes of their own, with no platform around them: each tenant's are kept for its next invocation,
//! and one more is started where all are busy.

use std::collections::BTreeMap;
use std::path::PathBuf;

use parking_lot::Mutex;

use crate::instrument::peer::bare_runtime::BareRuntime;
use crate::instrument::sample_function::MEASURED_HANDLER;
use crate::load::arrivals::Arrival;
use crate::load::door_client::Events;
use crate::load::open_loop::LoadClient;
use crate::load::run::InvocationTimes;

/// The processes of one side.
pub(super) struct BarePool {
    pub(super) python: PathBuf,
    /// Where the store is, and what it takes.
    pub(super) environment: BTreeMap<String, String>,
    /// By function.
    pub(super) codes: BTreeMap<String, PathBuf>,
    /// By tenant.
    pub(super) idle: Mutex<BTreeMap<String, Vec<BareRuntime>>>,
}

impl BarePool {
    /// Gives `event` to a process of `tenant`. At most as many are started as invocations are under way at a time.
    pub(super) fn invoke(&self, tenant: &str, function: &str, event: &[u8]) -> Result<InvocationTimes, String> {
        let idle = self.idle.lock().get_mut(tenant).and_then(Vec::pop);
        let cold = idle.is_none();
        let mut runtime = match idle {
            Some(runtime) => runtime,
            None => {
                let code = self.codes.get(function).ok_or("the function has no code")?;
                BareRuntime::start(&self.python, code, MEASURED_HANDLER, &self.environment)
                    .map_err(|error| error.to_string())?
            }
        };
        let answer = runtime.invoke(event).map_err(|error| error.to_string())?;
        self.idle.lock().entry(tenant.to_owned()).or_default().push(runtime);
        if !answer.succeeded {
            return Err(String::from_utf8_lossy(&answer.payload).into_owned());
        }
        Ok(InvocationTimes { cold, ..InvocationTimes::read(&answer.payload)? })
    }
}

/// One client of a pool.
pub(super) struct BareClient<'a> {
    pub(super) pool: &'a BarePool,
    pub(super) events: &'a Events<'a>,
}

impl LoadClient for BareClient<'_> {
    fn invoke(&mut self, arrival: &Arrival) -> Result<InvocationTimes, String> {
        let (tenant, event) = self.events.of(arrival)?;
        self.pool.invoke(&tenant.name, &tenant.function, &event)
    }
}
