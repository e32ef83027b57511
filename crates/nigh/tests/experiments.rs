//! The experiments as their users run them: the real command, the real peers.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/programs.rs"]
mod programs;
#[path = "../../../tests/skipped.rs"]
mod skipped;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use self::programs::build_programs;
use self::skipped::skip;

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn experiment(arguments: &[&str]) -> Output {
    build_programs();
    Command::new(env!("CARGO_BIN_EXE_nigh")).arg("experiment").args(arguments).current_dir(project()).output().unwrap()
}

/// What has to be installed first, if the command did not begin for want of it: its error then names an installer, which no
/// fault of Nigh does.
fn not_installed(output: &Output) -> Option<String> {
    let installers = ["`make deps`", "`make peers`", "scripts/install-", "run this as root", "as root, where cgroups"];
    let complaint = String::from_utf8_lossy(&output.stderr);
    let named = installers.iter().any(|installer| complaint.contains(installer));
    let began = output.status.success() || !output.stdout.is_empty();
    (named && !began).then(|| complaint.trim().to_owned())
}

fn json(output: &Output) -> Value {
    let complaint = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {complaint}"))
}

/// The command lines of the processes that have `mark` in their environment.
fn processes_with(mark: &str) -> Vec<String> {
    let folders = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let read = |path: PathBuf| String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned();
    let marked = folders.filter(|folder| read(folder.join("environ")).contains(mark));
    marked.map(|folder| read(folder.join("cmdline")).replace('\0', " ")).collect()
}

