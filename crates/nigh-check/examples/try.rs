use nigh_check::storm::*;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let (from, to): (u64, u64) = (a[1].parse().unwrap(), a[2].parse().unwrap());
    let rule = a.get(3).cloned().unwrap_or_default();
    let show = a.iter().any(|x| x == "trace");
    let begun = std::time::Instant::now();
    let (mut ops, mut ev, mut vs, mut bad) = (0, 0, 0.0, 0);
    let mut all = Strikes::default();
    let left = nigh_check::weakenings()
        .iter()
        .find(|w| format!("{:?}", w.rule) == rule)
        .map(|w| LeftOut::Rule(w.rule))
        .or(Duty::ALL.into_iter().find(|d| format!("{d:?}") == rule).map(LeftOut::Duty))
        .unwrap_or_default();
    for seed in from..to {
        let end = storm(seed, left);
        ops += end.operations;
        ev += end.events;
        vs += end.virtual_seconds;
        all.join(&end.strikes);
        if let Some(v) = &end.violation {
            bad += 1;
            println!(
                "seed {seed}: {:?} {} ({:.1} s)",
                v.breach,
                v.what.chars().take(300).collect::<String>(),
                end.virtual_seconds
            );
            if left != LeftOut::Nothing {
                break;
            }
            if show {
                let s = shrink(seed, left).unwrap();
                for f in &s.faults {
                    println!("  {f:?}");
                }
                println!("   {:?}", s.end.violation);
                std::fs::write(format!("/tmp/storm-{seed}.txt"), s.end.trace.join("\n")).unwrap();
                break;
            }
        }
    }
    let t = begun.elapsed().as_secs_f64();
    println!(
        "{bad} bad, {ops} ops, {ev} events, {vs:.0} virtual s in {t:.2} s: {:.0} ops/s, {:.0}x",
        ops as f64 / t,
        vs / t
    );
    for (k, n) in all.iter() {
        print!("{}={n} ", k.name());
    }
    println!();
}
