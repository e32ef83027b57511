//! A client of a Lambda door. It signs each invocation, sends it by a new connection, and reads the answer with the log's tail.

use tokio::runtime::Handle;

use super::arrivals::Arrival;
use super::run::InvocationTimes;
use super::stage::Cast;
use super::tenants::Tenant;
use crate::LabError;
use crate::instrument::platform::LambdaClient;

/// The events of a load, the same on every side.
pub(crate) struct Events<'a> {
    pub(crate) cast: &'a Cast,
    pub(crate) bucket: &'a str,
    /// Part of the outputs' keys: sides of one experiment write different objects.
    pub(crate) side: &'a str,
}

impl Events<'_> {
    /// The tenant of an arrival, and its event.
    pub(crate) fn of(&self, arrival: &Arrival) -> Result<(&Tenant, Vec<u8>), String> {
        let tenant = self.cast.tenants.get(arrival.tenant).ok_or("there is no such tenant")?;
        let function = self.cast.function_of(tenant).map_err(|error| error.to_string())?;
        let output = tenant.output_key(self.side, arrival.input);
        Ok((tenant, function.event_of(self.bucket, &tenant.input_key(arrival.input), &output)))
    }
}

/// A client of the door, for a thread that runs no tasks.
pub(crate) fn door_client<'a>(
    mut lambda: LambdaClient,
    events: &'a Events<'a>,
    handle: &'a Handle,
) -> impl FnMut(&Arrival) -> Result<InvocationTimes, String> {
    move |arrival| {
        let (tenant, event) = events.of(arrival)?;
        handle.block_on(invoke(&mut lambda, &tenant.name, &event)).map_err(|error| error.to_string())
    }
}

/// Invokes a measured function once.
pub(crate) async fn invoke(lambda: &mut LambdaClient, name: &str, event: &[u8]) -> Result<InvocationTimes, LabError> {
    let request = lambda.invocation(name, event).await?;
    let (answer, _) = lambda.invoke(name, &request)?;
    let failure =
        |reason: String| LabError::Function { function: name.to_owned(), input: "its event".to_owned(), reason };
    let times = InvocationTimes::read(&answer.payload).map_err(failure)?.with_report(&answer.log);
    Ok(InvocationTimes { id: Some(answer.id), ..times })
}