#[test]
fn the_demonstration_prints_a_row_a_sentence_and_a_picture_and_leaves_nothing_running() {
    let test = "the_demonstration_prints_a_row_a_sentence_and_a_picture_and_leaves_nothing_running";
    build_programs();
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("demo.html");
    let mark = format!("NIGH_TEST_DEMO={}", folder.path().display());
    let demo = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nigh"));
        command.args(["experiment", "demo", "--only", "thumbnail", "--seconds", "1", "--rounds", "2"]).args(words);
        command.env("NIGH_TEST_DEMO", folder.path()).current_dir(project()).output().unwrap()
    };
    let output = demo(&["--json"]);
    if let Some(reason) = not_installed(&output) {
        return skip(test, reason);
    }
    let report = json(&output);
    let has_swift = report["store"] != "directory store";
    let summaries = report["summaries"].as_array().unwrap();
    assert_eq!(summaries.len(), if has_swift { 2 } else { 1 }, "{report:#}");
    let nigh = summaries.last().unwrap();
    assert_eq!((&nigh["function"], &nigh["side"]), (&Value::from("thumbnail"), &Value::from("nigh")));
    let of = |field: &str| nigh[field].as_f64().unwrap_or_else(|| panic!("{field} of {nigh:#}"));
    assert!(of("time_ms") > 0.0 && (of("extract") + of("transform") + of("load") - 1.0).abs() < 1e-9, "{nigh:#}");
    assert!(of("hit_ratio") > 0.0 && report["node_processor_ms"].as_f64().unwrap() > 0.0, "{report:#}");
    if has_swift {
        assert!(of("ratio_low") <= of("ratio_to_direct") && of("ratio_to_direct") <= of("ratio_high"), "{nigh:#}");
    }
    assert_eq!(report["failed"], 0, "{report:#}");

    let output = demo(&["--html", page.to_str().unwrap()]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let told = String::from_utf8(output.stdout).unwrap();
    let row = told.lines().nth(2).unwrap();
    assert!(row.starts_with("thumbnail ") && !row.contains("failed"), "{told}");
    for line in told.lines() {
        assert!(line.chars().count() <= 80 || line.contains(page.to_str().unwrap()), "{line}");
    }
    let sentence = if has_swift { "\nThrough Nigh " } else { "no improvement is claimed" };
    for part in [sentence, "█ reading objects", "Nothing is left running", "nigh init hello"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert_eq!(processes_with(&mark), Vec::<String>::new(), "left by {told}");
    assert_eq!(std::fs::read_to_string(&page).unwrap().matches("<svg").count(), 1);
}

#[test]
fn a_single_function_is_measured_against_swift_and_redis_with_its_ceiling() {
    let test = "a_single_function_is_measured_against_swift_and_redis_with_its_ceiling";
    build_programs();
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("single.html");
    let page = page.to_str().unwrap();
    let output = experiment(&["single", "--quick", "--only", "wand_edge", "--sizes", "16k", "--json", "--html", page]);
    if let Some(reason) = not_installed(&output) {
        return skip(test, reason);
    }
    let report = json(&output);
    assert!(report["machine"]["command"].as_str().unwrap().starts_with("nigh experiment single --quick"), "{report:#}");
    assert!(report["machine"]["peers"]["Swift"].as_str().unwrap().contains('.'));
    let rows = report["rows"].as_array().unwrap();
    let row = |scenario: &str| rows.iter().find(|row| row["scenario"] == scenario);
    for scenario in ["nigh_hit", "nigh_miss", "nigh_hit_sandboxed", "swift_s3api"] {
        let row = row(scenario).unwrap();
        assert_eq!((&row["function"], &row["rounds"]), (&Value::from("wand_edge"), &Value::from(2)), "{row:#}");
        let of = |field: &str| row[field].as_f64().unwrap_or_else(|| panic!("{field} of {row:#}"));
        assert!(of("extract_ms") > 0.0 && of("transform_ms") > 0.0 && of("load_ms") > 0.0, "{row:#}");
        assert!((0.0..1.0).contains(&of("ceiling")) && of("p95_ms") >= of("p50_ms"), "{row:#}");
        assert_eq!(row["share_of_ceiling"].is_null(), scenario == "swift_s3api", "{row:#}");
    }
    match row("redis") {
        Some(redis) => {
            assert!(redis["ratio_to_redis"].is_null() && redis["load_ms"].as_f64().unwrap() > 0.0, "{redis:#}");
            assert!(row("nigh_hit").unwrap()["ratio_to_redis"].as_f64().unwrap() > 0.0);
        }
        None => skip(test, "Redis or its clients for Python are left out; run `make peers`"),
    }
    assert!(std::fs::read_to_string(page).unwrap().contains("<svg"));
    assert!(!Path::new(page).with_extension("state").exists(), "nothing is left to go on with");
}

#[test]
fn applications_of_several_stages_leave_nothing_between_them_in_the_store() {
    let test = "applications_of_several_stages_leave_nothing_between_them_in_the_store";
    build_programs();
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("pipelines.html");
    let output = experiment(&["pipelines", "--quick", "--json", "--html", page.to_str().unwrap()]);
    if let Some(reason) = not_installed(&output) {
        return skip(test, reason);
    }
    let report = json(&output);
    let rows = report["rows"].as_array().unwrap();
    let names: Vec<&str> = rows.iter().map(|row| row["application"].as_str().unwrap()).collect();
    assert_eq!(names, ["image_classification", "thumbnails", "video_analysis", "word_count"]);
    for row in rows {
        let of = |field: &str| row[field].as_f64().unwrap_or_else(|| panic!("{field} of {row:#}"));
        assert!(of("swift_ms") > 0.0 && of("nigh_ms") > 0.0 && of("nigh_miss_ms") > 0.0, "{row:#}");
        assert!((0.0..1.0).contains(&of("ceiling")), "{row:#}");
        let moving = |side: &str| {
            ["extract_ms", "load_ms"].iter().map(|phase| row["phases"][side][phase].as_f64().unwrap()).sum::<f64>()
        };
        assert!((of("share_of_ceiling") - (1.0 - moving("nigh_hit") / moving("swift"))).abs() < 1e-9, "{row:#}");
        assert!(of("intermediate_bytes") > 500.0, "{row:#}");
        assert_eq!(of("bytes_to_store"), 0.0, "{row:#}");
        for phase in ["extract_ms", "transform_ms", "load_ms"] {
            assert!(row["phases"]["nigh_hit"][phase].as_f64().unwrap() > 0.0, "{row:#}");
        }
    }
    let saved_most = rows.iter().map(|row| row["saved"].as_f64().unwrap()).fold(f64::NEG_INFINITY, f64::max);
    assert_eq!(
        (of_overall(&report, "saved_most"), of_overall(&report, "bytes_to_store")),
        (saved_most, 0.0),
        "{report:#}"
    );
    assert!(saved_most > 0.3, "{report:#}");
    assert_eq!(std::fs::read_to_string(&page).unwrap().matches("<svg").count(), 4);
    assert!(!page.with_extension("state").exists(), "nothing is left to go on with");
}

fn of_overall(report: &Value, field: &str) -> f64 {
    report["overall"][field].as_f64().unwrap_or_else(|| panic!("{field} of {report:#}"))
}

#[test]
fn the_mixed_load_is_played_alike_by_all_sides_and_none_of_it_fails() {
    let test = "the_mixed_load_is_played_alike_by_all_sides_and_none_of_it_fails";
    build_programs();
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("macro.html");
    let output = experiment(&["macro", "--quick", "--json", "--html", page.to_str().unwrap()]);
    if let Some(reason) = not_installed(&output) {
        return skip(test, reason);
    }
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    let report = json(&output);
    assert!(output.status.success(), "{complaint}");
    assert_eq!((&report["failed"], &report["oom_kills"]), (&Value::from(0), &Value::from(0)), "{report:#}");
    // Three tenants with two inputs each: of an input the first read misses, and one more where it comes meanwhile.
    let misses = (1.0 - report["hit_ratio"].as_f64().unwrap()) * report["invocations"].as_f64().unwrap();
    assert!(misses < 12.5 && report["hit_ratio"].as_f64() > Some(0.3), "{misses} misses: {report:#}");
    assert!(report["cache_bytes"].as_array().unwrap().len() > 4, "{report:#}");
    assert!(report["idle_gb_s"].as_f64().unwrap() > 0.0, "{report:#}");
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 3);
    for row in rows {
        let seconds = |side: &str| row["sides"][side]["data_s"].as_f64().unwrap_or_else(|| panic!("{side} of {row:#}"));
        assert!(row["compared"].as_u64().unwrap() > 2, "{row:#}");
        assert!(["nigh", "nigh_off", "swift"].map(seconds).iter().all(|seconds| *seconds > 0.0), "{row:#}");
        assert!(row["improvement_vs_swift"].is_f64(), "{row:#}");
        assert!(row["billed_gb_s"].as_f64() > Some(0.0), "{row:#}");
    }
    assert_eq!(std::fs::read_to_string(&page).unwrap().matches("<svg").count(), 3);
    assert!(!page.with_extension("state").exists(), "nothing is left to go on with");
}

