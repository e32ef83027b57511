//! The templates of `crates/nigh/tests/templates`: what each becomes, and what is left out of it.

use super::*;
use crate::deploy::UrlAccess;

fn template(name: &str) -> &'static str {
    match name {
        "hello" => include_str!("../../tests/templates/hello/template.yaml"),
        "thumbnails" => include_str!("../../tests/templates/thumbnails/template.yaml"),
        "report" => include_str!("../../tests/templates/report/template.yaml"),
        "layers" => include_str!("../../tests/templates/layers/template.yaml"),
        "web" => include_str!("../../tests/templates/web/template.yaml"),
        other => panic!("{other}"),
    }
}

fn inputs(parameters: &[(&str, &str)]) -> Inputs {
    let parameters = parameters.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Inputs { parameters: parameters.collect(), region: "us-east-1".to_owned(), ..Inputs::default() }
}

fn stack(name: &str, parameters: &[(&str, &str)]) -> Stack {
    read(template(name), &inputs(parameters)).unwrap()
}

/// What is left out and missed, and what is left out and not needed.
fn left_out(stack: &Stack) -> (Vec<&str>, Vec<&str>) {
    let of = |is_missed| {
        let all = stack.left_out.iter().filter(|one| one.is_missed == is_missed);
        all.map(|one| one.what.as_str()).collect()
    };
    (of(true), of(false))
}

fn why<'a>(stack: &'a Stack, what: &str) -> &'a str {
    &stack.left_out.iter().find(|one| one.what == what).unwrap_or_else(|| panic!("{what}: {stack:?}")).why
}

#[test]
fn the_first_template_of_sam_is_a_function_with_the_globals_and_without_its_rest_api() {
    let stack = stack("hello", &[]);
    let [hello] = &stack.functions[..] else { panic!("{stack:?}") };
    assert_eq!((hello.name.as_str(), hello.logical.as_str()), ("HelloWorldFunction", "HelloWorldFunction"));
    assert_eq!((hello.runtime.as_deref(), hello.handler.as_deref()), (Some("python3.12"), Some("app.lambda_handler")));
    assert_eq!((hello.memory_mib, hello.timeout_s, hello.url), (Some(128), Some(3), None));
    assert_eq!(hello.code, StackCode::Path("hello_world/".into()));
    let (missed, not_needed) = left_out(&stack);
    assert_eq!(missed, ["HelloWorldFunction.Events.HelloWorld"]);
    assert_eq!(not_needed, ["HelloWorldFunction.Architectures", "HelloWorldFunction.LoggingConfig", "Outputs"]);
    assert!(why(&stack, missed[0]).contains("HttpApi"));
}

#[test]
fn a_bucket_s_events_are_triggers_with_prefix_and_suffix() {
    let stack = stack("thumbnails", &[("Prefix", "small")]);
    let buckets: Vec<&str> = stack.buckets.iter().map(nigh_terms::BucketName::as_str).collect();
    assert_eq!(buckets, ["pictures-000000000000", "small-000000000000"]);
    let [thumbs] = &stack.functions[..] else { panic!("{stack:?}") };
    assert_eq!(thumbs.triggers[0].to_string(), "pictures-000000000000/in/*.jpg");
    assert_eq!((thumbs.triggers.len(), thumbs.tmp_mib), (1, Some(1024)));
    assert_eq!(
        (thumbs.environment["TARGET"].as_str(), thumbs.environment["BYTES"].as_str()),
        ("small-000000000000", "16")
    );
    let (missed, not_needed) = left_out(&stack);
    assert_eq!(missed, ["ThumbnailBucket.VersioningConfiguration"]);
    assert_eq!(not_needed, ["CreateThumbnail.Policies", "SourceBucket.BucketEncryption"]);
}

#[test]
fn schedules_parameters_mappings_and_conditions_are_read() {
    let test = stack("report", &[]);
    let [report] = &test.functions[..] else { panic!("{test:?}") };
    assert_eq!((report.name.as_str(), report.memory_mib, report.timeout_s), ("report-test", Some(256), Some(60)));
    assert_eq!(report.environment["TO"], "a@example.com;b@example.com");
    assert_eq!(report.events.as_ref().map(|events| (events.retries, events.age_s)), Some((Some(1), None)));
    let schedules: Vec<(String, &str)> =
        report.schedules.iter().map(|one| (one.to_string(), one.name.as_str())).collect();
    assert_eq!(
        schedules,
        [
            ("cron(0 7 ? * MON-FRI *) in Europe/Paris".to_owned(), "morning-report"),
            ("rate(5 minutes) (paused)".to_owned(), "report-test-Often"),
        ]
    );
    let (missed, not_needed) = left_out(&test);
    assert_eq!(
        missed,
        [
            "Failures",
            "Report.Environment.SECRET",
            "Report.Environment.TABLE",
            "Report.EventInvokeConfig.DestinationConfig.OnFailure",
            "ReportTable",
        ]
    );
    assert_eq!(not_needed, ["Report.DeadLetterQueue", "Report.Events.EachMorning.RetryPolicy"]);
    assert!(why(&test, "Report.Environment.TABLE").contains("--parameter ReportTable=VALUE"));
    assert!(why(&test, "Report.Environment.SECRET").contains("--parameter Secret=VALUE"));

    let given = [("Stage", "prod"), ("ReportTable", "reports"), ("Secret", "s")];
    let prod = stack("report", &given);
    let names: Vec<&str> = prod.functions.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["cleanup", "report-prod"]);
    let report = &prod.functions[1];
    assert_eq!((report.memory_mib, report.timeout_s), (Some(1024), Some(300)));
    assert_eq!((report.environment["TABLE"].as_str(), report.environment["SECRET"].as_str()), ("reports", "s"));
    assert!(report.schedules.iter().all(|schedule| schedule.enabled));
}

