//! The doors that a deployment talks to, and what they say is deployed.

use std::collections::{BTreeMap, BTreeSet};

use nigh_node::client::{BucketNotifications, ClientError, LambdaClient, S3Client};
use nigh_terms::{BucketName, FunctionName};

use super::description::{FunctionDescription, TakenBack, TriggerChange, UrlAccess};
use super::plan::Deployed;
use crate::context::Globals;
use crate::error::CliError;
use crate::schedules;
use crate::workflow;

/// The doors; those that the deployment does not need are none.
pub(super) struct Doors {
    pub(super) lambda: LambdaClient,
    pub(super) s3: Option<S3Client>,
    pub(super) states: Option<workflow::Door>,
}

impl Doors {
    /// The doors that `wanted` needs.
    pub(super) async fn reach(
        wanted: &FunctionDescription,
        has_workflow: bool,
        globals: &Globals,
    ) -> Result<Self, CliError> {
        Ok(Self {
            lambda: globals.lambda().await?,
            s3: if wanted.triggers.is_empty() { None } else { Some(globals.s3().await?) },
            states: if has_workflow { Some(workflow::Door::reach(globals).await?) } else { None },
        })
    }

    /// What is deployed under `name`, as far as `wanted` has to do with it.
    pub(super) async fn deployed(
        &self,
        name: &FunctionName,
        wanted: &FunctionDescription,
        globals: &Globals,
    ) -> Result<Deployed, CliError> {
        let function = self.lambda.find(name).await?;
        let url = match wanted.url {
            Some(_) if function.is_some() => self.lambda.url(name).await?,
            _ => None,
        };
        Ok(Deployed {
            function,
            url: url.map(|(url, auth)| (url, UrlAccess::of_auth(&auth))),
            buckets: self.buckets(name, &wanted.triggers).await?,
            schedule: match wanted.schedule {
                Some(_) => schedules::deployed(name, globals).await?,
                None => None,
            },
            machine: match &self.states {
                Some(states) => states.definition(name.as_str()).await?,
                None => None,
            },
        })
    }

    /// The rules of the buckets that the triggers name, and of those where a trigger may have to be taken back.
    async fn buckets(
        &self,
        name: &FunctionName,
        triggers: &TriggerChange,
    ) -> Result<BTreeMap<BucketName, BucketNotifications>, CliError> {
        let Some(s3) = &self.s3 else { return Ok(BTreeMap::new()) };
        let wanted: BTreeSet<&BucketName> = triggers.wanted.iter().map(|trigger| &trigger.bucket).collect();
        let mut found = BTreeMap::new();
        for bucket in wanted {
            let rules = s3.notifications(bucket).await.map_err(|error| refused_trigger(name, bucket, error))?;
            found.insert(bucket.clone(), rules);
        }
        if triggers.taken_back != TakenBack::Nothing {
            found.extend(s3.all_notifications().await?);
        }
        Ok(found)
    }
}

/// The error of a trigger that its bucket refuses or would refuse.
pub(super) fn refused_trigger(name: &FunctionName, bucket: &BucketName, error: ClientError) -> CliError {
    let ClientError::Refused { code, .. } = &error else { return error.into() };
    let hint = match code.as_str() {
        "NoSuchBucket" => format!("; `nigh objects mb nigh://{bucket}` makes the bucket"),
        _ => String::new(),
    };
    CliError::Failed(format!("nothing is deployed: a trigger of {name} on {bucket} is refused: {error}{hint}"))
}
