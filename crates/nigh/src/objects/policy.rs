//! `nigh objects policy`: a bucket's write modes, and whether outsiders write to it.

use clap::{Args, ValueEnum};
use nigh_objects::{Access, BucketPolicy, EntityTag, Freshness, ModeRule, ParseWriteModeError, WriteMode};

use super::bucket_only;
use crate::context::Globals;
use crate::error::CliError;
use crate::object_address::{ObjectAddress, anywhere};
use crate::output;

/// Options of `nigh objects policy`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  nigh objects policy nigh://pictures                                show it
  nigh objects policy nigh://pictures --mode through
  nigh objects policy nigh://pictures --rule tmp/=ephemeral --floor ephemeral
  nigh objects policy nigh://incoming --access shared --freshness 0s

Modes, weakest first: ephemeral, lazy, shadow, through. What is not named stays; writes acknowledged
before stay as they are. docs/howto/stores.md says what each mode promises.")]
pub(crate) struct PolicyArgs {
    /// BUCKET
    #[arg(value_parser = anywhere)]
    address: ObjectAddress,
    /// The bucket's write mode: when a write counts as done
    #[arg(long)]
    mode: Option<WriteMode>,
    /// The weakest mode that a rule or a request may choose
    #[arg(long, value_name = "MODE")]
    floor: Option<WriteMode>,
    /// Who writes to the bucket
    #[arg(long)]
    access: Option<AccessArg>,
    /// How old a cached copy may be: 0s asks the store before each hit, 30s at most every 30 seconds, none never
    #[arg(long, value_name = "DURATION")]
    freshness: Option<FreshnessArg>,
    /// What the entity tags of its objects are; `default`: md5, and composite for 1 MiB and more on the fast path
    #[arg(long)]
    etag: Option<EntityTagArg>,
    /// The earlier name: `true` is `--freshness 0s`, `false` is `--freshness none`
    #[arg(long, hide = true, conflicts_with = "freshness")]
    revalidate: Option<bool>,
    /// Another write mode for keys that begin with PREFIX; may be repeated; replaces all rules that the bucket had
    #[arg(long = "rule", value_name = "PREFIX=MODE")]
    rules: Vec<PrefixRule>,
    /// Another write mode for objects with this tag; may be repeated; replaces all rules that the bucket had
    #[arg(long = "tag-rule", value_name = "TAG:VALUE=MODE")]
    tag_rules: Vec<TagRule>,
    /// Start from the default policy instead of the bucket's
    #[arg(long)]
    reset: bool,
}

/// `Access`, as a flag.
#[derive(Clone, Copy, ValueEnum)]
enum AccessArg {
    /// Only Nigh
    Exclusive,
    /// Nigh and others: Nigh overwrites no write of others
    Shared,
}

/// `EntityTag`, as a flag.
#[derive(Clone, Copy, ValueEnum)]
enum EntityTagArg {
    /// The MD5 of the bytes, as S3 has it of an object in one piece
    Md5,
    /// Half of the bytes' SHA-256 and `-1`: half of the time, and no tool takes it for an MD5
    Composite,
    /// As no policy says
    Default,
}

/// A bound, or none.
#[derive(Clone, Copy)]
struct FreshnessArg(Option<Freshness>);

impl std::str::FromStr for FreshnessArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "none" => Ok(Self(None)),
            _ => match text.parse::<Freshness>() {
                Ok(bound) => Ok(Self(Some(bound))),
                Err(error) => Err(format!("{error}; `none` lets a copy serve for any time")),
            },
        }
    }
}

#[derive(Clone)]
struct PrefixRule(ModeRule);

#[derive(Clone)]
struct TagRule(ModeRule);

fn mode_behind<'t>(text: &'t str, form: &str) -> Result<(&'t str, WriteMode), String> {
    let (what, mode) = text.rsplit_once('=').ok_or_else(|| format!("`{text}` is not of the form {form}"))?;
    Ok((what, mode.parse().map_err(|error: ParseWriteModeError| error.to_string())?))
}

impl std::str::FromStr for PrefixRule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (prefix, mode) = mode_behind(text, "PREFIX=MODE")?;
        Ok(Self(ModeRule { prefix: prefix.to_owned(), tag: None, mode }))
    }
}

impl std::str::FromStr for TagRule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = "TAG:VALUE=MODE";
        let (tag, mode) = mode_behind(text, form)?;
        let (name, value) = tag.split_once(':').ok_or_else(|| format!("`{text}` is not of the form {form}"))?;
        Ok(Self(ModeRule { prefix: String::new(), tag: Some((name.to_owned(), value.to_owned())), mode }))
    }
}

impl PolicyArgs {
    /// True if nothing is to be changed.
    const fn only_shows(&self) -> bool {
        self.mode.is_none()
            && self.floor.is_none()
            && self.access.is_none()
            && self.freshness.is_none()
            && self.etag.is_none()
            && self.revalidate.is_none()
            && self.rules.is_empty()
            && self.tag_rules.is_empty()
            && !self.reset
    }

