//! What keys do.

use serde_json::json;

use super::*;

fn rows(names: &[&str]) -> Vec<Row> {
    names.iter().map(|name| Row::of(Target::Function((*name).to_owned()), (*name).to_owned())).collect()
}

fn press(state: &mut TopState, keys: &str, rows: &[Row]) -> Command {
    let pressed = keys.chars().map(|c| match c {
        '\n' => Key::Enter,
        '\u{1b}' => Key::Escape,
        c => Key::Char(c),
    });
    pressed.fold(Command::Draw, |_, key| state.press(key, rows))
}

fn look() -> Look {
    Look {
        hierarchy: json!({"status": {"node": "node-1"}}),
        functions: json!({"order": ["blur", "idle"], "functions": {"blur": {"errors": 1}, "idle": {}}}),
        objects: json!({"objects": []}),
        events: json!({"events": []}),
    }
}

#[test]
fn a_digit_shows_a_view_and_only_objects_are_asked_for_when_they_are_seen() {
    let mut state = TopState::default();
    assert!(!state.request().with_objects);
    assert_eq!(press(&mut state, "3", &[]), Command::Look);
    assert_eq!((state.view, state.request().with_objects), (TopView::Objects, true));
    assert_eq!(press(&mut state, "s", &[]), Command::Draw);
    assert_eq!(state.object_order, ObjectOrder::Copies);
    assert_eq!(press(&mut state, "2s", &[]), Command::Look);
    assert_eq!((state.view, state.request().sort), (TopView::Functions, Sort::Runs));
    assert_eq!(press(&mut state, "q", &[]), Command::Quit);
}

#[test]
fn what_is_typed_after_a_slash_filters_until_escape() {
    let mut state = TopState::default();
    press(&mut state, "2/blqq", &[]);
    assert!(state.is_typing && state.filter == "blqq", "q is a letter now: {state:?}");
    assert_eq!(state.press(Key::Backspace, &[]), Command::Look);
    assert!(state.foot().starts_with("/blq_"), "{}", state.foot());
    press(&mut state, "\n", &[]);
    assert!(!state.is_typing && state.request().is_filtered);
    press(&mut state, "\u{1b}", &[]);
    assert!(state.filter.is_empty() && !state.request().is_filtered);
    press(&mut state, &format!("/{}", "x".repeat(500)), &[]);
    assert_eq!(state.filter.len(), FILTER_MAX);
}

#[test]
fn enter_opens_what_the_cursor_is_on_and_escape_goes_back() {
    let mut state = TopState::default();
    let list = rows(&["blur", "idle"]);
    let request = PageRequest { target: Target::Function("idle".to_owned()), is_log: false };
    assert_eq!(press(&mut state, "2j\n", &list), Command::Open(request.clone()));
    let run = Row::of(Target::Invocation("id".to_owned()), String::new());
    state.open(request, Ok(vec![Row::plain("head"), run]));
    let page = state.rows(None, 80);
    assert_eq!(page.len(), 2);
    let of_function = PageRequest { target: Target::Function("idle".to_owned()), is_log: true };
    assert_eq!(press(&mut state, "l", &page), Command::Open(of_function), "the page's own log");
    let of_run = PageRequest { target: Target::Invocation("id".to_owned()), is_log: false };
    assert_eq!(press(&mut state, "j\n", &page), Command::Open(of_run.clone()));
    state.open(of_run, Ok(rows(&["blur"])));
    let own_log = PageRequest { target: Target::Invocation("id".to_owned()), is_log: true };
    let page = state.rows(None, 80);
    assert_eq!(press(&mut state, "l", &page), Command::Open(own_log), "not that of the function it names");
    assert_eq!(press(&mut state, "\u{1b}\u{1b}", &[]), Command::Draw);
    assert!(state.pages.is_empty());
    for _ in 0..2 * PAGES_MAX {
        state.open(PageRequest { target: Target::Event("id".to_owned()), is_log: true }, Ok(Vec::new()));
    }
    assert_eq!(state.pages.len(), PAGES_MAX);
}

#[test]
fn a_row_that_opens_nothing_and_a_page_that_does_not_come_say_why_until_the_next_key() {
    let mut state = TopState::default();
    assert_eq!(press(&mut state, "\n", &[Row::plain("memory")]), Command::Draw);
    assert!(state.foot().starts_with("nothing can be opened here"), "{}", state.foot());
    state.open(PageRequest { target: Target::Event("id".to_owned()), is_log: true }, Err("it is away".to_owned()));
    assert_eq!((state.foot(), state.pages.len()), ("it is away".to_owned(), 0));
    press(&mut state, "k", &[]);
    assert_eq!(state.foot(), LIST_HELP);
}

#[test]
fn a_screen_of_80_by_24_has_the_title_the_marked_row_and_the_keys() {
    let (look, mut state) = (look(), TopState::default());
    press(&mut state, "2", &[]);
    let list = state.rows(Some(&state.frame(&look, None, None)), 80);
    press(&mut state, "j", &list);
    let lines = state.screen(&state.frame(&look, None, None), (80, 24));
    assert_eq!(lines.len(), 24);
    assert!(lines.iter().all(|line| line.chars().count() <= 80), "{lines:#?}");
    assert!(lines[0].starts_with("node-1") && lines[2].starts_with("  FUNCTION"), "{lines:#?}");
    assert!(lines[3].starts_with("  blur") && lines[4].starts_with("> idle"), "{lines:#?}");
    assert_eq!(lines[23], LIST_HELP);
    press(&mut state, "f", &list);
    let lines = state.screen(&state.frame(&look, None, None), (80, 24));
    assert!(lines[0].contains("FAULTS ONLY") && lines[3].starts_with("> blur") && lines[4].is_empty(), "{lines:#?}");
    state.open(PageRequest { target: Target::Function("blur".to_owned()), is_log: false }, Ok(rows(&["one"])));
    let lines = state.screen(&state.frame(&look, None, None), (80, 24));
    assert_eq!((lines[1].as_str(), lines[2].as_str()), ("function blur", "> one"));
    assert_eq!(lines[23], PAGE_HELP);
}
