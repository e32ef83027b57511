//! The processor time of this thread, and of another process: in nanoseconds from `/proc/<pid>/schedstat` of its living threads, or
//! in ticks of mostly 10 ms from `/proc/<pid>/stat` with the threads that have ended (proc(5)).

use std::time::Duration;

/// The time that this thread has run so far. On a machine that others load it is steadier than the time that passes.
pub(crate) fn of_this_thread() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    // Neither part of such a time is below 0.
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

/// The time that the living threads of `pid` have run so far.
pub(crate) fn of_process(pid: u32) -> std::io::Result<Duration> {
    let mut nanos = 0;
    for thread in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let path = thread?.path().join("schedstat");
        // A thread may end between the listing and the reading; what it ran is then lost to this reading.
        let Ok(text) = std::fs::read_to_string(path) else { continue };
        nanos += text.split(' ').next().and_then(|ran| ran.parse::<u64>().ok()).unwrap_or_default();
    }
    Ok(Duration::from_nanos(nanos))
}

/// The time that all threads of `pid` have run so far, those that have ended too; in ticks of the clock.
pub(crate) fn of_process_and_ended_threads(pid: u32) -> std::io::Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // Behind the name, which may hold anything: the state is the first field, user and system time the 12th and 13th.
    let fields: Vec<&str> = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_ascii_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok());
    let all = ticks(11).zip(ticks(12)).map(|(user, system)| user + system);
    let all = all.ok_or_else(|| std::io::Error::other(format!("/proc/{pid}/stat has no times: {stat}")))?;
    Ok(Duration::from_secs_f64(all as f64 / rustix::param::clock_ticks_per_second() as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_counted_and_sleep_is_not() {
        let begin = of_process(std::process::id()).unwrap();
        let mut x = 1u64;
        while of_process(std::process::id()).unwrap() - begin < Duration::from_millis(20) {
            x = std::hint::black_box(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        }
        assert!(of_process(u32::MAX).is_err());
    }

    #[test]
    fn the_work_of_a_thread_that_has_ended_is_counted() {
        let pid = std::process::id();
        let before = of_process_and_ended_threads(pid).unwrap();
        let work = || {
            let own = || rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
            let mut x = 1u64;
            while own().tv_sec == 0 && own().tv_nsec < 100_000_000 {
                x = std::hint::black_box(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
            }
        };
        std::thread::spawn(work).join().unwrap();
        // Ticks are counted by samples: most of it, not all.
        assert!(of_process_and_ended_threads(pid).unwrap() - before >= Duration::from_millis(50));
        assert!(of_process_and_ended_threads(u32::MAX).is_err());
    }
}
