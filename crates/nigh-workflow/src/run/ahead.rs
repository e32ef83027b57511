//! The functions that may be invoked when the running tasks have ended, and the known parts of their inputs. Pure.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use nigh_invoke::invocation::UpcomingInvocation;
use nigh_terms::FunctionName;
use serde_json::Value;

use super::Run;
use super::data::{by_path, effective, filled};
use super::thread::{Thread, ThreadActivity};
use crate::language::context::Context;
use crate::language::definition::{Kind, Resource, Scope, State, StateName};
use crate::language::template::Sight;

/// The most states that are searched for the next functions.
const STATES_MAX: usize = 64;
/// Stands for an unknown result; an input that contains it is unknown.
const UNKNOWN: &str = "\u{fffd}not known before the end";

impl Run {
    /// The invocations that may follow the running tasks; without the running functions, whose sandboxes will be free
    /// then.
    #[must_use]
    pub fn ahead(&self) -> Vec<UpcomingInvocation> {
        let (mut all, mut looked) = (Vec::new(), BTreeSet::new());
        let mut known: BTreeSet<FunctionName> = self.outstanding().map(|task| task.function.clone()).collect();
        for thread in self.threads.values() {
            let after = match &thread.doing {
                ThreadActivity::Task { task } => self.tasks.get(task).map(|(_, run)| run.invocation),
                ThreadActivity::Waiting { .. } => None,
                ThreadActivity::Trying | ThreadActivity::BackingOff | ThreadActivity::Children(_) => continue,
            };
            let Some(next) = &thread.state.next else { continue };
            let mut functions = BTreeSet::new();
            leads_to(&thread.scope, next, &mut functions, &mut looked);
            functions.retain(|function| known.insert(function.clone()));
            let directly = thread.scope.states.get(next).filter(|_| !functions.is_empty());
            let input = directly.and_then(|state| self.input_of(thread, state));
            all.extend(functions.into_iter().map(|function| UpcomingInvocation {
                function,
                input: input.clone(),
                after,
            }));
        }
        all
    }

    /// The input of the task `next`, which follows `thread`'s present state; none if it depends on how that ends.
    fn input_of(&self, thread: &Thread, next: &State) -> Option<Bytes> {
        let Kind::Task(task) = &next.kind else { return None };
        let context = thread.context(&self.facts, &self.input);
        let output = match &thread.doing {
            ThreadActivity::Waiting { output } => output.clone(),
            _ => {
                let input = Value::clone(&thread.input);
                let output = match &thread.state.result_path {
                    None => input,
                    Some(path) => path.set(input, UNKNOWN.into()).ok()?,
                };
                by_path(thread.state.output_path.as_ref(), &Sight { input: &output, context: &context }).ok()?
            }
        };
        let context = Context { state: &next.name, entered: self.now, retries: 0, ..context };
        let input = effective(next, &output, &context).ok()?;
        let mut payload = filled(next.parameters.as_ref(), input, &context, &mut self.chance.clone()).ok()?;
        if task.resource == Resource::Invoke {
            payload = payload.get_mut("Payload")?.take();
        }
        let text = payload.to_string();
        (!text.contains(UNKNOWN)).then(|| text.into())
    }
}

/// The functions of the first tasks from the state `name` on.
fn leads_to(scope: &Scope, name: &StateName, found: &mut BTreeSet<FunctionName>, looked: &mut BTreeSet<StateName>) {
    if looked.len() >= STATES_MAX || !looked.insert(Arc::clone(name)) {
        return;
    }
    let Some(state) = scope.states.get(name) else { return };
    match &state.kind {
        Kind::Task(task) => found.extend(task.function.clone()),
        Kind::Choice { rules, default } => {
            for next in rules.iter().map(|(_, next)| next).chain(default) {
                leads_to(scope, next, found, looked);
            }
        }
        Kind::Parallel(branches) => {
            for branch in branches {
                leads_to(branch, &branch.start, found, looked);
            }
        }
        Kind::Map(map) => leads_to(&map.processor, &map.processor.start, found, looked),
        Kind::Pass(_) | Kind::Wait(_) => {
            if let Some(next) = &state.next {
                leads_to(scope, next, found, looked);
            }
        }
        Kind::Succeed | Kind::Fail { .. } => {}
    }
}
