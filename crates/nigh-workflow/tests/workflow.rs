//! State machines from their text to their end, and the property that keeps executions: the same events, the same
//! commands.

#![expect(clippy::unwrap_used, reason = "tests: a broken expectation panics")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use nigh_terms::{Epoch, Sequence, ShardId, Timestamp, Token, Version};
use nigh_workflow::Definition;
use nigh_workflow::event::{Command, Event, ExecutionEvent, Facts, Outcome, TaskEnd, TaskId, TaskRun};
use nigh_workflow::read;
use nigh_workflow::run::{DATA_BYTES_MAX, Run};
use proptest::prelude::*;
use serde_json::{Value, json};

const START: Timestamp = Timestamp(1_700_000_000_000);

fn facts() -> Facts {
    Facts {
        id: [9; 16],
        arn: "arn:of:the:execution".to_owned(),
        name: "one".to_owned(),
        machine_arn: "arn:of:the:machine".to_owned(),
        machine: "machine".to_owned(),
        role: "role".to_owned(),
        started: START,
    }
}

fn definition(value: &Value) -> Arc<Definition> {
    match read(&value.to_string()) {
        Ok(definition) => Arc::new(definition),
        Err(problems) => panic!("{problems:?}"),
    }
}

/// A definition of one state after the other, the last of which ends.
fn line(states: &[(&str, Value)]) -> Value {
    let mut all = serde_json::Map::new();
    for (index, (name, state)) in states.iter().enumerate() {
        let mut state = state.clone();
        if !matches!(state["Type"].as_str(), Some("Choice" | "Succeed" | "Fail")) && state.get("Next").is_none() {
            match states.get(index + 1) {
                Some((next, _)) => state["Next"] = json!(next),
                None => state["End"] = json!(true),
            }
        }
        all.insert((*name).to_owned(), state);
    }
    json!({ "StartAt": states[0].0, "States": all })
}

fn token(n: u64) -> Token {
    let mut token = Token::empty();
    token.see(ShardId(n as u16), Version { epoch: Epoch(1), sequence: Sequence(n) });
    token
}

/// An execution that a test leads.
struct Led {
    run: Run,
    now: Timestamp,
    todo: BTreeMap<TaskId, TaskRun>,
    forgotten: Vec<TaskId>,
}

impl Led {
    fn start(definition: &Value, input: Value) -> Self {
        let (run, commands) = Run::start(self::definition(definition), facts(), input, Token::empty(), true);
        let mut led = Self { run, now: START, todo: BTreeMap::new(), forgotten: Vec::new() };
        led.take(commands);
        led
    }

    fn take(&mut self, commands: Vec<Command>) {
        for command in commands {
            match command {
                Command::Invoke(task) => assert!(self.todo.insert(task.task, task).is_none()),
                Command::Forget(task) => {
                    assert!(self.todo.remove(&task).is_some());
                    self.forgotten.push(task);
                }
                Command::Finish(outcome) => assert_eq!(self.run.outcome(), Some(&outcome)),
            }
        }
    }

    fn happens(&mut self, what: ExecutionEvent) {
        let commands = self.run.apply(&Event { at: self.now, what });
        self.take(commands);
    }

    /// The first task that is to be done.
    fn next(&mut self) -> TaskRun {
        self.todo.pop_first().unwrap().1
    }

    fn ends(&mut self, task: &TaskRun, end: TaskEnd) {
        self.todo.remove(&task.task);
        self.happens(ExecutionEvent::Ended { task: task.task, end, token: token(task.task.0) });
    }

    fn answers(&mut self, answer: Value) -> TaskRun {
        let task = self.next();
        self.ends(&task, TaskEnd::Answered(answer));
        task
    }

    fn fails(&mut self, error: &str) -> TaskRun {
        let task = self.next();
        self.ends(&task, TaskEnd::Failed { error: error.to_owned(), cause: format!("a {error}") });
        task
    }

    fn passes(&mut self, time: Duration) {
        self.now = Timestamp(self.now.0 + time.as_millis() as u64);
        self.happens(ExecutionEvent::Time);
    }

