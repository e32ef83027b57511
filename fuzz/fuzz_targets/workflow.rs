//! Whatever a definition and an input hold: no panic; what is read can be run to its end or to tasks, and whoever goes
//! through the same events finds the same commands.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use nigh_workflow::event::{Event, Facts, TaskEnd, ExecutionEvent};
use nigh_workflow::read;
use nigh_workflow::run::Run;
use nigh_terms::{Timestamp, Token};

fuzz_target!(|input: (&str, &str, Vec<(bool, u16)>)| {
    let (definition, given, ends) = input;
    let Ok(definition) = read(definition) else { return };
    let Ok(given) = serde_json::from_str::<serde_json::Value>(given) else { return };
    let (definition, started) = (Arc::new(definition), Timestamp(1_700_000_000_000));
    let start = || {
        let text = String::new;
        let facts =
            Facts { id: [1; 16], arn: text(), name: text(), machine_arn: text(), machine: text(), role: text(), started };
        Run::start(Arc::clone(&definition), facts, given.clone(), Token::empty(), true)
    };
    let ((mut run, first), (mut again, first_again)) = (start(), start());
    assert_eq!(first, first_again);
    let mut at = started;
    for (answers, wait) in ends {
        at = Timestamp(at.0 + u64::from(wait) * 100);
        let what = match run.outstanding().next().map(|task| task.task) {
            None => ExecutionEvent::Time,
            Some(task) if answers => {
                ExecutionEvent::Ended { task, end: TaskEnd::Answered(given.clone()), token: Token::empty() }
            }
            Some(task) => {
                let end = TaskEnd::Failed { error: "ValueError".to_owned(), cause: String::new() };
                ExecutionEvent::Ended { task, end, token: Token::empty() }
            }
        };
        let event = Event { at, what };
        assert_eq!(run.apply(&event), again.apply(&event));
    }
    assert_eq!(run.outcome(), again.outcome());
});
