//! Child threads: the branches of a `Parallel`, the iterations of a `Map`. Pure.

use std::sync::Arc;

use nigh_terms::Token;
use serde_json::{Value, json};

use super::thread::{ThreadActivity, ThreadId};
use super::{Failure, Run, Step};
use crate::language::context::MapItem;
use crate::language::definition::{Count, Kind, Map, Scope};
use crate::language::error_names;
use crate::language::path::Path;
use crate::language::template::Sight;

/// Concurrent iterations of a map that sets no limit (Step Functions: 40).
const AT_ONCE: usize = 40;
/// The most concurrent iterations.
const AT_ONCE_MAX: usize = 1000;

/// The state of a thread's children.
pub(super) struct Children {
    /// The output of each child, by its index; none until it has ended.
    outputs: Vec<Option<Value>>,
    left: usize,
    running: usize,
    at_once: usize,
    /// The items of a map; empty for a `Parallel`.
    items: Vec<Value>,
    /// The index of the next iteration.
    next: usize,
    /// The effective input of a map, for its selector.
    input: Arc<Value>,
    failed: usize,
    tolerated: ToleratedFailures,
}

/// How many iterations of a map may fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ToleratedFailures {
    /// None: the first failure is the state's own.
    None,
    Count(usize),
}

impl Run {
    pub(super) fn begin_branches(&mut self, id: ThreadId, branches: &[Arc<Scope>], input: Value) {
        let Some(thread) = self.threads.get_mut(&id) else { return };
        let (token, item) = (thread.token.clone(), thread.item.clone());
        let count = branches.len();
        thread.doing = ThreadActivity::Children(Children {
            outputs: vec![None; count],
            left: count,
            running: count,
            at_once: count,
            items: Vec::new(),
            next: count,
            input: Arc::default(),
            failed: 0,
            tolerated: ToleratedFailures::None,
        });
        let shown = self.showing.show(thread.shown, self.now, || "ParallelStateStarted".to_owned(), || None);
        thread.shown = shown;
        let input = Arc::new(input);
        for (index, branch) in branches.iter().enumerate() {
            self.begin_thread(Some((id, index)), branch, Arc::clone(&input), item.clone(), token.clone(), shown);
        }
    }

    pub(super) fn begin_map(&mut self, id: ThreadId, map: &Map, input: Value) -> Step {
        let whole_input = Arc::clone(&self.input);
        let Some(thread) = self.threads.get(&id) else { return Ok(()) };
        let context = thread.context(&self.facts, &whole_input);
        let sight = Sight { input: &input, context: &context };
        let found = match &map.items {
            Some(path) => sight.find(path)?,
            None => input.clone(),
        };
        let Value::Array(items) = found else {
            let place = map.items.as_ref().map_or("$", Path::text);
            return Err(Failure::new(error_names::RUNTIME, format!("the items of the map, {place}, are no array")));
        };
        let at_once = match count(&map.concurrency, &sight)? {
            0 => AT_ONCE,
            most => most.min(AT_ONCE_MAX),
        };
        let by_count = map.tolerated_count.as_ref().map(|tolerated| count(tolerated, &sight)).transpose()?;
        let percent = map.tolerated_percent.as_ref().map(|tolerated| count(tolerated, &sight)).transpose()?;
        let by_percent = percent.map(|percent| items.len() * percent.min(100) / 100);
        let tolerated = match (by_count, by_percent) {
            (None, None) => ToleratedFailures::None,
            // The lower limit counts.
            (left, right) => ToleratedFailures::Count(left.unwrap_or(usize::MAX).min(right.unwrap_or(usize::MAX))),
        };
        let length = items.len();
        let children = Children {
            outputs: vec![None; length],
            left: length,
            running: 0,
            at_once,
            items,
            next: 0,
            input: Arc::new(input),
            failed: 0,
            tolerated,
        };
        let Some(thread) = self.threads.get_mut(&id) else { return Ok(()) };
        thread.doing = ThreadActivity::Children(children);
        thread.shown = self.showing.show(
            thread.shown,
            self.now,
            || "MapStateStarted".to_owned(),
            || Some(("mapStateStartedEventDetails", json!({ "length": length }))),
        );
        if length == 0 { self.children_ended(id) } else { self.begin_iterations(id) }
    }

    /// Starts as many iterations as may run at a time.
    fn begin_iterations(&mut self, id: ThreadId) -> Step {
        let whole_input = Arc::clone(&self.input);
        loop {
            let Some(thread) = self.threads.get_mut(&id) else { return Ok(()) };
            let state = Arc::clone(&thread.state);
            let (ThreadActivity::Children(children), Kind::Map(map)) = (&mut thread.doing, &state.kind) else {
                return Ok(());
            };
            if children.running >= children.at_once || children.next >= children.items.len() {
                return Ok(());
            }
            let index = children.next;
            children.next += 1;
            children.running += 1;
            let value = children.items.get_mut(index).map(Value::take).unwrap_or_default();
            let item = Arc::new(MapItem { index, value });
            let given = match &map.selector {
                None => item.value.clone(),
                Some(selector) => {
                    let input = Arc::clone(&children.input);
                    let mut context = thread.context(&self.facts, &whole_input);
                    context.item = Some(&item);
                    selector.value(&Sight { input: &input, context: &context }, &mut self.chance)?
                }
            };
            let (name, token) = (Arc::clone(&thread.state.name), thread.token.clone());
            let shown = self.showing.show(
                thread.shown,
                self.now,
                || "MapIterationStarted".to_owned(),
                || Some(("mapIterationStartedEventDetails", json!({ "name": name, "index": index }))),
            );
            let processor = Arc::clone(&map.processor);
            self.begin_thread(Some((id, index)), &processor, Arc::new(given), Some(item), token, shown);
        }
    }

