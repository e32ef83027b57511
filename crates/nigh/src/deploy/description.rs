//! What a function shall be: the settings that the command line and `nigh.toml` give, and what hangs on it. Pure.
//!
//! What is not given stays as it is; a new function takes Lambda's defaults.

use std::collections::BTreeMap;
use std::fmt;

use nigh_node::client::{FunctionChange, TriggerFilter};
use nigh_terms::{BucketName, ByteSize};
use serde::Serialize;

use crate::schedules::ScheduleChange;

/// A function as somebody describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FunctionDescription {
    /// `python3.11`, `provided.al2023`; `python` is the node's default, `nodejs` its newest.
    pub(crate) runtime: Option<String>,
    /// `main.handle`.
    pub(crate) handler: Option<String>,
    /// The booking.
    pub(crate) memory: Option<ByteSize>,
    /// How long an invocation may run.
    pub(crate) timeout_s: Option<u64>,
    /// The size of `/tmp`.
    pub(crate) tmp: Option<ByteSize>,
    /// For people to read.
    pub(crate) description: Option<String>,
    /// The ARNs of all its layers.
    pub(crate) layers: Option<Vec<String>>,
    /// The whole environment.
    pub(crate) environment: Option<BTreeMap<String, String>>,
    /// Nigh's own variables, set beside the others.
    pub(crate) variables: BTreeMap<String, String>,
    /// The reserved concurrency.
    pub(crate) reserved: Option<Reserve>,
    /// The URL.
    pub(crate) url: Option<UrlAccess>,
    /// The objects that trigger it.
    pub(crate) triggers: TriggerChange,
    /// When it runs by itself, or that it no longer does.
    pub(crate) schedule: Option<ScheduleChange>,
}

/// The reserved concurrency of a function; none: no reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reserve(pub(crate) Option<u64>);

/// Who may call a function's URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum UrlAccess {
    /// There is no URL.
    None,
    /// Who signs with a key of the function's namespace.
    Iam,
    /// Anybody.
    Public,
}

/// The objects that trigger a function.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct Trigger {
    /// The bucket.
    pub(crate) bucket: BucketName,
    /// Which changes of which of its objects.
    #[serde(flatten)]
    pub(crate) filter: TriggerFilter,
}

/// How a function's triggers change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TriggerChange {
    /// Triggers that it shall have.
    pub(crate) wanted: Vec<Trigger>,
    /// Which others it loses.
    pub(crate) taken_back: TakenBack,
}

/// The triggers that a function loses, of those that are not wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum TakenBack {
    /// None.
    #[default]
    Nothing,
    /// Those that `nigh deploy` made.
    Own,
    /// All, whoever made them.
    All,
}

impl fmt::Display for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.bucket, self.filter)
    }
}

impl Trigger {
    /// Reads `BUCKET` or `BUCKET/PREFIX`.
    ///
    /// # Errors
    /// If the bucket's name is none.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (bucket, prefix) = text.split_once('/').unwrap_or((text, ""));
        let bucket = BucketName::new(bucket).map_err(|error| error.to_string())?;
        Ok(Self { bucket, filter: TriggerFilter::created(prefix) })
    }
}

impl Reserve {
    /// Reads a number, or `none`.
    ///
    /// # Errors
    /// If it is neither.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Self(None)),
            count => count.parse().map(|count| Self(Some(count))).map_err(|_| "write a number, or none".to_owned()),
        }
    }
}

impl UrlAccess {
    /// Reads `iam`, `public` or `none`.
    ///
    /// # Errors
    /// If it is another word.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        match text {
            "iam" => Ok(Self::Iam),
            "public" => Ok(Self::Public),
            "none" => Ok(Self::None),
            _ => Err("write iam, public, or none".to_owned()),
        }
    }

    /// From Lambda's word.
    pub(crate) fn of_auth(auth: &str) -> Self {
        if auth == "NONE" { Self::Public } else { Self::Iam }
    }

    /// Lambda's word; none without a URL.
    pub(crate) const fn auth(self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::Iam => Some("AWS_IAM"),
            Self::Public => Some("NONE"),
        }
    }

    /// The word that `parse` reads.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Iam => "iam",
            Self::Public => "public",
        }
    }
}

impl TriggerChange {
    /// True if no trigger is given and none taken back.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Reads the values of `--trigger`: `none` takes back all triggers that the others do not name.
    ///
    /// # Errors
    /// If one is no bucket with a prefix.
    pub(crate) fn parse(given: &[String]) -> Result<Self, String> {
        let is_none = |text: &&String| *text == "none";
        let wanted = given.iter().filter(|text| !is_none(text)).map(|text| Trigger::parse(text));
        let taken_back = if given.iter().any(|text| is_none(&text)) { TakenBack::All } else { TakenBack::Nothing };
        Ok(Self { wanted: wanted.collect::<Result<_, _>>()?, taken_back })
    }
}

