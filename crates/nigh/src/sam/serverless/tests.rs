use super::super::template::read;
use super::super::yaml;
use super::*;

fn filled(text: &str) -> Value {
    let document = yaml::parse(text).unwrap();
    let inputs = Inputs {
        parameters: [("colour".to_owned(), "red".to_owned())].into(),
        region: "eu-west-3".to_owned(),
        environment: [("HOME".to_owned(), "/root".to_owned())].into(),
    };
    Variables { document: &document, inputs: &inputs, stage: Some("dev".to_owned()), count: Cell::new(0) }
        .filled(&document, 0)
}

#[test]
fn variables_are_filled_in_from_the_document_the_options_and_the_environment() {
    let text = "service: shop\ncustom: {sizes: {dev: 512, prod: 1024}, list: [a, b], loop: '${self:custom.loop}'}\n\
                a: ${self:service}-${sls:stage}\nb: ${self:custom.sizes.${sls:stage}}\nc: ${opt:colour}/${opt:size, 'small'}\n\
                d: ${env:HOME}\ne: ${self:custom.missing, self:custom.list.1}\nf: ${AWS::Region}-x\ng: ${opt:n, 3}\n\
                h: ${file(other.yml):x}\ni: ${self:custom.loop}\nj: ${aws:region}\nk: '${opt:x, ${opt:y, \"z\"}}'\n";
    let filled = filled(text);
    for (key, expected) in [
        ("a", json!("shop-dev")),
        ("b", json!(512)),
        ("c", json!("red/small")),
        ("d", json!("/root")),
        ("e", json!("b")),
        ("f", json!("${AWS::Region}-x")),
        ("g", json!(3)),
        ("j", json!("eu-west-3")),
        ("k", json!("z")),
    ] {
        assert_eq!(filled[key], expected, "{key}");
    }
    let why = |key: &str| filled[key][UNKNOWN_VARIABLE].as_str().unwrap_or_else(|| panic!("{filled}")).to_owned();
    assert!(why("h").contains("${file(other.yml):x} has no value"), "{}", why("h"));
    assert!(why("i").contains("names itself"), "{}", why("i"));
}

#[test]
fn a_function_gets_the_settings_of_its_provider_and_its_own() {
    let text = include_str!("../../../tests/templates/serverless/serverless.yml");
    let stack = read(text, &Inputs { region: "us-east-1".to_owned(), ..Inputs::default() }).unwrap();
    let names: Vec<&str> = stack.functions.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["notes-dev-count", "notes-dev-report"]);
    let [count, report] = &stack.functions[..] else { panic!("two functions") };
    assert_eq!((count.memory_mib, count.timeout_s, count.runtime.as_deref()), (Some(256), Some(6), Some("python3.11")));
    assert_eq!(count.environment["STAGE"], "dev");
    assert_eq!(count.triggers[0].to_string(), "notes-dev-inbox/in/*.txt");
    assert_eq!(
        report.schedules.iter().map(|one| one.expression.as_str()).collect::<Vec<_>>(),
        ["rate(1 hour)", "cron(0 8 ? * MON *)"]
    );
    assert!(report.url.is_some() && count.url.is_none());
    let whats: Vec<&str> = stack.left_out.iter().map(|one| one.what.as_str()).collect();
    assert!(whats.contains(&"plugins"), "{whats:?}");
}
