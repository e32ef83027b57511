//! What a deployment changes: the difference between what a function shall be and what it is. Pure.
//!
//! A plan has only what differs, so a deployment that changes nothing sends nothing, and the function's warm sandboxes
//! stay. It is printed as `terraform plan` does: `+` is new, `~` changes, `-` goes. Values of variables may be secrets and
//! are not shown.

use std::collections::{BTreeMap, BTreeSet};

use nigh_node::client::{BucketNotifications, ClientError, DescribedFunction, FunctionChange, TriggerFilter};
use nigh_terms::{BucketName, ByteSize, FunctionName};
use serde::Serialize;
use serde_json::Value;

use super::description::{FunctionDescription, Reserve, TakenBack, Trigger, TriggerChange, UrlAccess};
use crate::schedules::{ScheduleChange, words_of};

/// How a part changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mark {
    /// It is new.
    Add,
    /// It has another value.
    Change,
    /// It goes.
    Remove,
}

/// One difference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Change {
    /// How it changes.
    pub(crate) mark: Mark,
    /// The part: `memory`, `trigger`.
    pub(crate) what: String,
    /// Its value now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) from: Option<String>,
    /// Its value after the deployment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) to: Option<String>,
}

/// What is deployed.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Deployed {
    /// The function; none if there is none of this name.
    pub(crate) function: Option<DescribedFunction>,
    /// Its URL, and who may call it.
    pub(crate) url: Option<(String, UrlAccess)>,
    /// The buckets that have to do with its triggers, with their rules.
    pub(crate) buckets: BTreeMap<BucketName, BucketNotifications>,
    /// The schedule of its name, in the form of EventBridge Scheduler's API.
    pub(crate) schedule: Option<Value>,
    /// The definition of the state machine of its name.
    pub(crate) machine: Option<String>,
}

/// The code to deploy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CodeSummary {
    /// Its hash, as Lambda has it.
    pub(crate) sha256: String,
    /// The bytes of its archive.
    pub(crate) bytes: ByteSize,
    /// The number of its files; none for an archive that somebody else made.
    pub(crate) files: Option<usize>,
}

/// How the rules of one bucket change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TriggerStep {
    /// What triggers the function from now on.
    added: Vec<TriggerFilter>,
    /// Ids of rules that go.
    removed: Vec<String>,
}

/// The changes of a deployment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// The function.
    pub(crate) name: FunctionName,
    /// True if it is new.
    pub(crate) is_new: bool,
    /// The differences, for people.
    pub(crate) changes: Vec<Change>,
    /// The settings to send.
    pub(crate) settings: FunctionChange,
    /// True if the code is sent.
    pub(crate) sends_code: bool,
    /// The reserved concurrency to set.
    pub(crate) reserved: Option<Reserve>,
    /// The URL to give or take.
    pub(crate) url: Option<UrlAccess>,
    /// The buckets whose rules change.
    pub(crate) triggers: BTreeMap<BucketName, TriggerStep>,
    /// The schedule to give or take.
    pub(crate) schedule: Option<ScheduleChange>,
    /// The definition to give the state machine.
    pub(crate) machine: Option<String>,
    /// True if the function has both triggers and a schedule from now on: their events have different forms.
    pub(crate) mixes_events: bool,
}

impl Change {
    fn new(what: &str, from: Option<String>, to: Option<String>) -> Self {
        let mark = match (&from, &to) {
            (None, _) => Mark::Add,
            (_, None) => Mark::Remove,
            _ => Mark::Change,
        };
        Self { mark, what: what.to_owned(), from, to }
    }

    /// The line that shows it, without its mark.
    fn words(&self) -> String {
        match (&self.from, &self.to) {
            (Some(from), Some(to)) if from != to => format!("{from} -> {to}"),
            (_, Some(value)) | (Some(value), None) => value.clone(),
            (None, None) => String::new(),
        }
    }
}

impl Mark {
    /// The character in front of a line.
    pub(crate) const fn sign(self) -> char {
        match self {
            Self::Add => '+',
            Self::Change => '~',
            Self::Remove => '-',
        }
    }
}

impl TriggerStep {
    /// The bucket's rules after the step; `arn` is the function's, and empty while it is not known.
    pub(crate) fn after(&self, before: &BucketNotifications, name: &FunctionName, arn: &str) -> BucketNotifications {
        let mut rules = before.clone();
        self.removed.iter().for_each(|id| rules.remove(id));
        self.added.iter().for_each(|filter| rules.set(name.as_str(), arn, filter));
        rules
    }
}