impl FunctionDescription {
    /// This description, with what `above` gives in place of its own.
    pub(crate) fn overlaid(self, above: Self) -> Self {
        let mut variables = self.variables;
        variables.extend(above.variables);
        Self {
            runtime: above.runtime.or(self.runtime),
            handler: above.handler.or(self.handler),
            memory: above.memory.or(self.memory),
            timeout_s: above.timeout_s.or(self.timeout_s),
            tmp: above.tmp.or(self.tmp),
            description: above.description.or(self.description),
            layers: above.layers.or(self.layers),
            environment: above.environment.or(self.environment),
            variables,
            reserved: above.reserved.or(self.reserved),
            url: above.url.or(self.url),
            triggers: match (above.triggers.taken_back, above.triggers.wanted) {
                (TakenBack::Nothing, more) => TriggerChange {
                    wanted: self.triggers.wanted.into_iter().chain(more).collect(),
                    taken_back: self.triggers.taken_back,
                },
                (taken_back, wanted) => TriggerChange { wanted, taken_back },
            },
            schedule: above.schedule.or(self.schedule),
        }
    }

    /// True if it says nothing.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Its settings, as the Lambda API takes them.
    pub(crate) fn settings(&self) -> FunctionChange {
        FunctionChange {
            runtime: self.runtime.clone(),
            handler: self.handler.clone(),
            memory_mib: self.memory.map(ByteSize::mib_ceil),
            timeout_s: self.timeout_s,
            ephemeral_mib: self.tmp.map(ByteSize::mib_ceil),
            environment: self.environment.clone(),
            variables: self.variables.clone(),
            description: self.description.clone(),
            layers: self.layers.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn triggers_reserves_and_urls_are_read_as_they_are_written() {
        assert_eq!(Trigger::parse("pictures/in/a").unwrap().filter.prefix, "in/a");
        assert_eq!(Trigger::parse("pictures").unwrap().filter.prefix, "");
        assert!(Trigger::parse("No").is_err() && Trigger::parse("/in").is_err());
        assert_eq!((Reserve::parse("none"), Reserve::parse("7")), (Ok(Reserve(None)), Ok(Reserve(Some(7)))));
        assert!(Reserve::parse("-1").is_err());
        for access in [UrlAccess::Iam, UrlAccess::Public, UrlAccess::None] {
            assert_eq!(UrlAccess::parse(access.word()), Ok(access));
            assert_eq!(access.auth().map_or(UrlAccess::None, UrlAccess::of_auth), access);
        }
        assert!(UrlAccess::parse("everybody").is_err());
    }

    #[test]
    fn none_takes_all_triggers_back_but_those_beside_it() {
        let given =
            |words: &[&str]| TriggerChange::parse(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        assert!(given(&[]).unwrap().is_empty());
        let more = given(&["pictures/in/"]).unwrap();
        assert_eq!((more.wanted.len(), more.taken_back), (1, TakenBack::Nothing));
        let only = given(&["none", "pictures/in/"]).unwrap();
        assert_eq!((only.wanted.len(), only.taken_back), (1, TakenBack::All));
        assert!(given(&["None"]).is_err());
    }

    #[test]
    fn the_command_line_wins_over_the_file_and_adds_its_triggers() {
        let trigger = |text: &str| Trigger::parse(text).unwrap();
        let file = FunctionDescription {
            memory: Some(ByteSize::mib(128)),
            timeout_s: Some(3),
            variables: [("A".to_owned(), "file".to_owned()), ("B".to_owned(), "file".to_owned())].into(),
            triggers: TriggerChange { wanted: vec![trigger("one/a/")], taken_back: TakenBack::Own },
            ..FunctionDescription::default()
        };
        let line = FunctionDescription {
            memory: Some(ByteSize::mib(512)),
            variables: [("A".to_owned(), "line".to_owned())].into(),
            triggers: TriggerChange { wanted: vec![trigger("two/b/")], taken_back: TakenBack::Nothing },
            ..FunctionDescription::default()
        };
        let both = file.clone().overlaid(line);
        assert_eq!((both.memory, both.timeout_s), (Some(ByteSize::mib(512)), Some(3)));
        assert_eq!(both.variables.values().collect::<Vec<_>>(), ["line", "file"]);
        assert_eq!(both.triggers.wanted, [trigger("one/a/"), trigger("two/b/")]);
        assert_eq!(both.triggers.taken_back, TakenBack::Own);
        let none =
            FunctionDescription { triggers: TriggerChange::parse(&["none".to_owned()]).unwrap(), ..Default::default() };
        assert_eq!(file.overlaid(none).triggers, TriggerChange { wanted: Vec::new(), taken_back: TakenBack::All });
    }
}