    /// The child `child` of `parent` has ended its scope.
    pub(super) fn child_ended(&mut self, parent: ThreadId, child: ThreadId, index: usize, output: Value) {
        self.child_over(parent, child, index, output, "MapIterationSucceeded");
    }

    /// The child `child` of `parent` has failed: the parent's state fails too, unless it tolerates that.
    pub(super) fn child_failed(&mut self, parent: ThreadId, child: ThreadId, index: usize, failure: &Failure) {
        let Some(thread) = self.threads.get_mut(&parent) else { return };
        let is_map = matches!(thread.state.kind, Kind::Map(_));
        let ThreadActivity::Children(children) = &mut thread.doing else { return };
        children.failed += 1;
        let failed = children.failed;
        match children.tolerated {
            ToleratedFailures::Count(most) if failed <= most => {
                let told = json!({ "Error": failure.error, "Cause": failure.cause });
                self.child_over(parent, child, index, told, "MapIterationFailed");
            }
            tolerated => {
                let kind = if is_map { "MapStateFailed" } else { "ParallelStateFailed" };
                thread.shown = self.showing.show(thread.shown, self.now, || kind.to_owned(), || None);
                let failure = if let ToleratedFailures::Count(most) = tolerated {
                    let cause = format!("{failed} iterations failed, {most} may; the last: {}", failure.error);
                    Failure::new(error_names::TOLERANCE, cause)
                } else {
                    let also = (!is_map).then_some(error_names::BRANCH_FAILED);
                    Failure { also, ..failure.clone() }
                };
                self.fail_state(parent, failure);
            }
        }
    }

    /// Ends all threads below `parent` and adds their tokens to its own.
    pub(super) fn take_children(&mut self, parent: ThreadId) {
        if !self.threads.get(&parent).is_some_and(|thread| matches!(thread.doing, ThreadActivity::Children(_))) {
            return;
        }
        let below: Vec<ThreadId> = self
            .threads
            .range(parent..)
            .filter(|(_, thread)| thread.parent.is_some_and(|(of, _)| of == parent))
            .map(|(id, _)| *id)
            .collect();
        for child in below {
            if let Some(gone) = self.remove_thread(child) {
                self.join_token(parent, &gone.token);
            }
        }
    }

    fn join_token(&mut self, id: ThreadId, token: &Token) {
        if let Some(thread) = self.threads.get_mut(&id) {
            thread.token.join(token);
        }
    }

    fn child_over(&mut self, parent: ThreadId, child: ThreadId, index: usize, output: Value, iteration: &'static str) {
        let Some(gone) = self.remove_thread(child) else { return };
        self.join_token(parent, &gone.token);
        let Some(thread) = self.threads.get_mut(&parent) else { return };
        let is_map = matches!(thread.state.kind, Kind::Map(_));
        let name = Arc::clone(&thread.state.name);
        let ThreadActivity::Children(children) = &mut thread.doing else { return };
        if let Some(place) = children.outputs.get_mut(index) {
            *place = Some(output);
        }
        children.left -= 1;
        children.running -= 1;
        let left = children.left;
        if is_map {
            let member = match iteration {
                "MapIterationSucceeded" => "mapIterationSucceededEventDetails",
                _ => "mapIterationFailedEventDetails",
            };
            self.showing.show(
                gone.shown,
                self.now,
                || iteration.to_owned(),
                || Some((member, json!({ "name": name, "index": index }))),
            );
        }
        let step = if left == 0 { self.children_ended(parent) } else { self.begin_iterations(parent) };
        self.stepped(parent, step);
    }

    fn children_ended(&mut self, id: ThreadId) -> Step {
        let Some(thread) = self.threads.get_mut(&id) else { return Ok(()) };
        let is_map = matches!(thread.state.kind, Kind::Map(_));
        let ThreadActivity::Children(children) = &mut thread.doing else { return Ok(()) };
        let outputs = std::mem::take(&mut children.outputs);
        let kind = if is_map { "MapStateSucceeded" } else { "ParallelStateSucceeded" };
        thread.shown = self.showing.show(thread.shown, self.now, || kind.to_owned(), || None);
        self.result(id, outputs.into_iter().map(Option::unwrap_or_default).collect())
    }
}

fn count(count: &Count, sight: &Sight<'_>) -> Result<usize, Failure> {
    match count {
        Count::Fixed(number) => Ok(*number as usize),
        Count::Path(path) => {
            let found = sight.find(path)?;
            let number = found.as_u64().and_then(|number| usize::try_from(number).ok());
            let wrong = || Failure::new(error_names::RUNTIME, format!("{} is no whole number", path.text()));
            number.ok_or_else(wrong)
        }
    }
}