impl Plan {
    /// The difference between `wanted` and `deployed`.
    pub(crate) fn new(
        name: &FunctionName,
        wanted: &FunctionDescription,
        code: Option<&CodeSummary>,
        machine: Option<&str>,
        deployed: &Deployed,
    ) -> Self {
        let mut changes = Vec::new();
        let now = deployed.function.as_ref();
        let settings = settings_that_differ(&wanted.settings(), now.map(|now| &now.configuration), &mut changes);
        let sends_code = code.is_some_and(|code| code_differs(code, now, &mut changes));
        let reserved = wanted.reserved.filter(|Reserve(count)| *count != now.and_then(|now| now.reserved));
        if let Some(Reserve(count)) = reserved {
            let words = |count: u64| count.to_string();
            changes.push(Change::new("reserved", now.and_then(|now| now.reserved).map(words), count.map(words)));
        }
        let access_now = deployed.url.as_ref().map_or(UrlAccess::None, |(_, access)| *access);
        let url = wanted.url.filter(|access| *access != access_now);
        if let Some(access) = url {
            let words = |access: UrlAccess| access.auth().map(|_| access.word().to_owned());
            changes.push(Change::new("url", words(access_now), words(access)));
        }
        let triggers = trigger_steps(name, &wanted.triggers, &deployed.buckets, &mut changes);
        let schedule_now = deployed.schedule.as_ref();
        let schedule = wanted.schedule.clone().filter(|wanted| !wanted.is_done(name, schedule_now));
        if let Some(schedule) = &schedule {
            changes.push(Change::new("schedule", schedule_now.map(words_of), schedule.words()));
        }
        let machine = machine.filter(|definition| deployed.machine.as_deref() != Some(*definition));
        let is_scheduled = wanted.schedule.as_ref().is_some_and(|schedule| schedule.words().is_some());
        let changes_events = schedule.is_some() || !triggers.is_empty();
        let mixes_events = changes_events && is_scheduled && !wanted.triggers.wanted.is_empty();
        if machine.is_some() {
            let named = || name.to_string();
            changes.push(Change::new("workflow", deployed.machine.as_ref().map(|_| named()), Some(named())));
        }
        Self {
            name: name.clone(),
            is_new: now.is_none(),
            changes,
            settings,
            sends_code,
            reserved,
            url,
            triggers,
            schedule,
            machine: machine.map(str::to_owned),
            mixes_events,
        }
    }

    /// True if nothing changes.
    pub(crate) fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Checks that each bucket would accept its rules.
    ///
    /// # Errors
    /// The bucket, and what it would answer.
    pub(crate) fn check_triggers(&self, deployed: &Deployed) -> Result<(), (BucketName, ClientError)> {
        for (bucket, step) in &self.triggers {
            let before = deployed.buckets.get(bucket).cloned().unwrap_or_default();
            step.after(&before, &self.name, "").check().map_err(|error| (bucket.clone(), error))?;
        }
        Ok(())
    }

    /// What is printed above the changes.
    pub(crate) fn headline(&self) -> String {
        match (self.is_new, self.is_empty()) {
            (true, _) => format!("{} is new:", self.name),
            (false, true) => format!("{} does not change", self.name),
            (false, false) => format!("{} changes:", self.name),
        }
    }

    /// The changes, each with its mark and its line.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (Mark, String)> {
        let width = self.changes.iter().map(|change| change.what.chars().count()).max().unwrap_or_default();
        self.changes.iter().map(move |change| {
            let line = format!("  {} {:width$}  {}", change.mark.sign(), change.what, change.words());
            (change.mark, line.trim_end().to_owned())
        })
    }
}