#[test]
fn layers_of_the_template_are_its_own_and_those_of_other_accounts_are_left_out() {
    let stack = stack("layers", &[]);
    let [greet] = &stack.functions[..] else { panic!("{stack:?}") };
    assert_eq!(greet.layers, [LayerRef::Own("WordsLayer".to_owned())]);
    assert_eq!((greet.reserved, greet.runtime.as_deref()), (Some(2), Some("python3.12")));
    assert_eq!((greet.environment["LANGUAGE"].as_str(), greet.environment["POLITE"].as_str()), ("en", "yes"));
    let [words] = &stack.layers[..] else { panic!("{stack:?}") };
    assert_eq!((words.name.as_str(), words.runtimes.len(), words.license.as_deref()), ("words", 2, Some("MIT")));
    let (missed, not_needed) = left_out(&stack);
    assert_eq!(missed, ["Greet.AutoPublishAlias", "Greet.Layers"]);
    assert_eq!(not_needed, ["WordsLayer.RetentionPolicy"]);
}

#[test]
fn http_apis_become_urls_and_plain_cloudformation_is_read_too() {
    let stack = stack("web", &[("CodeBucket", "code")]);
    let named = |name: &str| stack.functions.iter().find(|one| one.name.as_str() == name).unwrap();
    assert_eq!(stack.functions.len(), 3);
    assert_eq!(
        (named("Notes").url, named("Private").url, named("Plain").url),
        (Some(UrlAccess::Public), Some(UrlAccess::Iam), None)
    );
    let plain = named("Plain");
    assert!(matches!(&plain.code, StackCode::Inline(text) if text.starts_with("def handler")));
    assert_eq!(plain.schedules[0].to_string(), "rate(1 hour)");
    assert_eq!(
        (plain.schedules[0].name.as_str(), plain.schedules[0].input.as_deref()),
        ("EachHour", Some("{\"hour\": true}"))
    );
    let (missed, not_needed) = left_out(&stack);
    assert_eq!(missed, ["Elsewhere", "Notes.Events.Gone", "Private.FunctionUrlConfig.Cors"]);
    assert_eq!(
        not_needed,
        [
            "EachHour.Targets.Id",
            "MayInvoke",
            "Notes.Events.Add",
            "Notes.Events.List",
            "Notes.Tracing",
            "NotesApi",
            "Plain.Role",
            "PlainRole",
        ]
    );
    assert!(why(&stack, "Elsewhere").contains("fetch it"));
}

#[test]
fn each_template_that_is_read_written_and_read_again_is_the_same() {
    for name in ["hello", "thumbnails", "report", "layers", "web"] {
        let given: &[(&str, &str)] = if name == "web" { &[("CodeBucket", "code")] } else { &[] };
        let first = stack(name, given);
        let again = read(&write(&first), &inputs(&[])).unwrap();
        assert_eq!(again.left_out, [], "{name}");
        let nameless = |stack: &Stack| {
            let mut stack = stack.clone();
            stack.left_out.clear();
            for (number, layer) in stack.layers.iter_mut().enumerate() {
                layer.logical = number.to_string();
            }
            for function in &mut stack.functions {
                function.logical.clear();
                function.schedules.sort_by(|one, other| one.name.cmp(&other.name));
                function.layers.iter_mut().for_each(|layer| {
                    if let LayerRef::Own(own) = layer {
                        *own = "0".to_owned();
                    }
                });
            }
            stack
        };
        assert_eq!(nameless(&again), nameless(&first), "{name}");
    }
}

#[test]
fn what_is_no_template_or_asks_for_what_it_does_not_take_is_refused() {
    let error = |text: &str, parameters: &[(&str, &str)]| read(text, &inputs(parameters)).unwrap_err().to_string();
    assert!(error("a: 1", &[]).contains("neither Resources"));
    assert!(error("{\"Resources\": ", &[]).starts_with("it is no JSON"));
    assert!(error("Resources: [", &[]).starts_with("line "));
    let report = template("report");
    assert_eq!(
        error(report, &[("Colour", "red")]),
        "--parameter Colour: the template has no parameter or resource of this name; its parameters are Recipients, Secret, Stage"
    );
    assert_eq!(error(report, &[("Stage", "dev")]), "--parameter Stage=dev: the template allows test, prod");
    let twice = "Resources:\n  A: {Type: AWS::Serverless::Function, Properties: {FunctionName: same}}\n  \
                 B: {Type: AWS::Serverless::Function, Properties: {FunctionName: same}}\n";
    assert!(error(twice, &[]).contains("two functions of the template are called same"));
    let named =
        read("Resources:\n  A: {Type: AWS::Serverless::Function, Properties: {FunctionName: a b}}\n", &inputs(&[]));
    assert_eq!(left_out(&named.unwrap()).0, ["A"]);
}
