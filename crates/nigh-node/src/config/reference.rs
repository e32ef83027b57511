//! `docs/reference/settings.md` is what the settings say of themselves: their descriptions in these files, and their defaults.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use figment::Figment;
use figment::providers::Serialized;
use nigh_terms::ByteSize;

use super::layers::settings_of;
use super::shown::show;
use crate::machine::Machine;

/// The variable that has the page written.
const WRITE: &str = "NIGH_TEST_WRITE_REFERENCE";
const HEAD: &str = "# Settings

<!-- Generated from crates/nigh-node/src/config: NIGH_TEST_WRITE_REFERENCE=1 cargo test -p nigh-node reference -->

[Where they are set](../howto/configure.md). Times are texts with a unit (`\"60 s\"`, `\"50 ms\"`, `\"10 min\"`, `\"1 h\"`); sizes
too (`\"64 MiB\"`), or bytes. Lists: in a variable separated by `,` (folders by `:`). The table `[function]` in the same file is
[a function's](lambda.md#a-folders-nightoml). Any `NIGH_…` variable that names no setting is refused, except `NIGH_CONFIG`, `NIGH_PROFILE`,
`NIGH_ENDPOINT`, `NIGH_CA_BUNDLE` (flags), `NIGH_FAST_PATH`, `NIGH_HOOK`, `NIGH_HOOK_REPORT` and `NIGH_NATIVE` (Python clients).
";
/// What stands for this machine in defaults.
const STATE: &str = "/STATE";
const HOST: &str = "HOST";
const MEMORY: ByteSize = ByteSize::gib(16);
/// The heading of settings without a table.
const OF_THE_NODE: &str = "The node";

/// A field of a struct of settings.
#[derive(Clone, Debug)]
struct Field {
    name: String,
    /// Its type, without `Option` and without the map of namespaces.
    kind: String,
    is_map: bool,
    about: String,
}

/// What the sources say.
#[derive(Debug, Default)]
struct Sources {
    structs: BTreeMap<String, Vec<Field>>,
    /// The values of settings that have a few, each with its meaning.
    enums: BTreeMap<String, Vec<(String, String)>>,
}

/// Where a line of a source lies.
enum Place {
    Outside,
    Struct(String),
    Enum(String, String),
}

impl Sources {
    fn read() -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/config");
        let mut sources = Self::default();
        let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        for path in paths.filter(|path| path.extension() == Some("rs".as_ref())) {
            sources.add(&std::fs::read_to_string(path).unwrap());
        }
        sources
    }

    /// Adds the public structs and the enums with renamed variants of a source.
    fn add(&mut self, text: &str) {
        let (mut place, mut about, mut rename) = (Place::Outside, Vec::new(), None);
        for line in text.lines() {
            let item = line.trim();
            if let Some(words) = item.strip_prefix("///") {
                about.push(words.trim());
                continue;
            }
            if let Some(rule) = item.strip_prefix("#[serde(rename_all = \"") {
                rename = rule.split('"').next().map(str::to_owned);
            }
            if item.starts_with("#[") {
                continue;
            }
            let words = about.join(" ");
            about.clear();
            if line == "}" {
                place = Place::Outside;
                continue;
            }
            match &place {
                Place::Outside => {
                    let named = |keyword: &str| item.strip_prefix(keyword).and_then(|rest| rest.strip_suffix(" {"));
                    if let Some(name) = named("pub struct ") {
                        place = Place::Struct(name.to_owned());
                        self.structs.entry(name.to_owned()).or_default();
                    } else if let (Some(name), Some(rule)) = (named("pub enum "), &rename) {
                        place = Place::Enum(name.to_owned(), rule.clone());
                    }
                    rename = None;
                }
                Place::Struct(name) => {
                    if let Some((field, kind)) = item.strip_prefix("pub ").and_then(|rest| rest.split_once(": ")) {
                        let kind = kind.trim_end_matches(',');
                        let inner = |outer: &str| kind.strip_prefix(outer).and_then(|rest| rest.strip_suffix('>'));
                        let of_map = inner("BTreeMap<Namespace, ");
                        let kind = of_map.or_else(|| inner("Option<")).unwrap_or(kind).to_owned();
                        let field = Field { name: field.to_owned(), kind, is_map: of_map.is_some(), about: words };
                        self.structs.entry(name.clone()).or_default().push(field);
                    }
                }
                Place::Enum(name, rule) => {
                    let variant = item.trim_end_matches(',');
                    if !variant.is_empty() && variant.chars().all(char::is_alphanumeric) {
                        self.enums.entry(name.clone()).or_default().push((renamed(variant, rule), words));
                    }
                }
            }
        }
    }

    /// The meaning of a setting.
    fn meaning(&self, field: &Field) -> String {
        let values = self.enums.get(&field.kind).into_iter().flatten();
        let value = |(value, about): &(String, String)| match field.kind.as_str() {
            "Switch" => format!(" `{value}`"),
            _ => format!(" `{value}`: {about}"),
        };
        let values: Vec<String> = values.map(value).collect();
        format!("{}{}", field.about, values.concat()).replace('|', "\\|")
    }

    /// Adds the settings of a struct below `prefix`, with their meanings.
    fn settings(&self, prefix: &str, name: &str, found: &mut Vec<(String, String)>) {
        for field in &self.structs[name] {
            let key = format!("{prefix}{}", field.name);
            if self.structs.contains_key(&field.kind) && !prefix.contains("NAME") {
                let below = if field.is_map { format!("{key}.NAME.") } else { format!("{key}.") };
                self.settings(&below, &field.kind, found);
            } else {
                found.push((key, self.meaning(field)));
            }
        }
    }
}

