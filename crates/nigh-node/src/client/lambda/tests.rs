use super::*;

#[test]
fn only_what_is_given_is_sent() {
    assert!(FunctionChange::default().fields(&json!({ "A": "1" })).is_empty());
    let change = FunctionChange { memory_mib: Some(256), ..FunctionChange::default() };
    assert_eq!(Value::Object(change.fields(&Value::Null)), json!({ "MemorySize": 256 }));
}

#[test]
fn a_single_variable_is_set_beside_those_that_are_there_or_are_given() {
    let variables = || [("B".to_owned(), "2".to_owned())].into();
    let alone = FunctionChange { variables: variables(), ..FunctionChange::default() };
    let sent = |change: &FunctionChange, current| change.fields(&current)["Environment"]["Variables"].clone();
    assert_eq!(sent(&alone, json!({ "A": "1", "B": "1" })), json!({ "A": "1", "B": "2" }));
    assert_eq!(sent(&alone, Value::Null), json!({ "B": "2" }));
    let environment = Some([("C".to_owned(), "3".to_owned())].into());
    let given = FunctionChange { environment, ..alone };
    assert_eq!(sent(&given, json!({ "A": "1" })), json!({ "B": "2", "C": "3" }));
}

#[test]
fn the_settings_of_a_function_can_be_given_back_to_it() {
    let configuration = json!({
        "Runtime": "python3.11", "Handler": "a.b", "MemorySize": 256, "Timeout": 7, "Description": "",
        "EphemeralStorage": { "Size": 512 }, "Environment": { "Variables": { "A": "1" } },
        "Layers": [{ "Arn": "arn:1", "CodeSize": 3 }], "CodeSize": 9,
    });
    let fields = Value::Object(FunctionChange::back_to(&configuration).fields(&json!({ "B": "2" })));
    let mut expected = configuration.clone();
    expected.as_object_mut().unwrap().remove("CodeSize");
    expected["Layers"] = json!(["arn:1"]);
    assert_eq!(fields, expected);
    // What has no variables and no layers loses those that it has got in between.
    let bare = FunctionChange::back_to(&json!({ "MemorySize": 128 }));
    assert_eq!((bare.environment, bare.layers), (Some(BTreeMap::new()), Some(Vec::new())));
}

#[test]
fn lambdas_error_is_understood() {
    let mut headers = HeaderMap::new();
    headers.insert("x-amzn-errortype", "ResourceNotFoundException:http://x".parse().unwrap());
    let body = br#"{"Type":"User","Message":"Function not found: f"}"#;
    let refused = refusal(StatusCode::NOT_FOUND, &headers, body);
    assert!(refused.is_not_found());
    assert_eq!(refused.to_string(), "Function not found: f (ResourceNotFoundException)");
}
