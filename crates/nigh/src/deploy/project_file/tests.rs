use super::*;

fn read(text: &str) -> Result<ProjectFile, String> {
    ProjectFile::parse("nigh.toml", text).map_err(|error| error.to_string())
}

#[test]
fn a_whole_description_is_read() {
    let read = read(
        r#"
        region = "eu-west-3"
        [function]
        name = "hello"
        runtime = "python3.11"
        handler = "main.handle"
        memory = 512
        timeout = "2 min"
        tmp = "1GB"
        description = "says hello"
        layers = ["arn:1"]
        environment = { LEVEL = 2, MODE = "fast", LOUD = true }
        network = "outbound"
        idempotent = true
        reserved = 4
        url = "iam"
        every = "5 min"
        files = ["main.py", "lib"]
        event = "trial.json"
        workflow = "workflow.json"
        [[function.trigger]]
        bucket = "photos"
        prefix = "in/"
        [[function.trigger]]
        bucket = "films"
        suffix = ".avi"
        events = ["s3:ObjectRemoved:*"]
        "#,
    )
    .unwrap();
    let description = &read.description;
    assert_eq!(read.name.unwrap().as_str(), "hello");
    assert_eq!((description.memory, description.tmp), (Some(ByteSize::mib(512)), Some(ByteSize::gib(1))));
    assert_eq!((description.timeout_s, description.reserved), (Some(120), Some(Reserve(Some(4)))));
    assert_eq!(description.environment.as_ref().unwrap().values().collect::<Vec<_>>(), ["2", "true", "fast"]);
    assert_eq!(description.variables[NETWORK_VARIABLE], "outbound");
    assert_eq!(description.variables[IDEMPOTENT_VARIABLE], "true");
    let triggers: Vec<String> = description.triggers.wanted.iter().map(Trigger::to_string).collect();
    assert_eq!(triggers, ["photos/in/", "films/*.avi (s3:ObjectRemoved:*)"]);
    assert_eq!(description.triggers.taken_back, TakenBack::Own);
    assert_eq!(description.schedule.as_ref().unwrap().words().unwrap(), "rate(5 minutes) in UTC");
    assert_eq!((read.files, read.event.as_deref()), (vec!["main.py".to_owned(), "lib".to_owned()], Some("trial.json")));
    assert!(read.has_node_settings);
}

#[test]
fn the_least_file_says_nothing_but_that_the_function_is_here() {
    let read = read("[function]\n").unwrap();
    assert!(read.name.is_none() && !read.has_node_settings && read.files.is_empty());
    assert_eq!(read.description.triggers.taken_back, TakenBack::Own);
}

#[test]
fn a_schedule_has_a_table_of_its_own_or_none() {
    let cron = read("[function]\n[function.schedule]\ncron = \"0 8 * * ? *\"\ntimezone = \"Europe/Paris\"\n").unwrap();
    assert_eq!(cron.description.schedule.unwrap().words().unwrap(), "cron(0 8 * * ? *) in Europe/Paris");
    let none = read("[function]\nevery = \"none\"\n").unwrap();
    assert_eq!(none.description.schedule.unwrap().words(), None, "it is taken back");
    assert!(read("[function]\n").unwrap().description.schedule.is_none(), "it stays as it is");
}

#[test]
fn what_is_wrong_is_told_with_its_place_and_what_to_write() {
    for (text, said) in [
        ("[function]\nmemroy = 1\n", "nigh.toml: there is no function.memroy; did you mean memory?"),
        ("[function]\ncolour = 1\n", "nigh.toml: there is no function.colour; there are name, runtime, "),
        (
            "[function]\nmemory = \"lots\"\n",
            "nigh.toml: function.memory: \"lots\" is not a size; write MB as Lambda does",
        ),
        ("[function]\ntimeout = 1.5\n", "nigh.toml: function.timeout: \"1.5\" is not a time in whole seconds"),
        ("[function]\nname = \"../x\"\n", "nigh.toml: function.name: "),
        ("[function]\nhandler = 3\n", "nigh.toml: function.handler: write a text in quotes"),
        ("[function]\nfiles = \"a\"\n", "nigh.toml: function.files: write a list of texts"),
        ("[function]\nurl = \"all\"\n", "nigh.toml: function.url: write iam, public, or none"),
        ("[function]\nnetwork = \"all\"\n", "nigh.toml: function.network: write \"outbound\" or \"none\""),
        ("[function]\ntrigger = \"a\"\n", "nigh.toml: function.trigger: write a table: [[function.trigger]]"),
        ("[[function.trigger]]\nprefix = \"in/\"\n", "nigh.toml: function.trigger.bucket: name the bucket"),
        (
            "[[function.trigger]]\nbuckte = \"photos\"\n",
            "nigh.toml: there is no function.trigger.buckte; did you mean bucket?",
        ),
        ("[function]\nevery = \"1 h\"\ncron = \"x\"\n", "nigh.toml: function.every: give either every or cron"),
        ("[function]\nevery = \"30 s\"\n", "nigh.toml: function.every: an interval is in whole minutes"),
        ("[function]\ntimezone = \"UTC\"\n", "nigh.toml: function.timezone: it belongs to cron"),
        ("function = 3\n", "nigh.toml: function: write the table [function]"),
        ("", "nigh.toml has no table [function], which describes the function"),
        (
            "[funtcion]\n",
            "nigh.toml has no table [function], which describes the function; did you mean it by [funtcion]?",
        ),
        (
            "[functions]\n",
            "nigh.toml has no table [function], which describes the function; [functions] has settings of a node",
        ),
        ("[function\n", "nigh.toml: TOML parse error at line 1"),
    ] {
        let refused = read(text).unwrap_err();
        assert!(refused.starts_with(said), "{text:?}: {refused}");
    }
}
