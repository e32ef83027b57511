//! A running invocation: the class that it was placed into, and how that class changed during the run. Pure.

use nigh_functions::function::Function;
use nigh_llc::resctrl::Members;
use nigh_llc::{ClosLayout, PlacementDecision, Ticket};
use nigh_terms::{ClosId, FunctionName, Monotonic, Namespace, SandboxId, WayMask};

/// Invocations with the same code and about the same size of data. They share their curves.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct InvocationKind {
    namespace: Namespace,
    function: FunctionName,
    code_sha256: String,
    /// The logarithm to base 2 of the bytes of data, rounded down.
    size_octave: u32,
}

impl InvocationKind {
    pub(super) fn of(function: &Function, bytes: u64) -> Self {
        Self {
            namespace: function.namespace.clone(),
            function: function.name.clone(),
            code_sha256: function.code_sha256.clone(),
            size_octave: bytes.max(1).ilog2(),
        }
    }
}

/// An invocation that runs.
#[derive(Debug)]
pub(super) struct RunningInvocation {
    pub(super) ticket: Ticket,
    pub(super) sandbox: SandboxId,
    /// The sandbox's tasks; none if the sandbox engine does not know them.
    pub(super) tasks: Option<Members>,
    /// None if no need is predicted.
    pub(super) kind: Option<InvocationKind>,
    pub(super) class: CurrentClass,
}

/// The class of a running invocation and the class's ways. Both may change during the run.
#[derive(Debug)]
pub(super) struct CurrentClass {
    clos: ClosId,
    mask: WayMask,
    placed: Monotonic,
    since: Monotonic,
    changes: u32,
    /// Why the system refused the last change.
    refused: Option<String>,
}

impl CurrentClass {
    /// The class that the invocation was placed into at `now`.
    pub(super) const fn new(placed: &PlacementDecision, now: Monotonic) -> Self {
        Self { clos: placed.clos, mask: placed.mask, placed: now, since: now, changes: 0, refused: None }
    }

    /// The invocation belongs to class `clos` of `layout` now.
    pub(super) fn follow(&mut self, layout: &ClosLayout, clos: ClosId, now: Monotonic) {
        let Some(class) = layout.class(clos) else { return };
        if (self.clos, self.mask) != (clos, class.mask) {
            let changes = self.changes.saturating_add(1);
            *self = Self { clos, mask: class.mask, since: now, changes, refused: None, ..*self };
        }
    }

    /// The system refused the change.
    pub(super) fn refused(&mut self, reason: String) {
        self.refused = Some(reason);
    }

    /// The changes since the placement, in words; none if nothing has changed.
    pub(super) fn words(&self) -> Option<String> {
        let how = match self.changes {
            0 => return None,
            1 => "the classes changed while it ran".to_owned(),
            more => format!("the classes changed {more} times while it ran"),
        };
        let after = self.since.since(self.placed).as_micros() as f64 / 1000.0;
        let refused = self.refused.as_ref().map_or_else(String::new, |reason| format!("; not bound: {reason}"));
        Some(format!("{how}: class {} (mask {}) after {after:.1} ms{refused}", self.clos, self.mask))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use nigh_llc::{CacheShape, CasyRequest, PlacedBecause};
    use nigh_terms::Ways;

    use super::*;

    #[test]
    fn what_changed_is_told_with_its_time_and_what_the_machine_refused() {
        let shape = CacheShape { ways: Ways(11), classes: 8, min_ways: Ways(1), shareable: WayMask::EMPTY };
        let layout = |insensitive| ClosLayout::casy(&CasyRequest::of(shape, Ways(insensitive))).unwrap();
        let (before, after) = (layout(3), layout(0));
        let clos =
            before.classes().iter().find(|class| after.class(class.id).is_some_and(|now| now.mask != class.mask));
        let (clos, mask) = clos.map(|class| (class.id, class.mask)).unwrap();
        let placed = PlacementDecision { clos, mask, because: PlacedBecause::NoModel };
        let at = |millis| Monotonic(0).after(Duration::from_millis(millis));
        let mut stay = CurrentClass::new(&placed, at(100));
        stay.follow(&before, clos, at(101));
        assert_eq!(stay.words(), None);
        // The same class gets other ways; then the invocation gets another class.
        let ways = after.class(clos).unwrap().mask;
        stay.follow(&after, clos, at(112));
        stay.follow(&after, clos, at(113));
        let once = format!("the classes changed while it ran: class {clos} (mask {ways}) after 12.0 ms");
        assert_eq!(stay.words(), Some(once));
        stay.follow(&after, ClosId::DEFAULT, at(120));
        stay.refused("No space left on device".to_owned());
        let words = stay.words().unwrap();
        assert!(
            words.starts_with("the classes changed 2 times while it ran: class 0 (mask 7ff) after 20.0 ms"),
            "{words}"
        );
        assert!(words.ends_with("; not bound: No space left on device"), "{words}");
        stay.follow(&after, clos, at(130));
        assert!(!stay.words().unwrap().contains("not bound"));
    }
}
