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
//! suffix = ".png"                   # without it: any
//! events = ["s3:ObjectRemoved:*"]   # without it: new objects
//! ```
//!
//! The file may hold the settings of a node, too: each reader passes over what is the other's. What the table does not
//! name stays as it is deployed; but the function has exactly the triggers that it lists, of those that `nigh deploy`
//! makes.

use std::collections::BTreeMap;

use nigh_node::client::{IDEMPOTENT_VARIABLE, NETWORK_VARIABLE, NONE, OUTBOUND, TriggerFilter};
use nigh_node::config::FUNCTION_TABLE;
use nigh_terms::{BucketName, ByteSize, FunctionName};
use thiserror::Error;
use toml::{Table, Value};

use super::description::{FunctionDescription, Reserve, TakenBack, Trigger, TriggerChange, UrlAccess};
use crate::lambda_units;
use crate::schedules::ScheduleChange;
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
const TRIGGER_NAMES: [&str; 4] = ["bucket", "prefix", "suffix", "events"];
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
            let mut filter = TriggerFilter::created(&fields.text("prefix")?.unwrap_or_default());
            filter.suffix = fields.text("suffix")?.unwrap_or_default();
            filter.events = fields.texts("events")?.filter(|events| !events.is_empty()).unwrap_or(filter.events);
            triggers.push(Trigger { bucket, filter });
        }
        Ok(triggers)
    }

    /// `every`, `cron` and `timezone`: in the table itself, or in `[function.schedule]`.
    fn schedule(&self) -> Result<Option<ScheduleChange>, ProjectFileError> {
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
        let (every, cron, timezone) = (fields.text("every")?, fields.text("cron")?, fields.text("timezone")?);
        let key = match (&every, &cron, &timezone) {
            (Some(_), Some(_), _) => return Err(fields.wrong("every", "give either every or cron".to_owned())),
            (_, None, Some(_)) => {
                return Err(fields.wrong("timezone", "it belongs to cron, which is missing".to_owned()));
            }
            (Some(_), ..) => "every",
            _ => "cron",
        };
        let read = ScheduleChange::read(every.as_deref(), cron.as_deref(), timezone.as_deref());
        read.map_err(|why| fields.wrong(key, why))
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
mod tests;