    fn output(&self) -> &Value {
        match self.run.outcome() {
            Some(Outcome::Succeeded { output }) => output,
            other => panic!("{other:?}"),
        }
    }

    fn error(&self) -> &str {
        match self.run.outcome() {
            Some(Outcome::Failed { error, .. }) => error.as_deref().unwrap_or_default(),
            other => panic!("{other:?}"),
        }
    }
}

fn task() -> Value {
    json!({ "Type": "Task", "Resource": "arn:aws:lambda:us-east-1:000000000000:function:work" })
}

fn with(mut state: Value, fields: &Value) -> Value {
    for (name, value) in fields.as_object().unwrap() {
        state[name] = value.clone();
    }
    state
}

#[test]
fn what_is_wrong_is_named_by_its_place() {
    for (definition, path, words) in [
        (json!([]), "the definition", "no object"),
        (json!({"StartAt": "A"}), "States", "missing"),
        (json!({"StartAt": "B", "States": {"A": {"Type": "Succeed"}}}), "StartAt", "no state \"B\""),
        (line(&[("Fetch", with(task(), &json!({"Next": "Nowhere"})))]), "States.Fetch.Next", "no state \"Nowhere\""),
        (json!({"StartAt": "A", "States": {"A": {"Type": "Pass"}}}), "States.A.Next", "neither Next nor"),
        (json!({"StartAt": "A", "States": {"A": {"Type": "Sleep"}}}), "States.A.Type", "none of"),
        (
            json!({"StartAt": "A", "States": {"A": {"Type": "Succeed"}, "B": {"Type": "Fail"}}}),
            "States.B",
            "no state leads",
        ),
        (
            line(&[("A", with(task(), &json!({"Resource": "arn:aws:states:::sqs:sendMessage"})))]),
            "States.A.Resource",
            "not supported",
        ),
        (line(&[("A", with(task(), &json!({"TimeoutSeconds": 0})))]), "States.A.TimeoutSeconds", "between 1"),
        (line(&[("A", with(task(), &json!({"HeartbeatSeconds": 1})))]), "States.A.HeartbeatSeconds", "no heartbeats"),
        (line(&[("A", with(task(), &json!({"Colour": 1})))]), "States.A.Colour", "no such field"),
        (line(&[("A", with(task(), &json!({"InputPath": "a"})))]), "States.A.InputPath", "begin with $"),
        (line(&[("A", with(task(), &json!({"ResultPath": "$.a[*]"})))]), "States.A.ResultPath", "reference path"),
        (
            line(&[("A", with(task(), &json!({"Parameters": {"a": {"b.$": "x"}}})))]),
            "States.A.Parameters.a.b.$",
            "no parenthesis",
        ),
        (
            line(&[("A", with(task(), &json!({"Retry": [{"ErrorEquals": ["States.ALL", "B"]}]})))]),
            "States.A.Retry[0].ErrorEquals",
            "alone",
        ),
        (
            line(&[("A", with(task(), &json!({"Catch": [{"ErrorEquals": ["B"], "Next": "C"}]})))]),
            "States.A.Catch[0].Next",
            "no state \"C\"",
        ),
        (
            line(&[
                ("A", json!({"Type": "Choice", "Choices": [{"Variable": "$.a", "Next": "B"}]})),
                ("B", json!({"Type": "Succeed"})),
            ]),
            "States.A.Choices[0].Variable",
            "nothing is asked",
        ),
        (line(&[("A", json!({"Type": "Wait"}))]), "States.A.Seconds", "one of"),
        (line(&[("A", json!({"Type": "Wait", "Timestamp": "soon"}))]), "States.A.Timestamp", "no date"),
        (
            line(&[(
                "A",
                json!({"Type": "Parallel", "Branches": [{"StartAt": "A", "States": {"A": {"Type": "Succeed"}}}]}),
            )]),
            "States.A.Branches[0].States.A",
            "another state",
        ),
        (
            line(&[(
                "A",
                json!({"Type": "Map", "ItemProcessor": {"ProcessorConfig": {"Mode": "DISTRIBUTED"}, "StartAt": "B", "States": {"B": {"Type": "Succeed"}}}}),
            )]),
            "States.A.ItemProcessor.ProcessorConfig.Mode",
            "distributed",
        ),
    ] {
        let problems = read(&definition.to_string()).unwrap_err();
        let found = problems.iter().any(|problem| problem.path == path && problem.message.contains(words));
        assert!(found, "{path}: {words}: {problems:?}");
    }
    assert_eq!(read("{").unwrap_err()[0].code, "INVALID_JSON_DESCRIPTION");
    let location =
        read(&json!({"StartAt": "A", "States": {"A": {"Type": "Pass"}}}).to_string()).unwrap_err()[0].location();
    assert_eq!(location, "/States/A/Next");
}

