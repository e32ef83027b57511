//! The table `[function]` of `nigh.toml`: what the function of a folder is. Pure.
//!
//! ```toml
//! [function]
//! name = "hello"              # without it: the folder's name
//! runtime = "python"          # python3.11, provided.al2023, ...; python: the node's default, nodejs: its newest
//! handler = "main.handle"
//! memory = 256                # MB, as Lambda counts them; also "256MB"
//! timeout = 30                # seconds; also "30 s"
//! environment = { LEVEL = "2" }
//! files = ["main.py", "lib"]  # what is deployed; without it: the whole folder
//! event = "event.json"        # the input for trials
//!
//! [[function.trigger]]
//! bucket = "photos"
//! prefix = "in/"
//! ```
//!
//! The file may hold the settings of a node, too: each reader passes over what is the other's. What the table does not
//! name stays as it is deployed; but the function has exactly the triggers that it lists, of those that `nigh deploy`
//! makes.

use std::collections::BTreeMap;

use nigh_node::client::{IDEMPOTENT_VARIABLE, NETWORK_VARIABLE, NONE, OUTBOUND};
use nigh_node::config::FUNCTION_TABLE;
use nigh_terms::{BucketName, ByteSize, FunctionName};
use thiserror::Error;
use toml::{Table, Value};

use super::description::{FunctionDescription, Reserve, ScheduleText, TakenBack, Trigger, TriggerChange, UrlAccess};
use crate::lambda_units;
use crate::suggestion::{alike, hint};

/// The name of the file.
pub(crate) const PROJECT_FILE: &str = "nigh.toml";
/// The event for trials, if the file names none.
pub(crate) const EVENT_FILE: &str = "event.json";
/// The table of a node's settings whose name is almost the same.
const NODE_TABLE: &str = "functions";

/// What the table may name.
const NAMES: [&str; 21] = [
    "name",
    "runtime",
    "handler",
    "memory",
    "timeout",
    "tmp",
    "description",
    "layers",
    "environment",
    "network",
    "idempotent",
    "reserved",
    "url",
    "trigger",
    "every",
    "cron",
    "timezone",
    "schedule",
    "files",
    "event",
    "workflow",
];
/// What a trigger may name.
const TRIGGER_NAMES: [&str; 2] = ["bucket", "prefix"];
/// What a schedule may name.
const SCHEDULE_NAMES: [&str; 3] = ["every", "cron", "timezone"];

/// A function's description in a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProjectFile {
    /// The function's name; none: the folder's.
    pub(crate) name: Option<FunctionName>,
    /// What the function shall be.
    pub(crate) description: FunctionDescription,
    /// The files and folders that are deployed; empty: all.
    pub(crate) files: Vec<String>,
    /// The file with the event for trials.
    pub(crate) event: Option<String>,
    /// The file with the state machine that calls the function.
    pub(crate) workflow: Option<String>,
    /// True if the file holds settings of a node, too.
    pub(crate) has_node_settings: bool,
}

/// Why the file cannot be used.
#[derive(Debug, PartialEq, Eq, Error)]
pub(crate) enum ProjectFileError {
    #[error("{file}: {reason}")]
    Toml { file: String, reason: String },
    #[error("{file} has no table [{FUNCTION_TABLE}], which describes the function{hint}")]
    NoTable {
        file: String,
        hint: String,
        /// True if another table was probably meant to be it.
        is_slip: bool,
    },
    #[error("{file}: there is no {key}{hint}")]
    Unknown { file: String, key: String, hint: String },
    #[error("{file}: {key}: {why}")]
    Value { file: String, key: String, why: String },
}

/// A table of the file, with its name there.
struct Fields<'a> {
    file: &'a str,
    path: String,
    table: &'a Table,
}

impl ProjectFile {
    /// Reads the text of `file`.
    ///
    /// # Errors
    /// If it has no table `[function]`, or the table has an unknown name or a value that cannot be.
    pub(crate) fn parse(file: &str, text: &str) -> Result<Self, ProjectFileError> {
        let whole: Table = text.parse().map_err(|error: toml::de::Error| ProjectFileError::Toml {
            file: file.to_owned(),
            reason: error.to_string().trim_end().to_owned(),
        })?;
        let table = match whole.get(FUNCTION_TABLE) {
            Some(Value::Table(table)) => table,
            Some(_) => {
                let why = format!("write the table [{FUNCTION_TABLE}]");
                return Err(ProjectFileError::Value { file: file.to_owned(), key: FUNCTION_TABLE.to_owned(), why });
            }
            None => {
                let mut names = whole.keys().map(String::as_str);
                let (hint, is_slip) = match names.find(|name| alike(name, [FUNCTION_TABLE]).is_some()) {
                    Some(NODE_TABLE) => (format!("; [{NODE_TABLE}] has settings of a node"), false),
                    Some(other) => (format!("; did you mean it by [{other}]?"), true),
                    None => (String::new(), false),
                };
                return Err(ProjectFileError::NoTable { file: file.to_owned(), hint, is_slip });
            }
        };
        let mut read = Fields { file, path: FUNCTION_TABLE.to_owned(), table }.project()?;
        read.has_node_settings = whole.len() > 1;
        Ok(read)
    }
}