#[test]
fn a_function_that_grows_while_the_cache_gives_way_answers_every_time() {
    let test = "a_function_that_grows_while_the_cache_gives_way_answers_every_time";
    build_programs();
    let output = experiment(&["shrink-impact", "--quick", "--json"]);
    if let Some(reason) = not_installed(&output) {
        return skip(test, reason);
    }
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    let report = json(&output);
    assert_eq!(report["failed"], 0, "{report:#} {complaint}");
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2 * 4, "{report:#}");
    for row in rows {
        let of = |field: &str| row[field].as_f64().unwrap_or_else(|| panic!("{field} of {row:#}"));
        assert_eq!(of("runs"), 3.0, "{row:#}");
        assert!(of("to_mb") >= 84.0 && of("run_ms") > 0.0, "{row:#}");
        assert_eq!(of("limit_us") > 0.0, row["scenario"] != "base", "{row:#}");
    }
}

#[test]
fn the_memory_of_functions_is_profiled_and_a_profile_that_was_cut_off_goes_on() {
    let test = "the_memory_of_functions_is_profiled_and_a_profile_that_was_cut_off_goes_on";
    build_programs();
    let folder = tempfile::tempdir().unwrap();
    let profile = |rows: &str| {
        let asked = ["profile", "memory", "--functions", "thumbnail,wordcount", "--rows", rows, "--json", "--out"];
        let mut command = Command::new(env!("CARGO_BIN_EXE_nigh"));
        command.args(asked).arg(folder.path()).current_dir(project()).output().unwrap()
    };
    let read = |name: &str| std::fs::read_to_string(folder.path().join(format!("{name}.csv"))).unwrap();
    let first = profile("2");
    if let Some(reason) = not_installed(&first) {
        return skip(test, reason);
    }
    let complaint = String::from_utf8_lossy(&first.stderr).into_owned();
    assert_eq!(json(&first)["failures"], Value::Array(Vec::new()), "{complaint}");
    let before = read("wordcount");
    let cut = before[..before.len() - 20].rfind('\n').unwrap() + 15;
    std::fs::write(folder.path().join("wordcount.csv"), &before[..cut]).unwrap();

    let report = json(&profile("3"));
    let recorded: Vec<_> = report["functions"].as_array().unwrap().iter().map(|one| &one["recorded"]).collect();
    assert_eq!(recorded, [1, 2], "{report:#}");
    for name in ["thumbnail", "wordcount"] {
        let text = read(name);
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
        let column = |wanted: &str| rows[0].iter().position(|column| *column == wanted).unwrap();
        let of = |wanted: &str| rows[1..].iter().map(|row| row[column(wanted)]).collect::<Vec<_>>();
        assert_eq!((of("seq"), of("start")), (vec!["0", "1", "2"], vec!["cold", "warm", "warm"]), "{text}");
        let used: Vec<u64> = of("used_before_bytes")[1..].iter().map(|bytes| bytes.parse().unwrap()).collect();
        let peaks: Vec<u64> = of("peak_cgroup_bytes").iter().map(|bytes| bytes.parse().unwrap()).collect();
        assert!(peaks[1..].iter().zip(&used).all(|(peak, used)| peak >= used && *used > 10_000_000), "{text}");
    }
    // The same seed, the same invocations: what was cut off came again.
    let known = |text: &str| text.lines().nth(2).unwrap().split(',').take(5).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(known(&read("wordcount")), known(&before));
    let other = Command::new(env!("CARGO_BIN_EXE_nigh"))
        .args(["profile", "memory", "--seed", "2", "--out"])
        .arg(folder.path())
        .current_dir(project())
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&other.stderr).contains("seed 1"), "rows of two seeds are not mixed");
}