#[test]
fn data_goes_through_paths_and_templates() {
    let fetch = with(
        task(),
        &json!({
            "InputPath": "$.order",
            "Parameters": {"key.$": "$.key", "who.$": "$$.Execution.Name", "state.$": "$$.State.Name", "n": 1},
            "ResultSelector": {"size.$": "$.bytes"},
            "ResultPath": "$.fetched",
            "OutputPath": "$.fetched",
        }),
    );
    let mut led = Led::start(
        &line(&[("Fetch", fetch), ("Last", json!({"Type": "Pass", "Result": {"x": 1}, "ResultPath": "$.last"}))]),
        json!({"order": {"key": "k"}, "rest": 1}),
    );
    let task = led.answers(json!({"bytes": 7, "noise": true}));
    assert_eq!(task.payload, json!({"key": "k", "who": "one", "state": "Fetch", "n": 1}));
    assert_eq!(task.function.as_str(), "work");
    assert_eq!(led.output(), &json!({"size": 7, "last": {"x": 1}}));
    assert_eq!(led.run.seen(), &token(1));
    let kinds: Vec<&str> = led.run.shown().iter().map(|shown| shown.kind.as_str()).collect();
    assert_eq!(
        kinds,
        [
            "ExecutionStarted",
            "TaskStateEntered",
            "LambdaFunctionScheduled",
            "LambdaFunctionStarted",
            "LambdaFunctionSucceeded",
            "TaskStateExited",
            "PassStateEntered",
            "PassStateExited",
            "ExecutionSucceeded",
        ]
    );
    let missing = Led::start(&line(&[("A", with(self::task(), &json!({"Parameters": {"a.$": "$.b"}})))]), json!({}));
    assert_eq!(missing.error(), "States.ParameterPathFailure");
}

#[test]
fn the_next_stage_begins_with_what_those_before_it_had_seen() {
    let branch = |name: &str| json!({"StartAt": name, "States": {name: with(task(), &json!({"End": true}))}});
    let parallel = json!({"Type": "Parallel", "Branches": [branch("X"), branch("Y")]});
    let mut led = Led::start(&line(&[("First", task()), ("Both", parallel), ("Last", task())]), json!({}));
    led.answers(json!(1));
    let (x, y) = (led.next(), led.next());
    assert_eq!((&x.token, &y.token), (&token(1), &token(1)));
    led.ends(&x, TaskEnd::Answered(json!("x")));
    led.ends(&y, TaskEnd::Answered(json!("y")));
    let last = led.next();
    let mut all = token(1);
    all.join(&token(2));
    all.join(&token(3));
    assert_eq!((last.token, last.payload), (all, json!(["x", "y"])));
}

#[test]
fn lambda_invoke_says_itself_what_it_invokes_and_how() {
    let invoke = json!({
        "Type": "Task", "Resource": "arn:aws:states:::lambda:invoke",
        "Parameters": {"FunctionName.$": "$.f", "Payload": {"n.$": "$.n"}},
        "OutputPath": "$.Payload",
    });
    let mut led = Led::start(&line(&[("Call", invoke.clone())]), json!({"f": "other", "n": 3}));
    let task = led.answers(json!({"done": true}));
    assert_eq!((task.function.as_str(), &task.payload, task.later), ("other", &json!({"n": 3}), false));
    assert_eq!(led.output(), &json!({"done": true}));
    let later = with(
        invoke,
        &json!({"Parameters": {"FunctionName": "f", "InvocationType": "Event"}, "OutputPath": "$.StatusCode"}),
    );
    let mut led = Led::start(&line(&[("Call", later)]), json!({}));
    assert!(led.answers(Value::Null).later);
    assert_eq!(led.output(), &json!(202));
}

