//! Large folios: a segment's memory, sixteen pages of it at a time.
//!
//! The kernel needs more time to give a page of 4 KiB and take it back than to copy the page. Where it is set to, it
//! gives folios of 64 KiB to a mapping that asks for them (MADV_HUGEPAGE; `hugepages-64kB/shmem_enabled` in the
//! kernel's admin-guide/mm/transhuge.rst, Linux 6.11) and lies in memory as its file does.

/// The size of a large folio. A mapping must lie on a multiple of it.
pub(crate) const FOLIO_BYTES: usize = 64 << 10;
const SETTING: &str = "/sys/kernel/mm/transparent_hugepage/hugepages-64kB/shmem_enabled";
const INHERITED: &str = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";

/// Whether the kernel gives large folios to mappings of memfds that ask for them: objects of 64 KiB and more are in
/// such then.
#[must_use]
pub fn are_offered() -> bool {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    says_so(&read(SETTING), &read(INHERITED))
}

/// The choice in brackets decides.
fn says_so(setting: &str, inherited: &str) -> bool {
    let chosen = |text: &str, choices: &[&str]| choices.iter().any(|choice| text.contains(&format!("[{choice}]")));
    let given = ["always", "within_size", "advise"];
    chosen(setting, &given)
        || chosen(setting, &["inherit"]) && (chosen(inherited, &given) || inherited.contains("[force]"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_choice_in_brackets_decides() {
        let (never, always) = ("always within_size advise [never] deny force", "[always] within_size advise never");
        assert!(says_so("always inherit within_size [advise] never", never));
        assert!(says_so("[always] inherit within_size advise never", never));
        assert!(says_so("always [inherit] within_size advise never", always));
        assert!(!says_so("always [inherit] within_size advise never", never));
        assert!(!says_so("always inherit within_size advise [never]", always));
        assert!(!says_so("", "") && !says_so("", always));
    }
}