#[test]
fn many_functions_are_created_listed_read_again_and_the_last_one_answers() {
    let test = "many_functions_are_created_listed_read_again_and_the_last_one_answers";
    build_programs();
    let bench = ["bench", "functions", "--count", "300", "--json"];
    let output = Command::new(env!("CARGO_BIN_EXE_nigh")).args(bench).current_dir(project()).output().unwrap();
    if let Some(reason) = not_installed(&output) {
        return skip(test, reason);
    }
    let report = json(&output);
    assert_eq!(report["functions"], 300, "{report:#}");
    for figure in ["create_p50_ms", "create_total_s", "list_ms", "restart_ms", "invoke_last_ms"] {
        assert!(report[figure].as_f64().unwrap() > 0.0, "{figure} of {report:#}");
    }
    // Some hundred bytes of settings and an archive's folder on disk; megabytes would be a copy of the code.
    assert!(report["rss_per_function_bytes"].as_f64().unwrap() < f64::from(100 << 10), "{report:#}");
}

#[test]
fn latency_at_fixed_rates_is_told_of_every_request_and_no_request_fails() {
    let test = "latency_at_fixed_rates_is_told_of_every_request_and_no_request_fails";
    build_programs();
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("load.html");
    let bench = ["bench", "load", "--quick", "--json", "--html", page.to_str().unwrap()];
    let output = Command::new(env!("CARGO_BIN_EXE_nigh")).args(bench).current_dir(project()).output().unwrap();
    if let Some(reason) = not_installed(&output) {
        return skip(test, reason);
    }
    let report = json(&output);
    let rows = report["rows"].as_array().unwrap();
    let sustained = report["sustained"].as_array().unwrap();
    for request in ["get-1kib", "get-128kib", "put-1kib", "fast-get-1kib", "invoke"] {
        let own = |row: &&Value| row["request"] == request && row["side"] == "nigh";
        assert!(sustained.iter().find(own).unwrap()["per_second"].as_f64().unwrap() > 0.0, "{request}: {report:#}");
        let shares: Vec<f64> = rows.iter().filter(own).map(|row| row["share"].as_f64().unwrap()).collect();
        assert_eq!(shares, [0.1, 0.9], "{request}: Nigh's own rates are measured once");
    }
    let of_bare = |of: &str| rows.iter().filter(|row| row["side"] == "bare s3s" && row["of"] == of).count();
    assert_eq!((of_bare("nigh"), of_bare("own")), (6, 6), "three requests at two rates of each: {report:#}");
    for row in rows {
        assert_eq!((&row["errors"], &row["first_error"]), (&Value::from(0), &Value::Null), "{row:#}");
        let percentiles = ["p50_us", "p90_us", "p99_us", "p999_us"].map(|name| row[name].as_f64());
        // How fast the machine is decides which rates overload it.
        if row["mark"] == "overloaded" {
            assert_eq!(percentiles, [None; 4], "{row:#}");
            continue;
        }
        let known: Vec<f64> = percentiles.into_iter().flatten().collect();
        assert!(known.is_sorted() && known.iter().all(|us| *us > 0.0), "{row:#}");
        let requests = row["requests"].as_u64().unwrap();
        assert_eq!((known.is_empty(), known.len() == 4), (requests < 2, requests >= 1000), "{row:#}");
        let is_in_the_generator = row["side"] == "awslambdaric, bare server";
        assert_eq!(row["cpu_us"].as_f64() > Some(0.0), requests > 0 && !is_in_the_generator, "{row:#}");
    }
    assert!(std::fs::read_to_string(&page).unwrap().contains("Latency at fixed rates"));
    assert!(!page.with_extension("state").exists(), "nothing is left to go on with");
}