#[test]
fn a_choice_takes_the_first_rule_that_holds() {
    let end = || json!({"Type": "Pass", "End": true});
    let definition = json!({"StartAt": "C", "States": {
        "C": {"Type": "Choice", "Default": "None", "Choices": [
            {"Variable": "$.n", "NumericGreaterThan": 10, "Next": "Big"},
            {"And": [{"Variable": "$.s", "IsPresent": true}, {"Variable": "$.s", "StringMatches": "a*z"}], "Next": "Text"},
            {"Not": {"Variable": "$.n", "NumericEqualsPath": "$.m"}, "Next": "Differs"},
        ]},
        "Big": with(end(), &json!({"Result": "big"})),
        "Text": with(end(), &json!({"Result": "text"})),
        "Differs": with(end(), &json!({"Result": "differs"})),
        "None": with(end(), &json!({"Result": "none"})),
    }});
    for (input, expected) in [
        (json!({"n": 11}), "big"),
        (json!({"n": 1, "s": "a--z"}), "text"),
        (json!({"n": 1, "m": 2}), "differs"),
        (json!({"n": 2, "m": 2}), "none"),
    ] {
        assert_eq!(Led::start(&definition, input).output(), &json!(expected));
    }
    let mut strict = definition;
    strict["States"]["C"].as_object_mut().unwrap().remove("Default");
    strict["States"].as_object_mut().unwrap().remove("None");
    assert_eq!(Led::start(&strict, json!({"n": 2, "m": 2})).error(), "States.NoChoiceMatched");
}

#[test]
fn what_fails_is_tried_again_after_its_waits_and_then_caught() {
    let fetch = with(
        task(),
        &json!({
            "Retry": [{"ErrorEquals": ["Busy"], "IntervalSeconds": 2, "MaxAttempts": 2, "BackoffRate": 2}],
            "Catch": [{"ErrorEquals": ["States.ALL"], "ResultPath": "$.why", "Next": "Mend"}],
        }),
    );
    let mut definition = line(&[("Fetch", fetch), ("Mend", json!({"Type": "Pass"}))]);
    definition["States"]["Fetch"].as_object_mut().unwrap().remove("Next");
    definition["States"]["Fetch"]["End"] = json!(true);
    let mut led = Led::start(&definition, json!({"n": 1}));
    let first = led.fails("Busy");
    assert_eq!(led.run.wake_at(), Some(Timestamp(START.0 + 2000)));
    led.passes(Duration::from_secs(1));
    assert!(led.todo.is_empty(), "it is tried again before its time");
    led.passes(Duration::from_secs(1));
    let second = led.fails("Busy");
    assert_ne!(first.invocation, second.invocation, "a new try is a new invocation");
    led.passes(Duration::from_secs(4));
    led.fails("Busy");
    let output = json!({"n": 1, "why": {"Error": "Busy", "Cause": "a Busy"}});
    assert_eq!(led.output(), &output);
}

#[test]
fn a_task_that_is_late_is_forgotten_and_its_answer_counts_no_more() {
    let mut led = Led::start(&line(&[("Slow", with(task(), &json!({"TimeoutSeconds": 3})))]), json!({}));
    let task = led.next();
    led.todo.insert(task.task, task.clone());
    led.passes(Duration::from_secs(3));
    assert_eq!((led.error(), led.forgotten.as_slice()), ("States.Timeout", &[task.task][..]));
    // The answer comes in the moment of the time-out: the time-out is first, however they raced.
    let mut led = Led::start(&line(&[("Slow", with(self::task(), &json!({"TimeoutSeconds": 3})))]), json!({}));
    led.now = Timestamp(START.0 + 3000);
    let task = led.next();
    led.todo.insert(task.task, task.clone());
    led.happens(ExecutionEvent::Ended { task: task.task, end: TaskEnd::Answered(json!(1)), token: token(1) });
    assert_eq!(led.error(), "States.Timeout");
    let whole = with(line(&[("Wait", json!({"Type": "Wait", "Seconds": 60}))]), &json!({"TimeoutSeconds": 5}));
    let mut led = Led::start(&whole, json!({}));
    assert_eq!(led.run.wake_at(), Some(Timestamp(START.0 + 5000)));
    led.passes(Duration::from_secs(5));
    assert_eq!(led.run.outcome(), Some(&Outcome::TimedOut));
}

