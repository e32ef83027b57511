//! What of the looks is shown, and what each key does to it. Pure.

use super::frame::{Frame, ObjectOrder, Sort, TopView};
use super::keys::Key;
use super::page::{Page, PageRequest};
use super::row::{Cursor, Filter, Row, Target};
use super::source::{Look, LookRequest};
use super::window::{MARK_COLUMNS, window};

/// The longest filter, in characters.
const FILTER_MAX: usize = 60;
/// Rows that a page key moves the cursor by.
const PAGE_ROWS: isize = 10;
/// Pages over the lists; a further one takes the place of the last.
const PAGES_MAX: usize = 8;

const LIST_HELP: &str = "1-4 view  / filter  f faults  s sort  Enter detail  l log  space freeze  q end";
const PAGE_HELP: &str = "j k up, down  Enter detail  l log  Esc back  q end";

/// What a key asks the shell to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// Draw again.
    Draw,
    /// Take a look now, and draw it.
    Look,
    /// Get a page, and give it to `open`.
    Open(PageRequest),
    Quit,
}

/// The state of the screen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TopState {
    view: TopView,
    sort: Sort,
    object_order: ObjectOrder,
    filter: String,
    /// True while the filter is typed.
    is_typing: bool,
    faults_only: bool,
    is_frozen: bool,
    cursor: Cursor,
    /// The pages over the lists; the last is seen.
    pages: Vec<Page>,
    /// What went wrong at the last key.
    trouble: Option<String>,
}

impl TopState {
    pub(super) const fn is_frozen(&self) -> bool {
        self.is_frozen
    }

    /// What the next look is asked for.
    pub(super) fn request(&self) -> LookRequest {
        let with_objects = self.view == TopView::Objects;
        LookRequest { sort: self.sort, is_filtered: !self.filter.is_empty() || self.faults_only, with_objects }
    }