/// Kills nodes before `store` and checks the report; none where the store is not installed.
fn killed_before(store: &str, kills: &str) -> Option<Value> {
    build_programs();
    let folder = tempfile::tempdir().unwrap();
    let progress = folder.path().join("crash.state");
    let place = ["--json", "--progress", progress.to_str().unwrap()];
    let output = experiment(&[&["crash", "--store", store, "--kills", kills, "--seconds", "0.8"][..], &place].concat());
    if not_installed(&output).is_some() {
        return None;
    }
    let report = json(&output);
    assert!(output.status.success(), "{report:#}");
    for broken in ["lost", "stale", "mixed", "listings_wrong"] {
        assert_eq!(report[broken], 0, "{report:#}");
    }
    assert_eq!(report["kills"].to_string(), kills);
    // After each kill, and of the store, every key is read; the rest is load.
    let of = |field: &str| report[field].as_u64().unwrap();
    assert!(of("acknowledged") > of("kills") && of("reads") > (of("kills") + 2) * 24, "{report:#}");
    assert!(of("by_fast_path") > 0, "{report:#}");
    assert!(report["restart_max_ms"].as_f64() >= report["restart_p50_ms"].as_f64(), "{report:#}");
    assert!(!progress.exists(), "nothing is left to go on with");
    Some(report)
}

#[test]
fn a_node_that_is_killed_again_and_again_under_load_loses_no_acknowledged_write() {
    assert!(killed_before("directory", "8").is_some(), "a directory needs nothing to be installed");
}

#[test]
fn a_node_and_its_s3_store_that_are_killed_under_load_lose_no_acknowledged_write() {
    let test = "a_node_and_its_s3_store_that_are_killed_under_load_lose_no_acknowledged_write";
    match killed_before("s3", "12") {
        Some(report) => assert!(report["store_kills"].as_u64().unwrap() > 0, "{report:#}"),
        None => skip(test, "MinIO is not installed; run scripts/install-peers.sh"),
    }
}

