//! What a load makes on a platform: a bucket with inputs, and a function for each tenant with its booking. All of it is removed
//! when the load ends, also after an error.

use std::path::{Path, PathBuf};

use http::Method;
use nigh_node::status::Status;
use nigh_terms::ByteSize;

use super::BUCKET;
use super::arrivals::Arrival;
use super::booking::{BookingProfile, NAIVE_MB};
use super::door_client::{Events, invoke};
use super::doors::Doors;
use super::settings::LoadSettings;
use super::tenants::{OfferedFunction, Tenant, tenants};
use crate::LabError;
use crate::instrument::error::Tried;
use crate::instrument::platform::{LambdaClient, admin_api};
use crate::instrument::sample_function::{SampleFunction, read_input};

/// Who takes part in a load.
pub(crate) struct Cast {
    pub(crate) tenants: Vec<Tenant>,
    /// Every tenant's function.
    pub(crate) functions: Vec<SampleFunction>,
    /// All inputs of each function.
    pub(crate) offered: Vec<OfferedFunction>,
    /// The folder of the inputs.
    pub(crate) inputs: PathBuf,
}

impl Cast {
    /// The sample functions that `load` names, each with its inputs of at most so many bytes, and the tenants that have them.
    pub(crate) fn read(project: &Path, load: &LoadSettings) -> Result<Self, LabError> {
        let (all, inputs) = (SampleFunction::read_all(&project.join("functions"))?, project.join(".deps/inputs"));
        let bytes_max = load.input_bytes_max;
        let (mut functions, mut offered) = (Vec::new(), Vec::new());
        for name in &load.functions {
            let function = SampleFunction::find(&all, name)?;
            let taken = function.sweep_to(&inputs, bytes_max)?;
            if taken.is_empty() {
                let missing = format!("an input of {name} of at most {bytes_max} bytes");
                return Err(LabError::Missing { missing, hint: "allow larger ones, or leave the function out" });
            }
            functions.push(function.clone());
            offered.push(OfferedFunction { function: name.clone(), inputs: taken });
        }
        let tenants = tenants(&offered, load.tenants, load.inputs, load.seed);
        Ok(Self { tenants, functions, offered, inputs })
    }

    pub(crate) fn function_of(&self, tenant: &Tenant) -> Result<&SampleFunction, LabError> {
        SampleFunction::find(&self.functions, &tenant.function)
    }
}

/// What is made on a platform for one load.
pub(super) struct LoadStage<'a> {
    pub(super) doors: &'a Doors,
    pub(super) cast: &'a Cast,
    pub(super) lambda: LambdaClient,
}

impl LoadStage<'_> {
    /// What a function books before its use was measured: two gigabytes, or all that the node has for sandboxes.
    fn most_mb(&self) -> Result<u64, LabError> {
        let Some(admin) = &self.doors.admin else { return Ok(NAIVE_MB) };
        let memory = admin_api::<Status>(admin, "/status")?.sandboxes.memory;
        Ok(NAIVE_MB.min(memory.bytes() >> 20))
    }

    /// Puts the inputs and deploys the functions, each with two gigabytes if the node has so much.
    pub(super) async fn set(&mut self) -> Result<(), LabError> {
        self.doors.s3.send(Method::PUT, &format!("/{BUCKET}"), b"").await?;
        for tenant in &self.cast.tenants {
            for (number, name) in tenant.inputs.iter().enumerate() {
                let body = read_input(&self.cast.inputs, name)?;
                self.doors.s3.send(Method::PUT, &format!("/{BUCKET}/{}", tenant.input_key(number)), &body).await?;
            }
        }
        let most_mb = self.most_mb()?;
        let work = tempfile::tempdir().at(std::env::temp_dir())?;
        for tenant in &self.cast.tenants {
            let function = self.cast.function_of(tenant)?;
            let code = work.path().join(&function.name);
            function.measured(&code, None)?;
            self.lambda.reconnect()?;
            self.lambda.deploy(&function.deployment(&tenant.name, &code, most_mb)).await?;
        }
        Ok(())
    }

    /// Runs each tenant's function once on each of its inputs and has it book by `booking` the most memory that it used. Returns
    /// what each books.
    pub(super) async fn book(
        &mut self,
        booking: BookingProfile,
        mut step: impl FnMut(&Tenant) -> bool,
    ) -> Result<Vec<u64>, LabError> {
        let events = Events { cast: self.cast, bucket: BUCKET, side: "load" };
        let mut booked = Vec::new();
        for (number, tenant) in self.cast.tenants.iter().enumerate() {
            if !step(tenant) {
                break;
            }
            let mut most = ByteSize::ZERO;
            for input in 0..tenant.inputs.len() {
                let arrival = Arrival { number: 0, due_s: 0.0, tenant: number, input };
                let (_, event) = events.of(&arrival).map_err(LabError::Node)?;
                let times = invoke(&mut self.lambda, &tenant.name, &event).await?;
                most = most.max(times.peak.unwrap_or(ByteSize::ZERO));
            }
            if most == ByteSize::ZERO && booking != BookingProfile::Naive {
                return Err(LabError::Missing {
                    missing: "what functions use (Max Memory Used)".to_owned(),
                    hint: "this platform does not measure it; take --booking naive",
                });
            }
            let memory_mb = booking.booked_mb(most).min(self.most_mb()?.max(most.mib_ceil()));
            self.lambda.reconnect()?;
            self.lambda.set_memory(&tenant.name, memory_mb).await?;
            booked.push(memory_mb);
        }
        Ok(booked)
    }

    /// Removes everything, and returns the first error at the end. A thing that is not there is no error.
    pub(super) async fn remove(&mut self) -> Result<(), LabError> {
        let mut first = Ok(());
        let mut note = |result: Result<(), LabError>| {
            let gone = |error: &LabError| error.to_string().contains(" 404 ");
            if let Err(error) = result
                && first.is_ok()
                && !gone(&error)
            {
                first = Err(error);
            }
        };
        for tenant in &self.cast.tenants {
            let removed = match self.lambda.reconnect() {
                Ok(()) => self.lambda.remove(&tenant.name).await,
                Err(error) => Err(error),
            };
            note(removed);
            let suffix = self.cast.function_of(tenant).map_or("", |function| function.output.suffix.as_str());
            for input in 0..tenant.inputs.len() {
                let output = format!("{}{suffix}", tenant.output_key("load", input));
                for key in [tenant.input_key(input), output] {
                    note(self.doors.s3.send(Method::DELETE, &format!("/{BUCKET}/{key}"), b"").await);
                }
            }
        }
        note(self.doors.s3.send(Method::DELETE, &format!("/{BUCKET}"), b"").await);
        first
    }
}