    /// The frame of `look`; `cut`: for how many seconds the node has not answered, and why.
    pub(super) fn frame<'a>(
        &'a self,
        look: &'a Look,
        earlier: Option<&'a Look>,
        cut: Option<(u64, &'a str)>,
    ) -> Frame<'a> {
        Frame {
            look,
            earlier,
            view: self.view,
            sort: self.sort,
            object_order: self.object_order,
            filter: Filter { text: &self.filter, faults_only: self.faults_only },
            is_frozen: self.is_frozen,
            cut,
        }
    }

    /// The rows that the cursor moves on, in a screen of `width` columns.
    pub(super) fn rows(&self, frame: Option<&Frame<'_>>, width: usize) -> Vec<Row> {
        match (self.pages.last(), frame) {
            (Some(page), _) => page.rows.clone(),
            (None, Some(frame)) => frame.body(width.saturating_sub(MARK_COLUMNS)).rows,
            (None, None) => Vec::new(),
        }
    }

    /// The lines of a screen of this size.
    pub(super) fn screen(&self, frame: &Frame<'_>, size: (usize, usize)) -> Vec<String> {
        let foot = self.foot();
        if let Some(page) = self.pages.last() {
            return window(&[frame.title(), page.title()], &page.rows, &page.cursor, &foot, size);
        }
        let body = frame.body(size.0.saturating_sub(MARK_COLUMNS));
        // A heading stands over its column.
        let head = body.head.iter().map(|line| format!("{}{line}", " ".repeat(MARK_COLUMNS)));
        let head: Vec<String> = std::iter::once(frame.title()).chain(head).collect();
        window(&head, &body.rows, &self.cursor, &foot, size)
    }

    fn foot(&self) -> String {
        if self.is_typing {
            return format!("/{}_  a part of a name, ! in front: all others; Enter keeps it, Esc ends it", self.filter);
        }
        match &self.trouble {
            Some(why) => why.clone(),
            None if self.pages.is_empty() => LIST_HELP.to_owned(),
            None => PAGE_HELP.to_owned(),
        }
    }

    /// A page has come, or why it has not.
    pub(super) fn open(&mut self, request: PageRequest, rows: Result<Vec<Row>, String>) {
        match rows {
            Ok(rows) => {
                self.pages.truncate(PAGES_MAX - 1);
                self.pages.push(Page::new(request, rows));
            }
            Err(why) => self.trouble = Some(why),
        }
    }

    /// What `key` does, while `rows` are seen.
    pub(super) fn press(&mut self, key: Key, rows: &[Row]) -> Command {
        self.trouble = None;
        if self.is_typing {
            return self.typed(key);
        }
        match key {
            Key::Char('q') => Command::Quit,
            Key::Up | Key::Char('k') => self.moved(rows, -1),
            Key::Down | Key::Char('j') => self.moved(rows, 1),
            Key::PageUp => self.moved(rows, -PAGE_ROWS),
            Key::PageDown => self.moved(rows, PAGE_ROWS),
            Key::Enter => self.opened(rows, false),
            Key::Char('l') => self.opened(rows, true),
            Key::Escape => self.back(),
            Key::Char(' ') => {
                self.is_frozen = !self.is_frozen;
                Command::Look
            }
            Key::Char(key) => self.chosen(key),
            Key::Backspace => Command::Draw,
        }
    }

    /// Keys that choose what the lists show.
    fn chosen(&mut self, key: char) -> Command {
        match key {
            '1'..='4' => {
                let place = key as usize - '1' as usize;
                if let Some(view) = TopView::ALL.get(place) {
                    (self.view, self.cursor) = (*view, Cursor::default());
                    self.pages.clear();
                }
                Command::Look
            }
            's' if self.view == TopView::Objects => {
                self.object_order = self.object_order.next();
                Command::Draw
            }
            's' => {
                self.sort = self.sort.next();
                Command::Look
            }
            'f' => {
                self.faults_only = !self.faults_only;
                Command::Look
            }
            '/' if self.pages.is_empty() => {
                self.is_typing = true;
                Command::Draw
            }
            _ => Command::Draw,
        }
    }

    fn typed(&mut self, key: Key) -> Command {
        match key {
            Key::Char(c) if self.filter.chars().count() < FILTER_MAX => self.filter.push(c),
            Key::Backspace => {
                self.filter.pop();
            }
            Key::Enter => self.is_typing = false,
            Key::Escape => {
                self.is_typing = false;
                self.filter.clear();
            }
            Key::Char(_) | Key::Up | Key::Down | Key::PageUp | Key::PageDown => return Command::Draw,
        }
        Command::Look
    }

    /// Closes the last page; without pages ends the filter.
    fn back(&mut self) -> Command {
        if self.pages.pop().is_some() {
            return Command::Draw;
        }
        self.filter.clear();
        Command::Look
    }

    fn moved(&mut self, rows: &[Row], rows_down: isize) -> Command {
        let cursor = self.pages.last_mut().map_or(&mut self.cursor, |page| &mut page.cursor);
        cursor.step(rows, rows_down);
        Command::Draw
    }

    /// Opens the details or the log of what the cursor is on. On the page of an invocation the log is its own, on another page
    /// if the cursor is on nothing that has one.
    fn opened(&mut self, rows: &[Row], is_log: bool) -> Command {
        let page = self.pages.last();
        let cursor = page.map_or(&self.cursor, |page| &page.cursor);
        let own = page.map(|page| &page.of.target).filter(|_| is_log);
        let is_invocation = matches!(own, Some(Target::Invocation(_) | Target::Event(_)));
        let target = if is_invocation { own } else { cursor.target(rows).or(own) };
        let Some(target) = target else {
            self.trouble = Some("nothing can be opened here: move to a row with a name or an id".to_owned());
            return Command::Draw;
        };
        Command::Open(PageRequest { target: target.clone(), is_log })
    }
}

#[cfg(test)]
mod tests;
