//! Cases about masks and modes (rules 13, 16, 17, 23).

use rustix::io::Errno;

use super::bench::{Bench, GROUP, OTHER, Op, Stop};
use super::{Case, case, root_case};

/// Runs `f` with the root's mask set to `mask` in the first domain, and puts it back.
fn with_root_mask(bench: &Bench<'_>, mask: u32, f: impl FnOnce() -> Result<(), Stop>) -> Result<(), Stop> {
    let before = bench.fs.read("schemata")?;
    bench.fs.write("schemata", &bench.line_everywhere(mask)?)?;
    let ran = f();
    // An exclusive group left by a failed case would refuse the root its ways.
    bench.tear_down()?;
    bench.fs.write("schemata", &before)?;
    ran
}

/// The lowest and the next ways, `min_bits` each, if the cache has room for a third part beyond.
fn two_parts(bench: &Bench<'_>) -> Result<(u32, u32), Stop> {
    let cache = bench.cache()?;
    let ways = cache.min_bits.max(1);
    let (low, next) = ((1 << ways) - 1, ((1 << ways) - 1) << ways);
    let free = cache.full & !cache.shareable;
    bench.need((low | next) & !free == 0, "too few ways that hardware leaves alone")?;
    Ok((low, next))
}

pub(super) const CASES: &[Case] = &[
    case(13, "a mask that is no mask is refused with the reason", |bench| {
        let cache = bench.cache()?;
        let (own, name, domain) = (bench.file(GROUP, "schemata"), &cache.name, cache.domain);
        let text = format!("{name}:{domain}=xyz\n");
        bench.refused(Op::Write(&own, &text), Errno::INVAL, "Non-hex character in the mask xyz\n")?;
        let text = format!("{name}:{domain}=\n");
        bench.refused(Op::Write(&own, &text), Errno::INVAL, "Non-hex character in the mask \n")?;
        let beyond = format!("{name}:{domain}={:x}\n", u64::from(cache.full) + 1);
        bench.refused(Op::Write(&own, &beyond), Errno::INVAL, "Mask out of range\n")
    }),
    case(13, "an empty mask is refused where a way is needed", |bench| {
        bench.need(bench.cache()?.min_bits > 0, "empty masks are allowed")?;
        bench.refused(Op::Write(&bench.file(GROUP, "schemata"), &bench.line(0)?), Errno::INVAL, "Mask out of range\n")
    }),
    case(13, "a mask with a hole is refused where masks have none", |bench| {
        bench.need(!bench.cache()?.sparse && bench.cache()?.min_bits > 0, "masks may have holes")?;
        let status = "The mask 5 has non-consecutive 1-bits\n";
        bench.refused(Op::Write(&bench.file(GROUP, "schemata"), &bench.line(5)?), Errno::INVAL, status)
    }),
    case(13, "a mask with a hole is kept where masks may have them", |bench| {
        bench.need(bench.cache()?.sparse && bench.cache()?.min_bits < 2, "masks have no holes")?;
        bench.accepted(Op::Write(&bench.file(GROUP, "schemata"), &bench.line(5)?))?;
        bench.expect("mask", &bench.mask(GROUP)?, &5)
    }),
    case(13, "a mask of too few ways is refused", |bench| {
        bench.need(bench.cache()?.min_bits > 1, "one way is enough")?;
        let status = format!("Need at least {} bits in the mask\n", bench.cache()?.min_bits);
        bench.refused(Op::Write(&bench.file(GROUP, "schemata"), &bench.line(1)?), Errno::INVAL, &status)
    }),
    case(16, "a group that shares its ways cannot be exclusive", |bench| {
        bench.cache()?;
        bench.refused(Op::Write(&bench.file(GROUP, "mode"), "exclusive\n"), Errno::INVAL, "Schemata overlaps\n")?;
        bench.expect("mode", &bench.fs.read(&bench.file(GROUP, "mode"))?, &"shareable\n".to_owned())
    }),
    case(16, "a mode that is none is refused, the present one taken again", |bench| {
        let mode = bench.file(GROUP, "mode");
        bench.refused(Op::Write(&mode, "mine\n"), Errno::INVAL, "Unknown or unsupported mode\n")?;
        bench.accepted(Op::Write(&mode, "shareable\n"))
    }),
    case(17, "the root cannot be pseudo-locked", |bench| {
        let status = "Cannot pseudo-lock default group\n";
        let word = bench.fs.write("mode", "pseudo-locksetup\n");
        let built = !matches!((&word, bench.status()?.as_str()), (Err(_), "Unknown or unsupported mode\n"));
        bench.need(built, "the kernel is built without pseudo-locking")?;
        bench.refused(Op::Write("mode", "pseudo-locksetup\n"), Errno::INVAL, status)
    }),
    root_case(16, "an exclusive group keeps others off its ways", |bench| {
        let (low, next) = two_parts(bench)?;
        let full = bench.cache()?.full;
        with_root_mask(bench, full & !low, || {
            bench.accepted(Op::Write(&bench.file(GROUP, "schemata"), &bench.line_everywhere(low)?))?;
            bench.accepted(Op::Write(&bench.file(GROUP, "mode"), "exclusive\n"))?;
            let status = "Overlaps with exclusive group\n";
            bench.refused(Op::Write("schemata", &bench.line(full)?), Errno::INVAL, status)?;
            let status = "Overlaps with other group\n";
            bench.refused(Op::Write(&bench.file(GROUP, "schemata"), &bench.line(low | next)?), Errno::INVAL, status)?;
            let usage = bench.fs.read(&format!("info/{}/bit_usage", bench.cache()?.name))?;
            bench.expect("last letter of bit_usage", &usage.trim_end().chars().last(), &Some('E'))?;
            bench.accepted(Op::Make(OTHER))?;
            bench.expect("ways of a new group that are exclusive", &(bench.mask(OTHER)? & low), &0)
        })
    }),
    case(23, "a new group has every way when another has them all", |bench| {
        let full = bench.cache()?.full;
        bench.need(bench.mask("")? == full, "the root has not all ways")?;
        bench.need(bench.fs.read("mode")? == "shareable\n", "the root is exclusive")?;
        bench.expect("mask", &bench.mask(GROUP)?, &full)
    }),
    root_case(23, "a new group has what is shared or unused, or the lowest run of it", |bench| {
        let (low, next) = two_parts(bench)?;
        let full = bench.cache()?.full;
        with_root_mask(bench, low, || {
            bench.accepted(Op::Write(&bench.file(GROUP, "schemata"), &bench.line_everywhere(next)?))?;
            bench.accepted(Op::Write(&bench.file(GROUP, "mode"), "exclusive\n"))?;
            bench.accepted(Op::Make(OTHER))?;
            // Above the exclusive ways more are unused. Where masks have no holes only the first run counts; where they
            // may, kernels of today give all (7.2), older ones the first run too.
            let (mask, all) = (bench.mask(OTHER)?, full & !next);
            let wanted = if bench.cache()?.sparse && mask == all { all } else { low };
            bench.expect("mask", &mask, &wanted)?;
            bench.expect("ways beyond", &(full & !(low | next) != 0), &true)
        })
    }),
];