/// The name that serde gives a variant.
fn renamed(variant: &str, rule: &str) -> String {
    let separator = match rule {
        "kebab-case" => "-",
        "snake_case" => "_",
        _ => "",
    };
    let mut name = String::new();
    for letter in variant.chars() {
        if letter.is_uppercase() && !name.is_empty() {
            name.push_str(separator);
        }
        name.extend(letter.to_lowercase());
    }
    name
}

/// The defaults of a machine with so much memory, of a cluster's settings too, as `nigh config show` shows them.
fn defaults(memory: ByteSize) -> BTreeMap<String, String> {
    let machine = Machine { hostname: HOST.to_owned(), memory, cpus: 2 };
    // There are defaults of a cluster if its table is there.
    let upper = Figment::from(Serialized::default("cluster.plain", false));
    let (_, whole) = settings_of(upper, Path::new(STATE), &machine).unwrap();
    show(&whole).into_iter().map(|one| (one.key, one.value)).collect()
}

/// A default as a reader of another machine reads it.
fn default_words(key: &str, small: Option<&String>, large: Option<&String>) -> String {
    let (Some(small), Some(large)) = (small, large) else { return "none".to_owned() };
    if small != large {
        let part = |text: &String| text.parse::<ByteSize>().ok().map(|size| MEMORY.bytes() / size.bytes().max(1));
        return part(small).map_or_else(|| small.clone(), |part| format!("1/{part} of memory"));
    }
    match small.as_str() {
        STATE => "`/var/lib/nigh` for root, else `~/.local/state/nigh`".to_owned(),
        HOST => "the host's name".to_owned(),
        "" => "empty".to_owned(),
        "[]" if key == "cluster.servers" => "must be set".to_owned(),
        "[]" => "none".to_owned(),
        text => match (text.strip_prefix("/STATE/"), text.strip_prefix('(').and_then(|text| text.strip_suffix(')'))) {
            (Some(name), _) => format!("`{name}` in the state folder"),
            (_, Some(words)) => words.to_owned(),
            _ => format!("`{text}`"),
        },
    }
}

fn page() -> String {
    let sources = Sources::read();
    let (small, large) = (defaults(MEMORY), defaults(ByteSize(MEMORY.bytes() * 2)));
    let mut settings = Vec::new();
    sources.settings("", "Settings", &mut settings);
    let table = |key: &str| key.split_once('.').map_or(OF_THE_NODE, |(table, _)| table).to_owned();
    let mut tables: Vec<String> = vec![OF_THE_NODE.to_owned()];
    tables.extend(sources.structs["Settings"].iter().map(|field| field.name.clone()));
    let mut page = HEAD.to_owned();
    for one in tables {
        // Settings without a table come first, all together.
        let mut own = settings.iter().filter(|(key, _)| table(key) == one && (key.contains('.') || one == OF_THE_NODE));
        let Some(first) = own.next() else { continue };
        let _ = write!(page, "\n## {one}\n| setting | default | meaning |\n|---|---|---|\n");
        for (key, meaning) in std::iter::once(first).chain(own) {
            let default = default_words(key, small.get(key), large.get(key));
            let _ = writeln!(page, "| `{key}` | {default} | {meaning} |");
        }
    }
    page
}

#[test]
fn the_reference_of_settings_is_what_they_say_of_themselves() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/settings.md");
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&path, page()).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), page(), "{WRITE}=1 writes the page anew");
}

#[test]
fn every_setting_is_in_the_reference_and_has_a_meaning() {
    let mut settings = Vec::new();
    Sources::read().settings("", "Settings", &mut settings);
    for (key, meaning) in &settings {
        assert!(meaning.len() > 5, "{key} has no description");
    }
    for key in defaults(MEMORY).keys() {
        assert!(settings.iter().any(|(known, _)| known == key), "{key} is not found in the sources");
    }
    let text = page();
    for part in [
        "| `cache.bytes` | 1/4 of memory |",
        "| `s3.socket` | `s3.sock` in the state folder |",
        "| `s3.uploads_bytes` | 8 times s3.object_max |",
        "| `namespaces.NAME.share` | none |",
        "| `cluster.servers` | must be set |",
        "| `node` | the host's name |",
        "`keep-aside`: Move the damaged files aside",
        "`application_credential`: Keystone v3",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}
