//! What `nigh dev` does next: events come in, actions go out. Pure.
//!
//! One deployment and one trial run at a time. What is saved during a deployment is deployed after it; a deployment that
//! failed is owed in full, so that the next save does all that it should have done.

use serde::Serialize;

/// How much of the project is deployed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Scope {
    /// The code: the settings are deployed.
    Code,
    /// The code and all that `nigh.toml` says.
    All,
}

/// What happened.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Event {
    /// Files were saved.
    Saved {
        /// Their names, relative to the folder.
        files: Vec<String>,
        /// True if `nigh.toml` is one of them.
        settings: bool,
    },
    /// The user pressed a key.
    Key(char),
    /// A deployment ended.
    Deployed(Result<Deployment, String>),
    /// A trial ended.
    Answered(Result<Answer, String>),
    /// An invocation of the function ended, whoever asked for it.
    Ended(Box<Ended>),
    /// The editor was closed, or could not be opened.
    Edited(Result<(), String>),
    /// The node ended.
    NodeLost(String),
}

/// A deployment that worked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Deployment {
    /// What changed, as a plan shows it; empty: nothing.
    pub(super) changes: Vec<String>,
    /// The function's URL, if it got one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) url: Option<String>,
    /// How long it took, from when the save was seen.
    pub(super) took_us: u64,
}

/// What a trial answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Answer {
    /// The invocation.
    pub(super) id: String,
    /// The answer's text.
    pub(super) text: String,
    /// True if the function failed.
    pub(super) failed: bool,
    /// How long it took, from the request.
    pub(super) took_us: u64,
}

/// An ended invocation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Ended {
    /// Its id.
    pub(super) id: String,
    /// How it ended, in words.
    pub(super) outcome: String,
    /// True if it did not answer.
    pub(super) failed: bool,
    /// Why, in the lines that `nigh invoke` prints; none if it answered, or there is no record.
    #[serde(skip)]
    pub(super) failure: Option<String>,
    /// Where it ran: `warm`, `prewarmed`, `cold`. None if there is no record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) start: Option<&'static str>,
    /// The time to make and initialise the sandbox.
    pub(super) init_us: u64,
    /// The handler's time.
    pub(super) duration_us: u64,
    /// The memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) memory: Option<Memory>,
    /// Reads from memory, and all reads.
    pub(super) reads: (u64, u64),
    /// Its output.
    pub(super) log: String,
    /// Bytes of output before `log`.
    pub(super) log_omitted: u64,
}

/// The memory of an invocation, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Memory {
    /// What it used at most; none if not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) used: Option<u64>,
    /// What it was granted: the prediction, or the booking while there is none.
    pub(super) granted: u64,
    /// What the function books.
    pub(super) booked: u64,
}

/// A line for the user.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum Line {
    /// Files were saved.
    Saved {
        /// Their names.
        files: Vec<String>,
    },
    /// A deployment worked.
    Deployed(Deployment),
    /// A deployment failed.
    NotDeployed {
        /// Why.
        error: String,
        /// True if an earlier deployment runs on.
        earlier_runs: bool,
    },
    /// A trial was answered.
    Answer(Answer),
    /// An invocation ended.
    Ended(Ended),
    /// Something went wrong.
    Error {
        /// What.
        error: String,
    },
    /// A remark.
    Remark {
        /// What it says.
        text: String,
    },
    /// The keys.
    Help,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Action {
    /// Deploy.
    Deploy(Scope),
    /// Invoke with the event.
    Invoke,
    /// Open the event in an editor.
    Edit,
    /// Print.
    Print(Line),
    /// End.
    Quit,
    /// End, because of this.
    Fail(String),
}

/// The session's state.
#[derive(Clone, Debug, Default)]
pub(super) struct Session {
    /// True if a deployment is under way.
    deploying: bool,
    /// What was saved since, or failed to be deployed.
    owed: Option<Scope>,
    /// True if the owed part waits for a save: deploying it again now would fail in the same way.
    waits_for_save: bool,
    /// True once a deployment worked.
    deployed: bool,
    /// True if a trial runs.
    invoking: bool,
    /// True if a trial waits for the deployment.
    invoke_next: bool,
    /// True if each deployment is followed by a trial.
    always_invokes: bool,
}

impl Session {
    /// A session that invokes after each deployment, or only when it is asked to; and its first actions.
    pub(super) fn begin(always_invokes: bool) -> (Self, Vec<Action>) {
        let mut session = Self { always_invokes, ..Self::default() };
        let mut actions = Vec::new();
        session.deploy(Scope::All, &mut actions);
        (session, actions)
    }

