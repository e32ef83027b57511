//! Whatever a function's process asks of its Runtime API, in whatever order: only the invocation that it has taken is
//! answered, and that once.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nigh_sandbox::runtime_protocol::{NextReply, Protocol, State};
use nigh_terms::InvocationId;

fuzz_target!(|steps: Vec<(u8, &str)>| {
    let mut protocol = Protocol::default();
    let mut taken = None;
    for (step, name) in steps {
        let before = protocol.state();
        let changed = match step % 6 {
            0 => match protocol.next() {
                Ok(NextReply::Take(id)) => {
                    assert_eq!((before, taken.replace(id)), (State::Assigned(id), None));
                    true
                }
                Ok(NextReply::Wait { initialised }) => initialised,
                Err(_) => false,
            },
            1 => protocol.assign(InvocationId::now()),
            2 => {
                let answered = protocol.answer(name);
                // Another spelling of the same identifier is the same.
                answered.map(|id| assert_eq!((name.parse(), taken.take()), (Ok(id), Some(id)))).is_ok()
            }
            3 => match taken {
                Some(id) => {
                    assert_eq!(protocol.answer(&id.to_string()), Ok(id));
                    taken = None;
                    true
                }
                None => false,
            },
            4 => protocol.init_error().is_ok(),
            _ => {
                assert_eq!(protocol.check_answer(name).is_ok(), taken.is_some_and(|id| name.parse() == Ok(id)));
                false
            }
        };
        assert_eq!(protocol.state() != before, changed);
    }
});
