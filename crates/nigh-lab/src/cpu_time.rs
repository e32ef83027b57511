//! The processor time of another process, from `/proc/<pid>/schedstat` of its threads (nanoseconds; proc(5)).

use std::time::Duration;

/// The time that the living threads of `pid` have run so far.
///
/// # Errors
/// If the process is gone.
pub fn of_process(pid: u32) -> std::io::Result<Duration> {
    let mut nanos = 0;
    for thread in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let path = thread?.path().join("schedstat");
        // A thread may end between the listing and the reading; what it ran is then lost to this reading.
        let Ok(text) = std::fs::read_to_string(path) else { continue };
        nanos += text.split(' ').next().and_then(|ran| ran.parse::<u64>().ok()).unwrap_or_default();
    }
    Ok(Duration::from_nanos(nanos))
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
}