    /// Takes an event.
    pub(super) fn handle(&mut self, event: Event) -> Vec<Action> {
        let mut actions = Vec::new();
        match event {
            Event::Saved { files, settings } => {
                actions.push(Action::Print(Line::Saved { files }));
                self.waits_for_save = false;
                self.deploy(if settings { Scope::All } else { Scope::Code }, &mut actions);
            }
            Event::Key(key) => self.press(key, &mut actions),
            Event::Deployed(Ok(deployment)) => {
                (self.deploying, self.deployed) = (false, true);
                actions.push(Action::Print(Line::Deployed(deployment)));
                self.go_on(&mut actions);
            }
            Event::Deployed(Err(error)) => {
                self.deploying = false;
                actions.push(Action::Print(Line::NotDeployed { error, earlier_runs: self.deployed }));
                // What was saved in between may be the mend.
                self.waits_for_save = self.owed.is_none();
                self.owed = Some(Scope::All);
                self.invoke_next = self.always_invokes && !self.waits_for_save;
                self.go_on(&mut actions);
            }
            Event::Answered(answered) => {
                self.invoking = false;
                actions.push(Action::Print(match answered {
                    Ok(answer) => Line::Answer(answer),
                    Err(error) => Line::Error { error },
                }));
                self.go_on(&mut actions);
            }
            Event::Ended(ended) => actions.push(Action::Print(Line::Ended(*ended))),
            Event::Edited(Ok(())) => remark("i invokes with the edited event", &mut actions),
            Event::Edited(Err(error)) => actions.push(Action::Print(Line::Error { error })),
            Event::NodeLost(why) => actions.push(Action::Fail(why)),
        }
        actions
    }

    fn press(&mut self, key: char, actions: &mut Vec<Action>) {
        match key {
            'i' if self.deploying => {
                self.invoke_next = true;
                remark("invokes when the deployment is done", actions);
            }
            'i' if !self.deployed => remark("nothing is deployed yet: mend the error and save, or press d", actions),
            'i' if self.invoking => remark("the last trial still runs", actions),
            'i' => self.invoke(actions),
            'e' => actions.push(Action::Edit),
            'd' => {
                self.waits_for_save = false;
                self.deploy(Scope::All, actions);
            }
            'a' => {
                self.always_invokes = !self.always_invokes;
                let words = if self.always_invokes { "each save is tried" } else { "a save is deployed and not tried" };
                remark(words, actions);
            }
            'q' => actions.push(Action::Quit),
            '?' | 'h' => actions.push(Action::Print(Line::Help)),
            _ => remark("? lists the keys", actions),
        }
    }

    /// Deploys this and what is owed, now or after the present deployment.
    fn deploy(&mut self, scope: Scope, actions: &mut Vec<Action>) {
        self.owed = self.owed.max(Some(scope));
        self.invoke_next |= self.always_invokes;
        self.go_on(actions);
    }

    /// Begins what can begin.
    fn go_on(&mut self, actions: &mut Vec<Action>) {
        if self.deploying {
            return;
        }
        if !self.waits_for_save
            && let Some(scope) = self.owed.take()
        {
            self.deploying = true;
            actions.push(Action::Deploy(scope));
        } else if self.invoke_next && self.deployed && !self.invoking {
            self.invoke(actions);
        }
    }

    fn invoke(&mut self, actions: &mut Vec<Action>) {
        (self.invoking, self.invoke_next) = (true, false);
        actions.push(Action::Invoke);
    }
}