    fn changed(&self, before: BucketPolicy) -> BucketPolicy {
        let mut policy = if self.reset { BucketPolicy::default() } else { before };
        policy.mode = self.mode.or(policy.mode);
        policy.floor = self.floor.or(policy.floor);
        if let Some(access) = self.access {
            policy.access = match access {
                AccessArg::Exclusive => Access::Exclusive,
                AccessArg::Shared => Access::Shared,
            };
        }
        let revalidate = self.revalidate.map(|revalidate| FreshnessArg(revalidate.then_some(Freshness::ALWAYS)));
        if let Some(FreshnessArg(freshness)) = self.freshness.or(revalidate) {
            policy.freshness = freshness;
        }
        if let Some(etag) = self.etag {
            policy.etag = match etag {
                EntityTagArg::Md5 => Some(EntityTag::Md5),
                EntityTagArg::Composite => Some(EntityTag::Composite),
                EntityTagArg::Default => None,
            };
        }
        let rules = self.rules.iter().map(|PrefixRule(rule)| rule);
        let rules: Vec<ModeRule> = rules.chain(self.tag_rules.iter().map(|TagRule(rule)| rule)).cloned().collect();
        if !rules.is_empty() {
            policy.rules = rules;
        }
        policy
    }
}

/// Runs it.
pub(super) async fn run(args: PolicyArgs, globals: &Globals) -> Result<(), CliError> {
    let bucket = bucket_only(&args.address)?;
    let path = format!("/buckets/{}/{bucket}/policy", globals.namespace().await?);
    let admin = globals.admin()?;
    let before: BucketPolicy = admin.get(&path).await?;
    let policy = if args.only_shows() {
        before
    } else {
        let policy = args.changed(before);
        admin.give(&path, &policy).await?;
        policy
    };
    if globals.json {
        return output::json(&policy);
    }
    let or_default = |mode: Option<WriteMode>| mode.map_or("as the node says".to_owned(), |mode| mode.to_string());
    let mut table = output::table(&[]);
    let mut row = |name: String, value: String| {
        table.add_row([name, value]);
    };
    row("mode".to_owned(), or_default(policy.mode));
    row("floor".to_owned(), policy.floor.map_or("none".to_owned(), |mode| mode.to_string()));
    row(
        "written by".to_owned(),
        match policy.access {
            Access::Exclusive => "Nigh alone".to_owned(),
            Access::Shared => "others too".to_owned(),
        },
    );
    row("copies serve for".to_owned(), policy.freshness.map_or("any time".to_owned(), |bound| bound.to_string()));
    let etag = match policy.etag {
        Some(EntityTag::Md5) => "md5",
        Some(EntityTag::Composite) => "composite",
        None => "md5; composite from 1 MiB on by the fast path",
    };
    row("entity tags".to_owned(), etag.to_owned());
    for rule in &policy.rules {
        let what = match &rule.tag {
            Some((name, value)) => format!("tag {name}={value} {}", rule.prefix),
            None => format!("keys {}*", rule.prefix),
        };
        row(what, rule.mode.to_string());
    }
    output::print_table(&table)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: PolicyArgs,
    }

    fn changed(before: &BucketPolicy, options: &[&str]) -> Result<BucketPolicy, String> {
        let line = Line::try_parse_from(["policy", "nigh://bucket"].iter().chain(options));
        line.map(|line| line.args.changed(before.clone())).map_err(|error| error.to_string())
    }

    #[test]
    fn entity_tags_are_chosen_by_name_and_left_to_the_default_again() {
        let none = BucketPolicy::default();
        let chosen = |etag| BucketPolicy { etag: Some(etag), ..BucketPolicy::default() };
        assert_eq!(changed(&none, &["--etag", "composite"]).unwrap(), chosen(EntityTag::Composite));
        assert_eq!(changed(&chosen(EntityTag::Composite), &["--etag", "md5"]).unwrap(), chosen(EntityTag::Md5));
        assert_eq!(changed(&chosen(EntityTag::Md5), &["--etag", "default"]).unwrap(), none);
    }

    #[test]
    fn a_bound_on_the_age_of_copies_is_set_by_its_name_or_by_the_earlier_one_and_taken_away() {
        let none = BucketPolicy::default();
        let bound = |bound| BucketPolicy { freshness: Some(bound), ..BucketPolicy::default() };
        let always = bound(Freshness::ALWAYS);
        assert_eq!(changed(&none, &["--freshness", "0s"]).unwrap(), always);
        assert_eq!(changed(&none, &["--freshness", "30 s"]).unwrap(), bound(Freshness::millis(30_000)));
        assert_eq!(changed(&none, &["--revalidate", "true"]).unwrap(), always);
        assert_eq!(changed(&always, &["--revalidate", "false"]).unwrap(), none);
        assert_eq!(changed(&always, &["--freshness", "none"]).unwrap(), none);
        assert_eq!(changed(&always, &["--access", "exclusive"]).unwrap(), always, "what is not named stays");
        let refused = changed(&none, &["--freshness", "30"]).unwrap_err();
        assert!(refused.contains("`30s`") && refused.contains("`none`"), "{refused}");
    }
}
