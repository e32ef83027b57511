use serde_json::json;

use super::*;
use crate::schedules::ROLE;

fn name() -> FunctionName {
    FunctionName::new("hello").unwrap()
}

fn deployed() -> Deployed {
    let configuration = json!({
        "Runtime": "python3.11", "Handler": "main.handle", "MemorySize": 128, "Timeout": 3, "Description": "",
        "EphemeralStorage": { "Size": 512 }, "Environment": { "Variables": { "LEVEL": "1", "OLD": "x" } },
        "CodeSha256": "same", "CodeSize": 2048,
    });
    Deployed { function: Some(DescribedFunction { configuration, reserved: Some(4) }), ..Deployed::default() }
}

fn code(sha256: &str) -> CodeSummary {
    CodeSummary { sha256: sha256.to_owned(), bytes: ByteSize::kib(1), files: Some(3) }
}

fn lines(plan: &Plan) -> Vec<String> {
    plan.lines().map(|(_, line)| line).collect()
}

fn triggers(all: &[&str], taken_back: TakenBack) -> FunctionDescription {
    let wanted = all.iter().map(|text| Trigger::parse(text).unwrap()).collect();
    FunctionDescription { triggers: TriggerChange { wanted, taken_back }, ..FunctionDescription::default() }
}

#[test]
fn what_a_function_has_already_is_not_sent() {
    let wanted = FunctionDescription {
        runtime: Some("python3.11".to_owned()),
        memory: Some(ByteSize::mib(128)),
        timeout_s: Some(3),
        reserved: Some(Reserve(Some(4))),
        url: Some(UrlAccess::None),
        environment: Some([("LEVEL".to_owned(), "1".to_owned()), ("OLD".to_owned(), "x".to_owned())].into()),
        layers: Some(Vec::new()),
        ..FunctionDescription::default()
    };
    let plan = Plan::new(&name(), &wanted, Some(&code("same")), None, &deployed());
    assert!(plan.is_empty() && plan.settings.is_empty() && !plan.sends_code, "{plan:?}");
    assert_eq!(plan.headline(), "hello does not change");
}

#[test]
fn each_difference_is_a_line_and_values_of_variables_are_not_shown() {
    let wanted = FunctionDescription {
        memory: Some(ByteSize::mib(512)),
        timeout_s: Some(3),
        environment: Some([("LEVEL".to_owned(), "secret".to_owned()), ("NEW".to_owned(), "y".to_owned())].into()),
        reserved: Some(Reserve(None)),
        url: Some(UrlAccess::Iam),
        ..FunctionDescription::default()
    };
    let plan = Plan::new(&name(), &wanted, Some(&code("other")), Some("{}"), &deployed());
    assert_eq!(plan.headline(), "hello changes:");
    assert_eq!(
        lines(&plan),
        [
            "  ~ memory       128 MiB -> 512 MiB",
            "  ~ environment  LEVEL",
            "  + environment  NEW",
            "  - environment  OLD",
            "  ~ code         2 KiB -> 1 KiB in 3 files",
            "  - reserved     4",
            "  + url          iam",
            "  + workflow     hello",
        ]
    );
    let sent = &plan.settings;
    assert_eq!((sent.memory_mib, sent.timeout_s, sent.runtime.as_deref()), (Some(512), None, None));
    assert_eq!(sent.environment.as_ref().unwrap().len(), 2);
    assert!(plan.sends_code && !plan.is_new);
}

#[test]
fn a_new_function_is_all_plus() {
    let wanted = FunctionDescription {
        runtime: Some("python3.11".to_owned()),
        handler: Some("main.handle".to_owned()),
        variables: [("NIGH_NETWORK".to_owned(), "outbound".to_owned())].into(),
        ..FunctionDescription::default()
    };
    let plan = Plan::new(&name(), &wanted, Some(&code("new")), None, &Deployed::default());
    assert!(plan.is_new && plan.lines().all(|(mark, _)| mark == Mark::Add), "{plan:?}");
    assert_eq!(plan.headline(), "hello is new:");
    assert_eq!(plan.changes.len(), 4);
}

