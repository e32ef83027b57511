//! A client of a Lambda door: each invocation signed, sent by a connection of its own, and read with its log's tail.

use tokio::runtime::Handle;

use super::arrivals::Arrival;
use super::open_loop::LoadClient;
use super::run::InvocationTimes;
use super::tenants::Tenant;
use crate::LabError;
use crate::instrument::platform::LambdaClient;
use crate::instrument::sample_function::SampleFunction;

/// What tenants ask for: the same event by whatever way.
pub(crate) struct Events<'a> {
    pub(crate) tenants: &'a [Tenant],
    /// By name; every tenant's is there.
    pub(crate) functions: &'a [SampleFunction],
    pub(crate) bucket: &'a str,
    /// Keeps the outputs of sides of one experiment apart.
    pub(crate) side: &'a str,
}

impl Events<'_> {
    /// Whose it is, and the event.
    pub(crate) fn of(&self, arrival: &Arrival) -> Result<(&Tenant, Vec<u8>), String> {
        let tenant = self.tenants.get(arrival.tenant).ok_or("there is no such tenant")?;
        let function = self.functions.iter().find(|one| one.name == tenant.function).ok_or("no such function")?;
        let output = tenant.output_key(self.side, arrival.input);
        Ok((tenant, function.event_of(self.bucket, &tenant.input_key(arrival.input), &output)))
    }
}

/// One client.
pub(crate) struct DoorClient<'a> {
    lambda: LambdaClient,
    events: &'a Events<'a>,
    handle: Handle,
}

impl<'a> DoorClient<'a> {
    pub(crate) const fn new(lambda: LambdaClient, events: &'a Events<'a>, handle: Handle) -> Self {
        Self { lambda, events, handle }
    }
}

impl LoadClient for DoorClient<'_> {
    fn invoke(&mut self, arrival: &Arrival) -> Result<InvocationTimes, String> {
        let (tenant, event) = self.events.of(arrival)?;
        let name = tenant.name.clone();
        invoke(&mut self.lambda, &name, &event, &self.handle).map_err(|error| error.to_string())
    }
}

/// Invokes a measured function once.
pub(crate) fn invoke(
    lambda: &mut LambdaClient,
    name: &str,
    event: &[u8],
    handle: &Handle,
) -> Result<InvocationTimes, LabError> {
    let failure =
        |reason: String| LabError::Function { function: name.to_owned(), input: "its event".to_owned(), reason };
    let request = handle.block_on(lambda.invocation(name, event))?;
    lambda.reconnect()?;
    let answer = lambda.send(name, &request)?;
    if answer.function_error.is_some() {
        return Err(failure(String::from_utf8_lossy(&answer.payload).into_owned()));
    }
    let answered = InvocationTimes::read(&answer.payload).map_err(failure)?.with_report(&answer.log);
    Ok(InvocationTimes { id: Some(answer.id), ..answered })
}