#[test]
fn a_node_before_swift_that_is_killed_under_load_loses_no_acknowledged_write() {
    let test = "a_node_before_swift_that_is_killed_under_load_loses_no_acknowledged_write";
    if killed_before("swift", "6").is_none() {
        skip(test, "Swift is not installed; run scripts/install-swift.sh");
    }
}

#[test]
fn a_node_whose_power_is_cut_under_load_loses_no_acknowledged_write_where_the_disk_keeps_what_was_synced() {
    let test = "a_node_whose_power_is_cut_under_load_loses_no_acknowledged_write_where_the_disk_keeps_what_was_synced";
    build_programs();
    let folder = tempfile::tempdir().unwrap();
    let progress = folder.path().join("power.state");
    // One cut of each case, and the control: a disk that lies must lose something, or the command fails.
    let mut command = Command::new(env!("CARGO_BIN_EXE_nigh"));
    command.args(["experiment", "power", "--cuts", "6", "--seconds", "1", "--json", "--progress"]).arg(&progress);
    let output = command.env("TMPDIR", folder.path()).current_dir(project()).output().unwrap();
    if let Some(reason) = not_installed(&output) {
        return skip(test, reason);
    }
    let report = json(&output);
    assert!(output.status.success(), "{report:#}");
    let of = |field: &str| report[field].as_u64().unwrap_or_else(|| panic!("{field} of {report:#}"));
    for broken in ["lost", "stale", "mixed", "listings_wrong"] {
        assert_eq!(of(broken), 0, "{report:#}");
    }
    assert_eq!((of("cuts"), report["cases"].as_array().unwrap().len()), (6, 6));
    assert!(of("acknowledged") > 10 && of("syncs") > 20 && of("sectors_forgotten") > 0, "{report:#}");
    assert!(of("control_lost") > 0, "{report:#}");
    assert!(!progress.exists(), "nothing is left to go on with");
    // A loop device goes a moment after its last user.
    let left = || {
        let devices = std::fs::read_dir("/sys/block").unwrap().flatten();
        let images = devices.filter_map(|device| std::fs::read_to_string(device.path().join("loop/backing_file")).ok());
        images.filter(|image| image.contains(folder.path().to_str().unwrap())).collect::<Vec<_>>()
    };
    for _ in 0..50 {
        if left().is_empty() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    panic!("loop devices are left: {:?}", left());
}

#[test]
fn the_stored_results_make_one_page() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("report.html");
    let output = experiment(&["report", "--json", "--html", page.to_str().unwrap()]);
    let report = json(&output);
    assert!(output.status.success());
    let page = std::fs::read_to_string(&page).unwrap();
    let stored = std::fs::read_dir(project().join("experiments")).unwrap().flatten();
    let stored: Vec<String> = stored
        .filter(|entry| entry.path().join("result.json").exists())
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    assert!(stored.len() > 5);
    for name in &stored {
        assert!(report["results"].as_array().unwrap().iter().any(|result| result == name), "{name}: {report:#}");
        assert!(page.contains(&format!("<section id='{name}'>")), "{name}");
    }
    let broken = report["faults"].as_array().unwrap().iter().any(|fault| fault.as_str().unwrap().contains("no JSON"));
    assert!(!broken, "{report:#}");
    assert!(page.contains("<svg"));
}