impl<'a> Fields<'a> {
    fn project(&self) -> Result<ProjectFile, ProjectFileError> {
        self.knows_only(&NAMES)?;
        let name = self.text("name")?.map(|name| FunctionName::new(&name)).transpose();
        let timeout = self.scalar("timeout")?.map(|text| lambda_units::seconds(&text)).transpose();
        let reserved = self.scalar("reserved")?.map(|text| Reserve::parse(&text)).transpose();
        let url = self.text("url")?.map(|text| UrlAccess::parse(&text)).transpose();
        let description = FunctionDescription {
            runtime: self.text("runtime")?,
            handler: self.text("handler")?,
            memory: self.memory("memory")?,
            timeout_s: timeout.map_err(self.at("timeout"))?,
            tmp: self.memory("tmp")?,
            description: self.text("description")?,
            layers: self.texts("layers")?,
            environment: self.environment()?,
            variables: self.variables()?,
            reserved: reserved.map_err(self.at("reserved"))?,
            url: url.map_err(self.at("url"))?,
            triggers: TriggerChange { wanted: self.triggers()?, taken_back: TakenBack::Own },
            schedule: self.schedule()?,
        };
        Ok(ProjectFile {
            name: name.map_err(|error| self.wrong("name", error.to_string()))?,
            description,
            files: self.texts("files")?.unwrap_or_default(),
            event: self.text("event")?,
            workflow: self.text("workflow")?,
            has_node_settings: false,
        })
    }

    fn wrong(&self, key: &str, why: String) -> ProjectFileError {
        ProjectFileError::Value { file: self.file.to_owned(), key: format!("{}.{key}", self.path), why }
    }

    fn at(&self, key: &'static str) -> impl Fn(String) -> ProjectFileError {
        move |why| self.wrong(key, why)
    }

    fn knows_only(&self, names: &[&str]) -> Result<(), ProjectFileError> {
        let Some(unknown) = self.table.keys().find(|key| !names.contains(&key.as_str())) else { return Ok(()) };
        Err(ProjectFileError::Unknown {
            file: self.file.to_owned(),
            key: format!("{}.{unknown}", self.path),
            hint: hint(unknown, names, "there are"),
        })
    }

    fn text(&self, key: &str) -> Result<Option<String>, ProjectFileError> {
        match self.table.get(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(_) => Err(self.wrong(key, "write a text in quotes".to_owned())),
        }
    }

    /// A text, or a number or `true` without quotes.
    fn scalar(&self, key: &str) -> Result<Option<String>, ProjectFileError> {
        let Some(value) = self.table.get(key) else { return Ok(None) };
        scalar(value).map(Some).ok_or_else(|| self.wrong(key, "write a number, or a text in quotes".to_owned()))
    }

    fn memory(&self, key: &str) -> Result<Option<ByteSize>, ProjectFileError> {
        let read = self.scalar(key)?.map(|text| lambda_units::memory(&text)).transpose();
        read.map_err(|why| self.wrong(key, why))
    }

    fn flag(&self, key: &str) -> Result<Option<bool>, ProjectFileError> {
        match self.table.get(key) {
            None => Ok(None),
            Some(Value::Boolean(flag)) => Ok(Some(*flag)),
            Some(_) => Err(self.wrong(key, "write true or false".to_owned())),
        }
    }

    fn texts(&self, key: &str) -> Result<Option<Vec<String>>, ProjectFileError> {
        let Some(value) = self.table.get(key) else { return Ok(None) };
        let list = value.as_array().and_then(|list| list.iter().map(|one| one.as_str().map(str::to_owned)).collect());
        list.map(Some).ok_or_else(|| self.wrong(key, "write a list of texts: [\"one\", \"two\"]".to_owned()))
    }

