use super::*;
use crate::sam::{StackCode, StackSchedule};

fn function() -> StackFunction {
    StackFunction::new("F", FunctionName::new("f").unwrap(), StackCode::Path("src".into()))
}

#[test]
fn a_schedule_that_cannot_be_is_refused_with_its_function() {
    let schedule = StackSchedule {
        name: "often".to_owned(),
        expression: "rate(often)".to_owned(),
        timezone: None,
        input: None,
        description: None,
        enabled: true,
    };
    let stack =
        Stack { functions: vec![StackFunction { schedules: vec![schedule], ..function() }], ..Stack::default() };
    let refused = Deployment { stack: &stack, folder: Path::new("."), network: None }.check_schedules();
    let why = refused.unwrap_err().to_string();
    assert!(why.starts_with("f: schedule often: "), "{why}");
}

#[test]
fn a_runtime_that_the_node_has_not_is_named_with_the_way_out() {
    let of = |runtime: &str| StackFunction { runtime: Some(runtime.to_owned()), ..function() };
    let stack = Stack { functions: vec![of("python3.9"), of("nodejs"), of("provided.al2023")], ..Stack::default() };
    let there = ["python3.11".to_owned(), "provided.al2023".to_owned()];
    let why = missing_runtime(&stack, &there).unwrap();
    assert!(why.starts_with("this node has no runtime python3.9; it has python3.11, "), "{why}");
    assert!(why.contains("--runtime"), "{why}");
    let stack = Stack { functions: vec![of("python3.11"), function()], ..Stack::default() };
    assert_eq!(missing_runtime(&stack, &there), None);
}

#[test]
fn an_error_says_what_is_deployed_already() {
    let error = CliError::Failed("no".to_owned());
    let mut done = Imported::default();
    let name = FunctionName::new("g").unwrap();
    assert_eq!(partly_deployed(&done, &name, &error).to_string(), "g: no; run the command again once this is mended");
    done.functions.push(ImportedFunction { name: FunctionName::new("f").unwrap(), done: "deployed", url: None });
    let said = partly_deployed(&done, &name, &error).to_string();
    assert!(said.contains("; deployed before it: f; run"), "{said}");
}
