//! Cases about commands, `info/` and the texts of `schemata` and `size` (rules 1 to 12, 15, 27 to 30).

use rustix::io::Errno;

use super::bench::{GROUP, Op, Stop};
use super::{Case, case};

pub(super) const CASES: &[Case] = &[
    case(3, "a schemata without its final newline is refused and leaves the status alone", |bench| {
        let own = bench.file(GROUP, "schemata");
        bench.refused(Op::Write(&own, "nonsense\n"), Errno::INVAL, "Missing ':'\n")?;
        let answer = bench.fs.write(&own, bench.line(bench.cache()?.full)?.trim_end());
        bench.expect(
            "errno",
            &answer.err().and_then(|error| error.raw_os_error()),
            &Some(Errno::INVAL.raw_os_error()),
        )?;
        bench.expect("status", &bench.status()?, &"Missing ':'\n".to_owned())
    }),
    case(3, "a write longer than a page is refused", |bench| {
        let long = "1".repeat(4097);
        bench.refused(Op::Write(&bench.file(GROUP, "tasks"), &long), Errno::TOOBIG, "ok\n")
    }),
    case(3, "a file that only shows cannot be written", |bench| {
        bench.refused(Op::Write(&bench.file(GROUP, "size"), "1\n"), Errno::ACCESS, "ok\n")?;
        bench.refused(Op::Write("info/last_cmd_status", "ok\n"), Errno::ACCESS, "ok\n")
    }),
    case(6, "a success clears the status, and reading info does not", |bench| {
        let own = bench.file(GROUP, "schemata");
        bench.refused(Op::Write(&own, "\n"), Errno::INVAL, "Missing ':'\n")?;
        bench.fs.read(&format!("info/{}/cbm_mask", bench.cache()?.name))?;
        bench.expect("status", &bench.status()?, &"Missing ':'\n".to_owned())?;
        bench.accepted(Op::Write(&own, &bench.fs.read(&own)?))
    }),
    case(7, "info names its files", |bench| {
        let cache = bench.cache()?;
        let files = bench.fs.list(&format!("info/{}", cache.name))?;
        let mut wanted = vec!["bit_usage", "cbm_mask", "min_cbm_bits", "num_closids", "shareable_bits"];
        if bench.new {
            wanted.push("sparse_masks");
        }
        let missing: Vec<_> = wanted.into_iter().filter(|file| !files.iter().any(|there| there == file)).collect();
        bench.expect("missing files", &missing, &vec![])?;
        let code = bench.fs.list("info")?.iter().any(|name| name == "L3CODE/");
        let whole = bench.fs.list("info")?.iter().any(|name| name == "L3/");
        bench.expect("both forms of the L3", &(code && whole), &false)
    }),
    case(9, "bit_usage has one letter a way and marks what hardware shares", |bench| {
        let cache = bench.cache()?;
        let text = bench.fs.read(&format!("info/{}/bit_usage", cache.name))?;
        let first = text.trim_end().split(';').next().and_then(|part| part.split_once('='));
        let letters: Vec<char> = first.map(|(_, letters)| letters.chars().rev().collect()).unwrap_or_default();
        bench.expect("letters", &letters.len(), &(cache.full.count_ones() as usize))?;
        let shared = letters.iter().zip(0..).filter(|(letter, _)| matches!(letter, 'X' | 'H'));
        let mask = shared.fold(0u32, |mask, (_, way): (_, u32)| mask | 1 << way);
        bench.expect("ways shared with hardware", &mask, &cache.shareable)
    }),
    case(11, "what schemata shows can be written back, in part, with blanks, prefix and final semicolon", |bench| {
        let cache = bench.cache()?;
        let own = bench.file(GROUP, "schemata");
        let shown = bench.fs.read(&own)?;
        bench.accepted(Op::Write(&own, &shown))?;
        let mask = cache.full & !(cache.full >> 1) | cache.full >> 1;
        let text = format!("  {} :{}=0x{mask:X};\n", cache.name, cache.domain);
        bench.accepted(Op::Write(&own, &text))?;
        bench.expect("schemata", &bench.fs.read(&own)?, &shown)
    }),
    case(11, "a line in error applies none of the lines before it", |bench| {
        let cache = bench.cache()?;
        let own = bench.file(GROUP, "schemata");
        let before = bench.mask(GROUP)?;
        let mask = (1 << cache.min_bits.max(1)) - 1;
        let text = format!("{}Nothing:0=1\n", bench.line(mask)?);
        let status = "Unknown or unsupported resource name 'Nothing'\n";
        bench.refused(Op::Write(&own, &text), Errno::INVAL, status)?;
        bench.expect("mask", &bench.mask(GROUP)?, &before)
    }),
    case(12, "each way to misspell a schemata has its own word", |bench| {
        let cache = bench.cache()?;
        let (own, name, domain) = (bench.file(GROUP, "schemata"), &cache.name, cache.domain);
        let refused = |text: &str, status: &str| bench.refused(Op::Write(&own, text), Errno::INVAL, status);
        refused(&format!("{name}\n"), "Missing ':'\n")?;
        refused(&format!("{name}:\n"), &format!("Missing '{name}' value\n"))?;
        refused(&format!("{name}:x=1\n"), "Missing '=' or non-numeric domain\n")?;
        refused(&format!("{name}:{domain}\n"), "Missing '=' or non-numeric domain\n")?;
        refused(&format!("{name}: {domain}={:x}\n", cache.full), "Missing '=' or non-numeric domain\n")?;
        let twice = format!("{name}:{domain}={0:x};{domain}={0:x}\n", cache.full);
        refused(&twice, &format!("Duplicate domain {domain}\n"))?;
        let again = format!("{0}{0}", bench.line(cache.full)?);
        refused(&again, &format!("Duplicate domain {domain}\n"))
    }),
    case(12, "a domain that is not there is refused without a word", |bench| {
        let text = format!("{}:9999={:x}\n", bench.cache()?.name, bench.cache()?.full);
        bench.refused(Op::Write(&bench.file(GROUP, "schemata"), &text), Errno::INVAL, "ok\n")
    }),
    case(14, "bandwidth is checked and rounded up to its step", |bench| {
        let values = bench.values(GROUP, "MB")?;
        let first = values.first();
        bench.need(first.is_some(), "no memory bandwidth control")?;
        let software = bench.fs.mount_options()?.is_some_and(|options| options.mba_mbps);
        bench.need(!software, "bandwidth is given in MiB/s")?;
        let domain = first.map_or(0, |(domain, _)| *domain);
        let number = |file: &str| -> Result<u32, Stop> {
            let text = bench.fs.read(&format!("info/MB/{file}"))?;
            text.trim().parse().map_err(|_not| Stop::Failed(format!("{file} is {text:?}")))
        };
        let (min, step) = (number("min_bandwidth")?, number("bandwidth_gran")?);
        let max: u32 = first.and_then(|(_, value)| value.parse().ok()).unwrap_or(0);
        let own = bench.file(GROUP, "schemata");
        let word = "Invalid MB value x\n";
        bench.refused(Op::Write(&own, &format!("MB:{domain}=x\n")), Errno::INVAL, word)?;
        let status = format!("MB value {} out of range [{min},{max}]\n", max + 1);
        bench.refused(Op::Write(&own, &format!("MB:{domain}={}\n", max + 1)), Errno::INVAL, &status)?;
        bench.accepted(Op::Write(&own, &format!("MB:{domain}={}\n", min + 1)))?;
        let value = bench.values(GROUP, "MB")?.first().map(|(_, value)| value.clone());
        bench.expect("value", &value, &Some(((min + 1).div_ceil(step) * step).to_string()))
    }),
    case(14, "bandwidth in MiB/s takes any figure", |bench| {
        let software = bench.fs.mount_options()?.is_some_and(|options| options.mba_mbps);
        bench.need(software, "bandwidth is not given in MiB/s")?;
        let domain = bench.values(GROUP, "MB")?.first().map_or(0, |(domain, _)| *domain);
        bench.accepted(Op::Write(&bench.file(GROUP, "schemata"), &format!("MB:{domain}=12345\n")))?;
        bench.expect("value", &bench.values(GROUP, "MB")?.first().map(|(_, v)| v.clone()), &Some("12345".to_owned()))
    }),
    case(15, "size is the mask's ways times the size of one", |bench| {
        let cache = bench.cache()?;
        let read = || -> Result<u64, Stop> {
            let text = bench.fs.read(&bench.file(GROUP, "size"))?;
            let line = text.lines().find_map(|line| line.trim_start().strip_prefix(&cache.name)?.strip_prefix(':'));
            let first = line.and_then(|line| line.split(';').next()?.split_once('=')?.1.parse().ok());
            first.ok_or_else(|| Stop::Failed(format!("size is {text:?}")))
        };
        let all = read()?;
        let ways = cache.min_bits.max(1);
        bench.accepted(Op::Write(&bench.file(GROUP, "schemata"), &bench.line((1 << ways) - 1)?))?;
        bench.expect("size", &read()?, &(all / u64::from(cache.full.count_ones()) * u64::from(ways)))
    }),
    case(27, "a counter shows a figure or a word", |bench| {
        bench.need(bench.monitors, "no monitoring")?;
        let data = bench.file(GROUP, "mon_data");
        let domains = bench.fs.list(&data)?;
        bench.expect("domains", &domains.is_empty(), &false)?;
        for domain in domains {
            for file in bench.fs.list(&format!("{data}/{}", domain.trim_end_matches('/')))? {
                if file.ends_with('/') {
                    continue;
                }
                let text = bench.fs.read(&format!("{data}/{}{file}", domain))?;
                let word = ["Unavailable\n", "Error\n", "Unassigned\n"].contains(&text.as_str());
                let figure = text.ends_with('\n') && text.trim_end().parse::<f64>().is_ok();
                bench.expect(&format!("{domain}{file} is {text:?}"), &(word || figure), &true)?;
            }
        }
        Ok(())
    }),
    case(28, "the events' configuration checks its mask", |bench| {
        let path = "info/L3_MON/mbm_total_bytes_config";
        bench.need(bench.fs.read(path).is_ok(), "events cannot be configured")?;
        let domain = bench.cache()?.domain;
        let status = "Missing '=' or non-numeric domain id\n";
        bench.refused(Op::Write(path, "x=1\n"), Errno::INVAL, status)?;
        let status = "Non-numeric event configuration value\n";
        bench.refused(Op::Write(path, &format!("{domain}=x\n")), Errno::INVAL, status)?;
        let status = "Invalid event configuration: max valid mask is 0x7f\n";
        bench.refused(Op::Write(path, &format!("{domain}=0x80\n")), Errno::INVAL, status)
    }),
    case(29, "the software controller's event must be one that is counted", |bench| {
        let path = bench.file(GROUP, "mba_MBps_event");
        bench.need(bench.fs.read(&path).is_ok(), "no choice of event")?;
        bench.refused(Op::Write(&path, "llc_occupancy\n"), Errno::INVAL, "Unsupported event id 'llc_occupancy'\n")?;
        bench.accepted(Op::Write(&path, &bench.fs.read(&path)?))
    }),
    case(30, "the I/O class's mask is refused while there is no such class", |bench| {
        let cache = bench.cache()?;
        let state = bench.fs.read(&format!("info/{}/io_alloc", cache.name)).unwrap_or_default();
        bench.need(state == "disabled\n", "no I/O class to be had")?;
        let path = format!("info/{}/io_alloc_cbm", cache.name);
        let status = format!("io_alloc is not enabled on {}\n", cache.name);
        bench.refused(Op::Write(&path, &format!("{}=1\n", cache.domain)), Errno::INVAL, &status)
    }),
];