fn map(fields: &Value) -> Value {
    let processor = json!({"StartAt": "Each", "States": {"Each": with(task(), &json!({"End": true}))}});
    with(json!({"Type": "Map", "ItemProcessor": processor}), fields)
}

#[test]
fn a_map_runs_as_many_at_once_as_it_may_and_keeps_the_order() {
    let fields = json!({
        "ItemsPath": "$.items", "MaxConcurrency": 2,
        "ItemSelector": {"v.$": "$$.Map.Item.Value", "i.$": "$$.Map.Item.Index", "all.$": "$.name"},
    });
    let mut led = Led::start(&line(&[("Map", map(&fields))]), json!({"items": [10, 20, 30], "name": "n"}));
    assert_eq!(led.todo.len(), 2);
    let (first, second) = (led.next(), led.next());
    assert_eq!(second.payload, json!({"v": 20, "i": 1, "all": "n"}));
    led.ends(&second, TaskEnd::Answered(json!("second")));
    assert_eq!(led.todo.len(), 1);
    led.answers(json!("third"));
    led.ends(&first, TaskEnd::Answered(json!("first")));
    assert_eq!(led.output(), &json!(["first", "second", "third"]));
    assert_eq!(Led::start(&line(&[("Map", map(&json!({})))]), json!([])).output(), &json!([]));
    assert_eq!(Led::start(&line(&[("Map", map(&json!({})))]), json!({})).error(), "States.Runtime");
    let many = Led::start(&line(&[("Map", map(&json!({})))]), json!(vec![0; 100]));
    assert_eq!(many.todo.len(), 40);
}

#[test]
fn one_failure_ends_its_siblings_unless_failures_are_tolerated() {
    let mut led = Led::start(&line(&[("Map", map(&json!({})))]), json!([1, 2, 3]));
    led.fails("Broken");
    assert_eq!((led.error(), led.forgotten.len()), ("Broken", 2));
    let mut led = Led::start(&line(&[("Map", map(&json!({"ToleratedFailureCount": 1})))]), json!([1, 2, 3]));
    led.fails("Broken");
    led.answers(json!(2));
    led.answers(json!(3));
    assert_eq!(led.output(), &json!([{"Error": "Broken", "Cause": "a Broken"}, 2, 3]));
    let mut led = Led::start(&line(&[("Map", map(&json!({"ToleratedFailureCount": 1})))]), json!([1, 2, 3]));
    led.fails("Broken");
    led.fails("Broken");
    assert_eq!(led.error(), "States.ExceedToleratedFailureThreshold");
    let branch = |name: &str| json!({"StartAt": name, "States": {name: with(task(), &json!({"End": true}))}});
    let parallel = json!({
        "Type": "Parallel", "Branches": [branch("X"), branch("Y")],
        "Catch": [{"ErrorEquals": ["States.BranchFailed"], "ResultPath": "$.why", "Next": "Mend"}],
    });
    let mut led = Led::start(&line(&[("Both", parallel), ("Mend", json!({"Type": "Pass"}))]), json!({"n": 1}));
    led.fails("Broken");
    assert_eq!(led.output()["why"]["Error"], "Broken");
    assert_eq!(led.forgotten.len(), 1);
}

#[test]
fn an_endless_loop_and_too_much_data_end_the_execution() {
    let endless =
        json!({"StartAt": "A", "States": {"A": {"Type": "Pass", "Next": "B"}, "B": {"Type": "Pass", "Next": "A"}}});
    assert_eq!(Led::start(&endless, json!({})).error(), "States.Runtime");
    let mut led = Led::start(&line(&[("A", task())]), json!({}));
    led.answers(json!("x".repeat(DATA_BYTES_MAX)));
    assert_eq!(led.error(), "States.DataLimitExceeded");
}

