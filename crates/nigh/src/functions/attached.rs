//! What hangs on a function beside its settings: triggers, a URL, schedules. Each is kept elsewhere, so one command asks
//! for all of them.

use std::collections::BTreeMap;

use nigh_node::client::{BucketNotifications, ClientError, LambdaClient, S3Client};
use nigh_terms::{BucketName, FunctionName};
use serde_json::Value;

use crate::context::Globals;
use crate::deploy::{Trigger, UrlAccess};
use crate::error::CliError;
use crate::output;
use crate::schedules;

/// What hangs on one function.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Attached {
    /// The objects that trigger it.
    pub(crate) triggers: Vec<Trigger>,
    /// Its URL, and who may call it.
    pub(crate) url: Option<(String, UrlAccess)>,
    /// The schedules that run it, in the form of EventBridge Scheduler's list.
    pub(crate) schedules: Vec<Value>,
    /// How its asynchronous invocations are handled, in Lambda's form; none if as usual.
    pub(crate) events: Option<Value>,
}

/// The rules of all buckets of the namespace, and the door that has them.
pub(crate) struct Buckets {
    s3: S3Client,
    rules: BTreeMap<BucketName, BucketNotifications>,
}

impl Buckets {
    /// The rules of all buckets; none if `--endpoint` names another node's Lambda door, whose S3 door is not known.
    pub(crate) async fn find(globals: &Globals) -> Result<Option<Self>, CliError> {
        if globals.endpoint.is_some() {
            return Ok(None);
        }
        let s3 = globals.s3().await?;
        let rules = s3.all_notifications().await?;
        Ok(Some(Self { s3, rules }))
    }

    /// The triggers of the function, sorted.
    pub(crate) fn triggers(&self, name: &FunctionName) -> Vec<Trigger> {
        let mut triggers = Vec::new();
        for (bucket, rules) in &self.rules {
            let of_bucket = rules.triggers(name.as_str()).into_iter();
            triggers.extend(of_bucket.map(|one| Trigger { bucket: bucket.clone(), filter: one.filter }));
        }
        triggers.sort();
        triggers
    }

    /// Removes the triggers of the function.
    ///
    /// # Errors
    /// The refusal of a bucket, after those taken back before it were given back.
    pub(crate) async fn take_triggers(&self, name: &FunctionName) -> Result<(), ClientError> {
        for (bucket, rules) in self.with_triggers(name) {
            let mut left = rules.clone();
            rules.triggers(name.as_str()).iter().for_each(|trigger| left.remove(&trigger.id));
            match self.s3.set_notifications(bucket, &left).await {
                // It was removed since it was listed.
                Err(error) if error.is_not_found() => {}
                Err(error) => {
                    self.give_triggers_back(name).await;
                    return Err(error);
                }
                Ok(()) => {}
            }
        }
        Ok(())
    }

    /// Gives the function the triggers that it had. What cannot be given back is said.
    pub(crate) async fn give_triggers_back(&self, name: &FunctionName) {
        for (bucket, rules) in self.with_triggers(name) {
            if let Err(error) = self.s3.set_notifications(bucket, rules).await {
                output::remark(format_args!("nigh: a trigger of {name} on {bucket} is lost: {error}"));
            }
        }
    }

    fn with_triggers<'a>(
        &'a self,
        name: &'a FunctionName,
    ) -> impl Iterator<Item = (&'a BucketName, &'a BucketNotifications)> {
        self.rules.iter().filter(|(_, rules)| !rules.triggers(name.as_str()).is_empty())
    }
}

impl Attached {
    /// What hangs on the function.
    pub(crate) async fn find(
        name: &FunctionName,
        lambda: &LambdaClient,
        buckets: Option<&Buckets>,
        globals: &Globals,
    ) -> Result<Self, CliError> {
        let url = lambda.url(name).await?;
        Ok(Self {
            triggers: buckets.map(|buckets| buckets.triggers(name)).unwrap_or_default(),
            url: url.map(|(url, auth)| (url, UrlAccess::of_auth(&auth))),
            schedules: schedules::of_function(name, globals).await?,
            events: lambda.event_config(name).await?,
        })
    }

    /// The names of its schedules.
    pub(crate) fn schedule_names(&self) -> Vec<&str> {
        self.schedules.iter().filter_map(|schedule| schedule["Name"].as_str()).collect()
    }
}