    fn environment(&self) -> Result<Option<BTreeMap<String, String>>, ProjectFileError> {
        let key = "environment";
        let Some(value) = self.table.get(key) else { return Ok(None) };
        let wrong = || self.wrong(key, "write a table of texts: { LEVEL = \"2\" }".to_owned());
        let pairs = value.as_table().ok_or_else(wrong)?.iter();
        let pairs = pairs.map(|(name, value)| Ok((name.clone(), scalar(value).ok_or_else(wrong)?)));
        pairs.collect::<Result<_, ProjectFileError>>().map(Some)
    }

    /// Nigh's own variables.
    fn variables(&self) -> Result<BTreeMap<String, String>, ProjectFileError> {
        let mut variables = BTreeMap::new();
        if let Some(network) = self.text("network")? {
            if ![OUTBOUND, NONE].contains(&network.as_str()) {
                return Err(self.wrong("network", format!("write \"{OUTBOUND}\" or \"{NONE}\"")));
            }
            variables.insert(NETWORK_VARIABLE.to_owned(), network);
        }
        if let Some(idempotent) = self.flag("idempotent")? {
            variables.insert(IDEMPOTENT_VARIABLE.to_owned(), idempotent.to_string());
        }
        Ok(variables)
    }

    /// The tables that `key` lists: `[[function.key]]`.
    fn tables(&self, key: &str) -> Result<Vec<Fields<'a>>, ProjectFileError> {
        let Some(value) = self.table.get(key) else { return Ok(Vec::new()) };
        let wrong = || self.wrong(key, format!("write a table: [[{}.{key}]]", self.path));
        let list = value.as_array().ok_or_else(wrong)?.iter();
        let list = list.map(|one| {
            let table = one.as_table().ok_or_else(wrong)?;
            Ok(Fields { file: self.file, path: format!("{}.{key}", self.path), table })
        });
        list.collect()
    }

    fn triggers(&self) -> Result<Vec<Trigger>, ProjectFileError> {
        let mut triggers = Vec::new();
        for fields in self.tables("trigger")? {
            fields.knows_only(&TRIGGER_NAMES)?;
            let bucket = fields.text("bucket")?;
            let bucket = bucket.ok_or_else(|| fields.wrong("bucket", "name the bucket".to_owned()))?;
            let bucket = BucketName::new(&bucket).map_err(|error| fields.wrong("bucket", error.to_string()))?;
            triggers.push(Trigger { bucket, prefix: fields.text("prefix")?.unwrap_or_default() });
        }
        Ok(triggers)
    }

    /// `every`, `cron` and `timezone`: in the table itself, or in `[function.schedule]`.
    fn schedule(&self) -> Result<Option<ScheduleText>, ProjectFileError> {
        let own;
        let fields = match self.table.get("schedule") {
            None => self,
            Some(Value::Table(table)) => {
                own = Fields { file: self.file, path: format!("{}.schedule", self.path), table };
                own.knows_only(&SCHEDULE_NAMES)?;
                &own
            }
            Some(_) => return Err(self.wrong("schedule", format!("write a table: [{}.schedule]", self.path))),
        };
        let text = ScheduleText {
            every: fields.text("every")?,
            cron: fields.text("cron")?,
            timezone: fields.text("timezone")?,
        };
        match (&text.every, &text.cron, &text.timezone) {
            (None, None, None) => Ok(None),
            (Some(_), Some(_), _) => Err(fields.wrong("every", "give either every or cron".to_owned())),
            (None, None, Some(_)) => Err(fields.wrong("timezone", "it belongs to cron, which is missing".to_owned())),
            _ => Ok(Some(text)),
        }
    }
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Integer(number) => Some(number.to_string()),
        Value::Float(number) => Some(number.to_string()),
        Value::Boolean(flag) => Some(flag.to_string()),
        Value::Datetime(_) | Value::Array(_) | Value::Table(_) => None,
    }
}

#[cfg(test)]
mod tests {
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
        assert_eq!(triggers, ["photos/in/", "films/"]);
        assert_eq!(description.triggers.taken_back, TakenBack::Own);
        assert_eq!(description.schedule.as_ref().unwrap().words(), "every 5 min");
        assert_eq!(
            (read.files, read.event.as_deref()),
            (vec!["main.py".to_owned(), "lib".to_owned()], Some("trial.json"))
        );
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
        let cron =
            read("[function]\n[function.schedule]\ncron = \"0 8 * * ? *\"\ntimezone = \"Europe/Paris\"\n").unwrap();
        assert_eq!(cron.description.schedule.unwrap().words(), "cron 0 8 * * ? * in Europe/Paris");
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
}