#[test]
fn what_comes_next_is_told_with_its_input_as_far_as_that_does_not_hang_on_what_runs() {
    let input = json!({"input": {"bucket": "b", "key": "k"}, "size": 3});
    let ahead = |now: Value, next: Value| {
        let later = with(with(task(), &json!({"Resource": "later"})), &next);
        let led = Led::start(&line(&[("Now", now), ("Next", later)]), input.clone());
        let [next] = &led.run.ahead()[..] else { panic!("one comes next") };
        assert_eq!(next.function.as_str(), "later");
        assert_eq!(next.after, led.todo.first_key_value().map(|(_, task)| task.invocation));
        next.input.as_ref().map(|input| serde_json::from_slice::<Value>(input).unwrap())
    };
    let beside = with(task(), &json!({"ResultPath": "$.result"}));
    let named = json!({"Parameters": {"input.$": "$.input", "to": "there"}});
    assert_eq!(ahead(beside.clone(), named.clone()), Some(json!({"input": input["input"], "to": "there"})));
    assert_eq!(
        ahead(with(task(), &json!({"ResultPath": null})), json!({"InputPath": "$.input"})),
        Some(input["input"].clone())
    );
    assert_eq!(ahead(task(), json!({"Parameters": {"always": 1}})), Some(json!({"always": 1})));
    let wait = json!({"Type": "Wait", "Seconds": 9});
    assert_eq!(ahead(wait, named), Some(json!({"input": input["input"], "to": "there"})));
    let invoke = json!({
        "Resource": "arn:aws:states:::lambda:invoke",
        "Parameters": {"FunctionName": "later", "Payload": {"n.$": "$.size"}},
    });
    assert_eq!(ahead(beside.clone(), invoke), Some(json!({"n": 3})));
    // What is not known before the end, or looked for in vain, is not told.
    for unknown in [
        json!({}),
        json!({"Parameters": {"n.$": "$.result.n"}}),
        json!({"Parameters": {"text.$": "States.Format('a {}', $.result)"}}),
        json!({"Parameters": {"n.$": "$.nowhere"}}),
    ] {
        assert_eq!(ahead(beside.clone(), unknown.clone()), None, "{unknown}");
    }
    assert_eq!(ahead(task(), json!({})), None);
}

#[test]
fn stopping_forgets_what_runs_and_nothing_happens_after_the_end() {
    let mut led = Led::start(&line(&[("A", task()), ("B", with(task(), &json!({"Resource": "later"})))]), json!({}));
    assert_eq!(led.run.ahead().iter().map(|next| next.function.as_str()).collect::<Vec<_>>(), ["later"]);
    let task = led.next();
    led.todo.insert(task.task, task.clone());
    led.happens(ExecutionEvent::Stopped { error: Some("Mine".to_owned()), cause: None });
    assert_eq!(led.run.outcome().map(Outcome::status), Some("ABORTED"));
    let late = Event {
        at: led.now,
        what: ExecutionEvent::Ended { task: task.task, end: TaskEnd::Answered(json!(1)), token: token(1) },
    };
    assert!(led.run.apply(&late).is_empty());
}

/// A definition with all types of states, of which the outcomes of tasks decide how it goes.
fn many_ways() -> Value {
    let retry = json!([{"ErrorEquals": ["Busy"], "MaxAttempts": 2, "JitterStrategy": "FULL", "IntervalSeconds": 5}]);
    let each = with(task(), &json!({"Retry": retry, "TimeoutSeconds": 9, "End": true}));
    json!({"StartAt": "First", "States": {
        "First": with(task(), &json!({"Retry": retry, "ResultPath": "$.first", "Next": "Odd"})),
        "Odd": {"Type": "Choice", "Default": "Wait", "Choices": [
            {"Variable": "$.first", "NumericGreaterThan": 2, "Next": "Map"}]},
        "Wait": {"Type": "Wait", "Seconds": 3, "Next": "Both"},
        "Both": {"Type": "Parallel", "ResultPath": "$.both", "Next": "Map", "Branches": [
            {"StartAt": "X", "States": {"X": each}},
            {"StartAt": "Y", "States": {"Y": {"Type": "Pass", "Parameters": {"u.$": "States.UUID()"}, "End": true}}},
        ], "Catch": [{"ErrorEquals": ["States.ALL"], "ResultPath": "$.caught", "Next": "Map"}]},
        "Map": {"Type": "Map", "ItemsPath": "$.items", "MaxConcurrency": 2, "ToleratedFailurePercentage": 40, "End": true,
            "ItemProcessor": {"StartAt": "Each", "States": {"Each": each}}},
    }})
}

