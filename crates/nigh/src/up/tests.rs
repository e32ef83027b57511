use clap::Parser;

use super::*;
use crate::status::tests::fresh;

#[derive(Parser)]
struct UpParser {
    #[command(flatten)]
    args: UpArgs,
}

#[test]
fn a_named_flag_wins_over_set_and_both_name_themselves() {
    let up = UpParser::parse_from([
        "up",
        "--s3-listen",
        "127.0.0.1:1",
        "--set",
        "s3.listen=127.0.0.1:2",
        "--trust-functions",
    ]);
    let flags = up.args.flags().unwrap();
    let last = flags.iter().rev().find(|flag| flag.key == "s3.listen").unwrap();
    assert_eq!((last.value.as_str(), last.flag.as_str()), ("127.0.0.1:1", "--s3-listen"));
    assert!(flags.iter().any(|flag| flag.key == "functions.trust_functions" && flag.value == "true"));
    let wrong = UpParser::parse_from(["up", "--set", "cache.bytes"]).args.flags();
    assert!(wrong.unwrap_err().to_string().contains("setting=value"));
}
#[test]
fn a_size_on_the_command_line_may_have_lambdas_units_or_none() {
    for (typed, setting) in [("512", "512 MiB"), ("512MB", "512 MiB"), ("2 gb", "2 GiB"), ("256 MiB", "256 MiB")] {
        assert_eq!(size(typed).as_deref(), Ok(setting));
    }
    for wrong in ["", "MB", "-1", "1.5 GiB", "5 parsecs", "99999999999 TiB"] {
        assert!(size(wrong).unwrap_err().contains("MiB"), "{wrong:?}");
    }
    let flags = UpParser::parse_from(["up", "--cache", "512"]).args.flags().unwrap();
    assert!(flags.iter().any(|flag| flag.key == "cache.bytes" && flag.value == "512 MiB"));
}

/// The most lines that tell of a start.
const LINES_MAX: usize = 9;

#[test]
fn a_start_is_told_in_at_most_nine_lines_of_at_most_a_hundred_columns() {
    let status = fresh();
    let whole = announcement(&status.endpoints, &status.levels, "~/.local/state/nigh", "");
    let text = whole.join("\n");
    for part in ["http://127.0.0.1:9400", "python3.11 at", "eval \"$(nigh env)\"", "off       cache ways", "Ready."] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let secured = Endpoints { ca_bundle: Some("~/tls/authority.crt".into()), ..status.endpoints.clone() };
    let secured = announcement(&secured, &status.levels, "~/.local/state/nigh", "");
    assert_eq!(secured[1], "  s3        http://127.0.0.1:9400 (--ca-bundle ~/tls/authority.crt)");
    let mut without = status.levels.clone();
    without.retain(|level| level.name != "python");
    let detail = "missing: No such file or directory; start `nigh up --python PROGRAM`".to_owned();
    without.push(Level { name: "python".to_owned(), on: false, detail });
    let told = announcement(&status.endpoints, &without, "~/.local/state/nigh", "");
    assert!(
        told.contains(
            &"  python    off: missing: No such file or directory; `nigh doctor` says what mends it".to_owned()
        )
    );
    let far = "/srv/".repeat(40);
    let mut levels = status.levels.clone();
    for name in ["python", "network", "prewarming", "features", "open files", "http functions", "openwhisk", "sizing"] {
        levels.retain(|level| level.name != name);
        levels.push(Level { name: name.to_owned(), on: false, detail: "why ".repeat(100) });
    }
    let worst = announcement(&status.endpoints, &levels, &far, &format!(" --state {far}"));
    for lines in [whole, worst] {
        assert!(lines.len() <= LINES_MAX, "{lines:#?}");
        // A path that is longer than a line is whole all the same.
        assert!(lines.iter().all(|line| line.chars().count() <= WIDTH_MAX || line.contains(&far)), "{lines:#?}");
        assert!(lines.last().is_some_and(|line| line.starts_with("Ready.")), "{lines:#?}");
        let doctors: Vec<&String> = lines.iter().filter(|line| line.contains("doctor")).collect();
        assert!(!doctors.is_empty() && doctors.iter().all(|line| line.ends_with(DOCTOR)), "{lines:#?}");
    }
}

#[test]
fn no_command_is_cut_where_the_path_of_the_state_is_long() {
    let status = fresh();
    let told = |state: &str| announcement(&status.endpoints, &status.levels, state, &format!(" --state {state}"));
    let has = |lines: &[String], end: &str| lines.iter().any(|line| line.ends_with(end));
    for state in ["s", "/tmp/nigh", "/home/somebody/projects/pictures/nigh-state", &"/srv/nigh".repeat(30)] {
        let lines = told(state);
        assert!(has(&lines, &format!(" nigh page --state {state}")), "{lines:#?}");
        assert!(has(&lines, &format!(" eval \"$(nigh env --state {state})\"")), "{lines:#?}");
        assert!(state.len() > 50 || lines.iter().all(|line| line.chars().count() <= WIDTH_MAX), "{lines:#?}");
    }
    let commands = |state: &str| next_commands(&format!(" --state {state}"));
    assert!(commands("s").ends_with(": nigh deploy --help; nigh status --state s; nigh page --state s"));
    assert!(commands("/tmp/n").ends_with(": nigh status --state /tmp/n; nigh page --state /tmp/n"));
    assert!(commands("/var/tmp/nigh/one").ends_with(": nigh page --state /var/tmp/nigh/one"));
}

#[test]
fn a_folder_at_home_is_written_as_people_write_it() {
    assert_eq!(from_home(Path::new("/home/u/x/y"), Some(Path::new("/home/u"))), "~/x/y");
    assert_eq!(from_home(Path::new("/var/lib/nigh"), Some(Path::new("/root"))), "/var/lib/nigh");
    assert_eq!(from_home(Path::new("/s"), None), "/s");
}