fn remark(text: &str, actions: &mut Vec<Action>) {
    actions.push(Action::Print(Line::Remark { text: text.to_owned() }));
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: [Action; 0] = [];

    fn saved(name: &str) -> Event {
        Event::Saved { files: vec![name.to_owned()], settings: name == "nigh.toml" }
    }

    fn deployed() -> Event {
        Event::Deployed(Ok(Deployment { changes: Vec::new(), url: None, took_us: 1 }))
    }

    fn failed() -> Event {
        Event::Deployed(Err("no".to_owned()))
    }

    fn answered() -> Event {
        Event::Answered(Err("late".to_owned()))
    }

    /// The actions but the lines.
    fn done(session: &mut Session, event: Event) -> Vec<Action> {
        let actions = session.handle(event);
        actions.into_iter().filter(|action| !matches!(action, Action::Print(_))).collect()
    }

    #[test]
    fn each_save_is_deployed_and_those_during_a_deployment_after_it_together() {
        let (mut session, first) = Session::begin(false);
        assert_eq!(first, [Action::Deploy(Scope::All)]);
        assert_eq!(done(&mut session, saved("main.py")), NOTHING);
        assert_eq!(done(&mut session, saved("nigh.toml")), NOTHING);
        assert_eq!(done(&mut session, saved("other.py")), NOTHING);
        assert_eq!(done(&mut session, deployed()), [Action::Deploy(Scope::All)]);
        assert_eq!(done(&mut session, deployed()), NOTHING);
        assert_eq!(done(&mut session, saved("main.py")), [Action::Deploy(Scope::Code)]);
    }

    #[test]
    fn what_failed_is_owed_in_full_and_tried_again_at_the_next_save() {
        let (mut session, _) = Session::begin(false);
        session.handle(deployed());
        session.handle(saved("nigh.toml"));
        assert_eq!(done(&mut session, failed()), NOTHING);
        assert_eq!(done(&mut session, Event::Key('i')), [Action::Invoke], "the earlier one runs on");
        assert_eq!(done(&mut session, answered()), NOTHING);
        assert_eq!(done(&mut session, saved("main.py")), [Action::Deploy(Scope::All)]);
        // What was saved while it failed may mend it.
        assert_eq!(done(&mut session, saved("main.py")), NOTHING);
        assert_eq!(done(&mut session, failed()), [Action::Deploy(Scope::All)]);
        assert_eq!(done(&mut session, failed()), NOTHING);
        assert_eq!(done(&mut session, Event::Key('d')), [Action::Deploy(Scope::All)]);
    }

    #[test]
    fn a_failure_says_whether_an_earlier_deployment_runs_on() {
        let (mut session, _) = Session::begin(false);
        let says = |session: &mut Session| match session.handle(failed()).remove(0) {
            Action::Print(Line::NotDeployed { earlier_runs, .. }) => earlier_runs,
            other => panic!("{other:?}"),
        };
        assert!(!says(&mut session));
        assert_eq!(done(&mut session, Event::Key('i')), NOTHING, "there is nothing to invoke");
        session.handle(saved("main.py"));
        session.handle(deployed());
        session.handle(saved("main.py"));
        assert!(says(&mut session));
    }

    #[test]
    fn a_trial_waits_for_the_deployment_and_for_the_one_before() {
        let (mut session, _) = Session::begin(false);
        assert_eq!(done(&mut session, Event::Key('i')), NOTHING);
        assert_eq!(done(&mut session, deployed()), [Action::Invoke]);
        assert_eq!(done(&mut session, Event::Key('i')), NOTHING, "one at a time");
        assert_eq!(done(&mut session, answered()), NOTHING);
        assert_eq!(done(&mut session, Event::Key('i')), [Action::Invoke]);
    }

    #[test]
    fn every_save_is_tried_if_that_is_asked_for() {
        let (mut session, _) = Session::begin(true);
        assert_eq!(done(&mut session, deployed()), [Action::Invoke]);
        assert_eq!(done(&mut session, saved("main.py")), [Action::Deploy(Scope::Code)]);
        // The earlier trial still runs: the next one follows it.
        assert_eq!(done(&mut session, deployed()), NOTHING);
        assert_eq!(done(&mut session, answered()), [Action::Invoke]);
        assert_eq!(done(&mut session, answered()), NOTHING);
        session.handle(Event::Key('a'));
        assert_eq!(done(&mut session, saved("main.py")), [Action::Deploy(Scope::Code)]);
        assert_eq!(done(&mut session, deployed()), NOTHING);
        // A save that cannot be deployed is not tried with the code before it.
        session.handle(Event::Key('a'));
        session.handle(saved("main.py"));
        assert_eq!(done(&mut session, failed()), NOTHING);
    }

    #[test]
    fn keys_help_edit_and_end() {
        let (mut session, _) = Session::begin(false);
        assert_eq!(session.handle(Event::Key('?')), [Action::Print(Line::Help)]);
        assert_eq!(session.handle(Event::Key('e')), [Action::Edit]);
        assert_eq!(session.handle(Event::Key('q')), [Action::Quit]);
        assert!(matches!(&session.handle(Event::Key('x'))[..], [Action::Print(Line::Remark { .. })]));
        assert_eq!(session.handle(Event::NodeLost("gone".to_owned())), [Action::Fail("gone".to_owned())]);
    }
}