proptest! {
    /// Whatever happens in whatever order, going through the kept events anew gives the same commands at each step, and
    /// the same end: also through the form in which they are kept.
    #[test]
    fn any_prefix_of_the_history_gives_the_same_commands(
        moves in proptest::collection::vec((0_u8..8, 0_usize..5, 0_u64..4000, 0_i64..6), 0..60),
    ) {
        let (definition, input) = (definition(&many_ways()), json!({"items": [1, 2, 3, 4, 5]}));
        let (mut run, first) = Run::start(Arc::clone(&definition), facts(), input.clone(), Token::empty(), true);
        let (mut steps, mut events, mut now) = (vec![first], Vec::new(), START);
        for (kind, which, wait, number) in moves {
            now = Timestamp(now.0 + wait);
            let tasks: Vec<TaskId> = run.outstanding().map(|task| task.task).collect();
            let what = match (kind, tasks.get(which % tasks.len().max(1))) {
                (0, _) => ExecutionEvent::Time,
                (1, Some(task)) => ExecutionEvent::Ended {
                    task: *task,
                    end: TaskEnd::Failed { error: if number < 4 { "Busy" } else { "Broken" }.to_owned(), cause: String::new() },
                    token: token(task.0),
                },
                (_, Some(task)) => ExecutionEvent::Ended { task: *task, end: TaskEnd::Answered(json!(number)), token: token(task.0) },
                (7, None) => ExecutionEvent::Stopped { error: None, cause: None },
                (_, None) => ExecutionEvent::Time,
            };
            let event = Event { at: now, what };
            steps.push(run.apply(&event));
            events.push(event);
        }
        let mut seen_ids = std::collections::BTreeSet::new();
        for command in steps.iter().flatten() {
            if let Command::Invoke(task) = command {
                prop_assert!(seen_ids.insert(task.invocation), "two tasks of one name");
            }
        }
        let (mut again, first) = Run::start(definition, facts(), input, Token::empty(), true);
        prop_assert_eq!(&first, &steps[0]);
        for (event, commands) in events.iter().zip(&steps[1..]) {
            let kept = serde_json::to_vec(event).unwrap();
            let event: Event = serde_json::from_slice(&kept).unwrap();
            prop_assert_eq!(&again.apply(&event), commands);
        }
        prop_assert_eq!(again.outcome(), run.outcome());
        prop_assert_eq!(again.shown(), run.shown());
        prop_assert_eq!(again.wake_at(), run.wake_at());
        let (left, right): (Vec<_>, Vec<_>) = (again.outstanding().collect(), run.outstanding().collect());
        prop_assert_eq!(left, right);
        if run.outcome().is_some() {
            prop_assert!(run.outstanding().next().is_none() && run.wake_at().is_none());
        }
    }

    /// Whatever a text holds, reading it ends, with a machine or with what is wrong.
    #[test]
    fn any_text_is_read_or_refused(text in "[ -~]{0,200}") {
        if let Err(problems) = read(&text) {
            prop_assert!(!problems.is_empty());
        }
        let state = json!({"StartAt": "A", "States": {"A": {"Type": "Pass", "InputPath": text, "Parameters": {"a.$": text}, "End": true}}});
        if let Ok(definition) = read(&state.to_string()) {
            drop(Run::start(Arc::new(definition), facts(), json!({"a": [1, {"b": 2}]}), Token::empty(), true));
        }
    }
}