/// The settings of `wanted` that the function does not have.
fn settings_that_differ(wanted: &FunctionChange, now: Option<&Value>, changes: &mut Vec<Change>) -> FunctionChange {
    let nothing = Value::Null;
    let (is_new, now) = (now.is_none(), now.unwrap_or(&nothing));
    let current = FunctionChange::back_to(now);
    // The value if it differs, and its line. A new function has nothing that would be told.
    let mut text = |what: &str, wanted: &Option<String>, now: Option<String>| {
        let differs = wanted.clone().filter(|wanted| is_new || now.as_ref() != Some(wanted))?;
        changes.push(Change::new(what, now.filter(|now| !is_new && !now.is_empty()), Some(differs.clone())));
        Some(differs)
    };
    let runtime = text("runtime", &wanted.runtime, current.runtime);
    let handler = text("handler", &wanted.handler, current.handler);
    let description = text("description", &wanted.description, current.description);
    let mut number = |what: &str, wanted: Option<u64>, now: Option<u64>, words: &dyn Fn(u64) -> String| {
        let differs = wanted.filter(|_| is_new || now != wanted)?;
        changes.push(Change::new(what, now.filter(|_| !is_new).map(words), Some(words(differs))));
        Some(differs)
    };
    let size = |mib: u64| ByteSize::mib(mib).to_string();
    let memory_mib = number("memory", wanted.memory_mib, current.memory_mib, &size);
    let timeout_s = number("timeout", wanted.timeout_s, current.timeout_s, &|seconds| format!("{seconds} s"));
    let ephemeral_mib = number("tmp", wanted.ephemeral_mib, current.ephemeral_mib, &size);
    let layers = wanted.layers.clone().filter(|layers| current.layers.as_ref() != Some(layers));
    if let Some(layers) = &layers {
        let words = |layers: &Vec<String>| (!layers.is_empty()).then(|| layers.join(", "));
        changes.push(Change::new("layers", current.layers.as_ref().and_then(words), words(layers)));
    }
    let (mut environment, mut variables) = (wanted.environment.clone(), wanted.variables.clone());
    let has = current.environment.unwrap_or_default();
    let mut target = environment.clone().unwrap_or_else(|| has.clone());
    target.extend(variables.clone());
    if target == has {
        (environment, variables) = (None, BTreeMap::new());
    }
    let names: BTreeSet<&String> = has.keys().chain(target.keys()).collect();
    for name in names.into_iter().filter(|name| has.get(*name) != target.get(*name)) {
        let shown = |values: &BTreeMap<String, String>| values.contains_key(name).then(|| name.clone());
        changes.push(Change::new("environment", shown(&has), shown(&target)));
    }
    FunctionChange {
        runtime,
        handler,
        memory_mib,
        timeout_s,
        ephemeral_mib,
        environment,
        variables,
        description,
        layers,
    }
}

/// True if the code is another one than the function has.
fn code_differs(code: &CodeSummary, now: Option<&DescribedFunction>, changes: &mut Vec<Change>) -> bool {
    let configuration = now.map(|now| &now.configuration);
    if configuration.and_then(|now| now["CodeSha256"].as_str()) == Some(code.sha256.as_str()) {
        return false;
    }
    let before = configuration.and_then(|now| now["CodeSize"].as_u64()).map(|size| ByteSize(size).to_string());
    let to = match code.files {
        Some(1) => format!("{} in 1 file", code.bytes),
        Some(files) => format!("{} in {files} files", code.bytes),
        None => code.bytes.to_string(),
    };
    changes.push(Change::new("code", before, Some(to)));
    true
}

fn trigger_steps(
    name: &FunctionName,
    change: &TriggerChange,
    buckets: &BTreeMap<BucketName, BucketNotifications>,
    changes: &mut Vec<Change>,
) -> BTreeMap<BucketName, TriggerStep> {
    let mut steps: BTreeMap<BucketName, TriggerStep> = BTreeMap::new();
    for (bucket, rules) in buckets {
        let mut rules = rules.triggers(name.as_str());
        rules.sort_by(|a, b| a.filter.cmp(&b.filter));
        for rule in rules {
            let trigger = Trigger { bucket: bucket.clone(), filter: rule.filter };
            let is_wanted = rule.is_own && change.wanted.contains(&trigger);
            let goes = match change.taken_back {
                TakenBack::Nothing => false,
                TakenBack::Own => rule.is_own && !is_wanted,
                TakenBack::All => !is_wanted,
            };
            if goes {
                steps.entry(bucket.clone()).or_default().removed.push(rule.id);
                changes.push(Change::new("trigger", Some(trigger.to_string()), None));
            }
        }
    }
    let wanted: BTreeSet<&Trigger> = change.wanted.iter().collect();
    for trigger in wanted {
        let rules = buckets.get(&trigger.bucket).map(|rules| rules.triggers(name.as_str())).unwrap_or_default();
        if !rules.iter().any(|rule| rule.is_own && rule.filter == trigger.filter) {
            steps.entry(trigger.bucket.clone()).or_default().added.push(trigger.filter.clone());
            changes.push(Change::new("trigger", None, Some(trigger.to_string())));
        }
    }
    steps
}

#[cfg(test)]
mod tests;