#[test]
fn who_reads_or_writes_beside_nigh_sees_what_was_acknowledged_and_loses_nothing() {
    let test = "who_reads_or_writes_beside_nigh_sees_what_was_acknowledged_and_loses_nothing";
    build_programs();
    // A guard of each kind that needs no MinIO, each mode, and controls that lose writes: where one did not, the experiment
    // fails.
    let rows = "swift,versitygw";
    let output = experiment(&["outside", "--seconds", "3", "--only", rows, "--json"]);
    if let Some(reason) = not_installed(&output) {
        return skip(test, reason);
    }
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    // The complaint first: a report is longer than what is shown of a failure.
    assert!(output.status.success(), "{complaint} {}", String::from_utf8_lossy(&output.stdout));
    let report = json(&output);
    assert!(report["machine"]["command"].as_str().unwrap().starts_with("nigh experiment outside"), "{report:#}");
    let left_out = report["left_out"].as_array().unwrap();
    if !left_out.is_empty() {
        return skip(test, format_args!("{left_out:?}"));
    }
    assert_eq!(report["rows"].as_array().unwrap().len(), 11, "{report:#}");
    for row in report["rows"].as_array().unwrap() {
        let of = |field: &str| row[field].as_u64().unwrap_or_else(|| panic!("{field} of {row:#}"));
        assert!(of("reads") > 20 && of("nigh_writes") > 2 && of("outside_writes") > 2, "{row:#}");
        if row["guard"] == "none" {
            assert!(of("lost_outside_writes") + of("stale_reads") > 0, "{row:#}");
            continue;
        }
        // What is promised of each row (`promises.rs` of the experiment); the command has checked the same.
        assert_eq!(of("lost_outside_writes"), 0, "{row:#}");
        let (mode, guard) = (row["mode"].as_str().unwrap(), row["guard"].as_str().unwrap());
        let promised: &[&str] = match (mode, guard) {
            ("through" | "shadow", _) => &["stale_reads", "stale_nigh_reads", "lost_nigh_writes", "undone_deletions"],
            ("lazy", "middleware") => &["stale_nigh_reads", "lost_nigh_writes", "undone_deletions"],
            ("lazy", "events" | "freshness" | "shared") => &["lost_nigh_writes"],
            ("ephemeral", "shared") => &[],
            other => panic!("{other:?}: say what is promised"),
        };
        for wrong in promised {
            assert_eq!(of(wrong), 0, "{wrong} of {row:#}");
        }
        match guard {
            // But for removals that found nothing at the store, and of what others put while a push was on its way.
            "events" => {
                assert_eq!(of("stale_nigh_reads"), of("past_nothing") + of("past_deletions"), "{row:#}");
                assert_eq!(of("undone_deletions"), of("undone_of_nothing") + of("undone_of_a_put"), "{row:#}");
            }
            // Here also of what others put and removed between two looks.
            "freshness" => assert_eq!(of("stale_nigh_reads"), of("past_nothing") + of("past_deletions"), "{row:#}"),
            _ => {}
        }
    }
}

#[test]
fn a_cluster_that_is_upgraded_and_downgraded_under_load_fails_no_request_and_loses_nothing() {
    let test = "a_cluster_that_is_upgraded_and_downgraded_under_load_fails_no_request_and_loses_nothing";
    build_programs();
    let folder = tempfile::tempdir().unwrap();
    let progress = folder.path().join("upgrade.state");
    let load = ["upgrade", "--plans", "1", "--seed", "1", "--rate", "6", "--hold", "1"];
    let output = experiment(&[&load[..], &["--json", "--progress", progress.to_str().unwrap()]].concat());
    if let Some(reason) = not_installed(&output) {
        return skip(test, reason);
    }
    let report = json(&output);
    assert_eq!((&report["failures"], &report["violations"]), (&Value::Array(Vec::new()), &Value::Array(Vec::new())));
    assert!(output.status.success(), "{report:#}");
    for none in ["failed", "lost", "events_undone", "executions_undone"] {
        assert_eq!(report[none], 0, "{none} of {report:#}");
    }
    let of = |field: &str| report[field].as_u64().unwrap();
    assert_eq!(of("plans"), 1, "{report:#}");
    // Three nodes are replaced; then the format is raised, the older program refused, and a node drained.
    assert!(of("steps") >= 6 && of("requests") > 50, "{report:#}");
    assert!(of("acknowledged") > 0 && of("events") > 0 && of("executions") > 0, "{report:#}");
    for client in ["retrying", "ready"] {
        for kind in ["put", "get", "invoke", "event", "openwhisk", "workflow"] {
            assert!(report["by_kind"][format!("{client} {kind}")]["requests"].as_u64() > Some(0), "{client} {kind}");
        }
    }
    assert!(!progress.exists(), "nothing is left to go on with");
}

