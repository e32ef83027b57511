//! A frame of `nigh top`: a look's documents as lines of text. Pure.

mod hierarchy;
mod lists;

use serde_json::Value;

use super::fields::{members, text, whole};
use super::row::{Body, Filter};
use super::source::Look;
use crate::output::span;
use crate::printable::shortened;

/// What is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum TopView {
    #[default]
    Hierarchy,
    Functions,
    Objects,
    Events,
}

impl TopView {
    /// All of them, in the order of their keys.
    pub(super) const ALL: [Self; 4] = [Self::Hierarchy, Self::Functions, Self::Objects, Self::Events];
}

/// Which functions stand first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sort {
    #[default]
    Time,
    Runs,
    Errors,
    Slowest,
}

impl Sort {
    /// The parameter `sort` of the view.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Time => "time",
            Self::Runs => "runs",
            Self::Errors => "errors",
            Self::Slowest => "slowest",
        }
    }

    pub(super) const fn next(self) -> Self {
        match self {
            Self::Time => Self::Runs,
            Self::Runs => Self::Errors,
            Self::Errors => Self::Slowest,
            Self::Slowest => Self::Time,
        }
    }
}

/// Which of the largest objects stand first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ObjectOrder {
    /// Those that take most memory here.
    #[default]
    Bytes,
    /// Those of which most nodes have copies.
    Copies,
}

impl ObjectOrder {
    pub(super) const fn next(self) -> Self {
        match self {
            Self::Bytes => Self::Copies,
            Self::Copies => Self::Bytes,
        }
    }
}

/// What a frame is made of.
pub(super) struct Frame<'a> {
    pub(super) look: &'a Look,
    /// The look before, for rates.
    pub(super) earlier: Option<&'a Look>,
    pub(super) view: TopView,
    pub(super) sort: Sort,
    pub(super) object_order: ObjectOrder,
    pub(super) filter: Filter<'a>,
    pub(super) is_frozen: bool,
    /// For how many seconds the node has not answered, and why.
    pub(super) cut: Option<(u64, &'a str)>,
}

impl Frame<'_> {
    /// The frame as text: at most `height` lines of at most `width` columns.
    pub(super) fn lines(&self, width: usize, height: usize) -> Vec<String> {
        let Body { head, rows } = self.body(width);
        let rows = rows.into_iter().map(|row| row.text);
        let lines = std::iter::once(self.title()).chain(head).chain(rows);
        lines.take(height).map(|line| shortened(&line, width).into_owned()).collect()
    }

    /// What stands below the first line, in `width` columns.
    pub(super) fn body(&self, width: usize) -> Body {
        match self.view {
            TopView::Hierarchy => self.hierarchy(width),
            TopView::Functions => shown(&self.look.functions, |list| self.functions(list, width)),
            TopView::Objects => shown(&self.look.objects, |list| self.objects(list, width)),
            TopView::Events => shown(&self.look.events, |list| self.events(list, width)),
        }
    }

    /// The first line: which node it is, and how it does.
    pub(super) fn title(&self) -> String {
        let status = &self.look.hierarchy["status"];
        let (node, version) = (text(status, "/node"), text(status, "/version"));
        let mut title = format!("{node}  nigh {version}  up {}", span(whole(status, "/uptime_s")));
        if let Some(name) = status.pointer("/cluster/name").and_then(Value::as_str) {
            title += &format!("  cluster {name}, {} others", members(&self.look.hierarchy, "/members").count());
        }
        if status.pointer("/draining").is_some_and(|draining| !draining.is_null()) {
            title += "  DRAINING";
        }
        match self.cut {
            Some((seconds, why)) => title += &format!("  CUT OFF {seconds} s: {why}"),
            None if self.is_frozen => title += "  FROZEN",
            None => {}
        }
        if self.filter.faults_only {
            title += "  FAULTS ONLY";
        }
        if !self.filter.text.is_empty() {
            title += &format!("  /{}", self.filter.text);
        }
        title
    }
}

/// The document as `body` has it, or why it is not there.
fn shown(document: &Value, body: impl FnOnce(&Value) -> Body) -> Body {
    if let Some(why) = document.get("refused").and_then(Value::as_str) {
        return Body { head: vec![format!("The node refused: {why}")], ..Body::default() };
    }
    if document.is_null() {
        return Body { head: vec!["Not in this look.".to_owned()], ..Body::default() };
    }
    body(document)
}

#[cfg(test)]
mod tests;