#[test]
fn triggers_are_added_kept_and_taken_back() {
    let bucket = |text: &str| BucketName::new(text).unwrap();
    let mut rules = BucketNotifications::default();
    rules.set("hello", "arn", &TriggerFilter::created("in/"));
    let other = "arn:aws:lambda:us-east-1:000000000000:function:other";
    rules.set("other", other, &TriggerFilter::created("other/"));
    let here = Deployed {
        buckets: [(bucket("photos"), rules.clone()), (bucket("films"), BucketNotifications::default())].into(),
        ..deployed()
    };
    let plan = |wanted: FunctionDescription| Plan::new(&name(), &wanted, None, None, &here);
    // The ARN of the rule above names no function, so only its id would tell; a whole ARN does.
    assert_eq!(rules.triggers("hello").len(), 0);
    let own = "arn:aws:lambda:us-east-1:000000000000:function:hello";
    rules.set("hello", own, &TriggerFilter::created("in/"));
    let here = Deployed { buckets: [(bucket("photos"), rules)].into(), ..here.clone() };
    let plan_here = |wanted: FunctionDescription| Plan::new(&name(), &wanted, None, None, &here);

    assert_eq!(lines(&plan(triggers(&["films/"], TakenBack::Own))), ["  + trigger  films/"]);
    assert!(plan_here(triggers(&["photos/in/"], TakenBack::Own)).is_empty());
    assert!(plan_here(triggers(&[], TakenBack::Nothing)).is_empty());
    let moved = plan_here(triggers(&["photos/new/"], TakenBack::Own));
    assert_eq!(lines(&moved), ["  - trigger  photos/in/", "  + trigger  photos/new/"]);
    let before = &here.buckets[&bucket("photos")];
    let after = moved.triggers[&bucket("photos")].after(before, &name(), "arn:aws:lambda:x:0:function:hello");
    assert_eq!(after.triggers("hello")[0].filter.prefix, "new/");
    assert_eq!(after.triggers("other").len(), 1, "the rules of others stay");
    assert!(moved.check_triggers(&here).is_ok());
    let overlapping = plan_here(triggers(&["photos/other/a/"], TakenBack::Nothing));
    let (refusing, error) = overlapping.check_triggers(&here).unwrap_err();
    assert!(refusing == bucket("photos") && error.to_string().contains("overlap"), "{error}");
}

/// What is wanted of the schedule.
fn scheduled(period: &str) -> FunctionDescription {
    let schedule = ScheduleChange::read(Some(period), None, None).unwrap();
    FunctionDescription { schedule, ..FunctionDescription::default() }
}

/// The function with the schedule that a deployment gave it.
fn deployed_with_schedule() -> Deployed {
    let target = json!({ "Arn": "arn:aws:lambda:us-east-1:000000000000:function:hello", "RoleArn": ROLE });
    let schedule = json!({
        "ScheduleExpression": "rate(1 hour)", "ScheduleExpressionTimezone": "UTC", "Target": target,
    });
    Deployed { schedule: Some(schedule), ..deployed() }
}

#[test]
fn a_schedule_is_given_unless_the_function_has_it_and_taken_back_if_it_has_one() {
    let here = deployed_with_schedule();
    assert!(Plan::new(&name(), &scheduled("1 h"), None, None, &here).is_empty());
    let other = Plan::new(&name(), &scheduled("5 min"), None, None, &here);
    assert_eq!(lines(&other), ["  ~ schedule  rate(1 hour) in UTC -> rate(5 minutes) in UTC"]);
    assert_eq!(other.schedule, scheduled("5 min").schedule);
    let none = Plan::new(&name(), &scheduled("none"), None, None, &here);
    assert_eq!(lines(&none), ["  - schedule  rate(1 hour) in UTC"]);
    assert!(none.schedule.is_some_and(|change| change.words().is_none()));
    assert!(Plan::new(&name(), &scheduled("none"), None, None, &deployed()).is_empty());
}

#[test]
fn a_plan_tells_when_events_of_two_forms_will_come() {
    let bucket = BucketName::new("photos").unwrap();
    let here = || Deployed { buckets: [(bucket.clone(), BucketNotifications::default())].into(), ..deployed() };
    let mixes =
        |wanted: &FunctionDescription, here: &Deployed| Plan::new(&name(), wanted, None, None, here).mixes_events;
    let trigger = triggers(&["photos/in/"], TakenBack::Own);
    let both = FunctionDescription { schedule: scheduled("1 h").schedule, ..trigger.clone() };
    assert!(mixes(&both, &here()));
    assert!(!mixes(&trigger, &here()) && !mixes(&scheduled("1 h"), &here()));
    let none = FunctionDescription { schedule: scheduled("none").schedule, ..trigger };
    assert!(!mixes(&none, &here()), "the schedule is taken back");
    let mut rules = BucketNotifications::default();
    rules.set("hello", "arn:aws:lambda:us-east-1:000000000000:function:hello", &TriggerFilter::created("in/"));
    let done = Deployed { buckets: [(bucket.clone(), rules)].into(), ..deployed_with_schedule() };
    assert!(!mixes(&both, &done), "it was told when they were given");
}