#[test]
fn a_tenant_at_ten_times_its_quota_is_refused_and_fails_no_call_of_its_neighbour() {
    let test = "a_tenant_at_ten_times_its_quota_is_refused_and_fails_no_call_of_its_neighbour";
    build_programs();
    let output = experiment(&["quotas", "--seconds", "0.5", "--rounds", "1", "--json"]);
    if let Some(reason) = not_installed(&output) {
        return skip(test, reason);
    }
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    let report = json(&output);
    assert!(output.status.success(), "{complaint} {:#}", report["broken"]);
    // How fast the machine is decides nothing here: latencies of one round are not judged.
    assert_eq!((&report["failed"], &report["judged"]), (&Value::from(0), &Value::from(false)), "{report:#}");
    assert_eq!(report["calls"].as_array().unwrap().len(), 3, "two calls at the S3 door, one at Lambda's: {report:#}");
    for row in report["floods"].as_array().unwrap() {
        let of = |field: &str| row[field].as_u64().unwrap_or_else(|| panic!("{field} of {row:#}"));
        assert_eq!((of("silent"), of("failed")), (0, 0), "{row:#}");
        // A debug build sends too slowly for ten times the quota.
        assert!(of("times") == 1 || of("refused") > 0, "{row:#}");
    }
}

#[test]
fn slow_clients_at_every_door_fail_no_honest_call_and_are_ended() {
    let test = "slow_clients_at_every_door_fail_no_honest_call_and_are_ended";
    build_programs();
    let output = experiment(&["slow-clients", "--clients", "64", "--seconds", "0.5", "--rounds", "1", "--json"]);
    if let Some(reason) = not_installed(&output) {
        return skip(test, reason);
    }
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    let report = json(&output);
    assert!(output.status.success(), "{complaint} {:#}", report["broken"]);
    // How fast the machine is decides nothing here: latencies of one round are not judged.
    assert_eq!((&report["failed"], &report["judged"]), (&Value::from(0), &Value::from(false)), "{report:#}");
    let calls = report["calls"].as_array().unwrap();
    assert_eq!(calls.len(), 5 * 6, "each call beside each kind: {report:#}");
    for row in calls {
        let of = |field: &str| row[field].as_f64().unwrap_or_else(|| panic!("{field} of {row:#}"));
        assert!(of("calls") >= 50.0 && of("p99_ms") >= of("p50_ms") && of("p50_quiet_ms") > 0.0, "{row:#}");
        assert!(of("first_ms") > 0.0 && row["p99_ratio"]["value"].as_f64().unwrap() > 0.0, "{row:#}");
    }
    let slow = report["slow"].as_array().unwrap();
    assert_eq!(slow.len(), 4 * 6, "each door and kind: {report:#}");
    for row in slow {
        let of = |field: &str| row[field].as_u64().unwrap_or_else(|| panic!("{field} of {row:#}"));
        assert!(of("opened") >= 64 && of("watched") >= 3, "{row:#}");
        assert_eq!((of("left"), of("watched_refused")), (0, 0), "{row:#}");
        let (kind, watched) = (row["kind"].as_str().unwrap(), of("watched"));
        // Who keeps the least rate is served, everybody else is ended.
        let ends = if kind == "body-above" { (0, watched) } else { (watched, 0) };
        assert_eq!((of("watched_ended"), of("watched_completed")), ends, "{row:#}");
        // Who waits for nothing is ended at once, others after the time that they have.
        let least = match kind {
            "head" | "silent" => 9.0,
            "body-below" | "answer" => 29.0,
            _ => 0.0,
        };
        assert!(kind == "body-above" || row["ended_after_p50_s"].as_f64().unwrap() >= least, "{row:#}");
        let stays = ["head", "body-below", "body-above", "silent"].contains(&kind);
        assert!(!stays || of("descriptors") >= of("descriptors_quiet") + 32, "{row:#}");
        assert!(row["memory_mib"].as_f64().unwrap() > 1.0 && row["slow_processors"].as_f64().unwrap() < 0.5, "{row:#}");
    }
}
