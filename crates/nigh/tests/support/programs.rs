//! The programs that stand beside `nigh`.

use std::process::Command;
use std::sync::OnceLock;

/// Builds `nigh-sandbox` and the others that `nigh` starts: `cargo test -p nigh` alone leaves them out, or as they were.
///
/// Who has built the whole workspace says so by `NIGH_TEST_BUILT`, Cargo's flags. They and all that they depend on would
/// else be built once more, with the features of their packages alone.
pub(crate) fn build_programs() {
    static BUILT: OnceLock<()> = OnceLock::new();
    BUILT.get_or_init(|| {
        if std::env::var_os("NIGH_TEST_BUILT").is_none() {
            let build = ["build", "--quiet", "-p", "nigh-faas", "-p", "nigh-llc", "-p", "nigh-lab", "--bins"];
            let built = Command::new(env!("CARGO")).args(build).status();
            assert!(built.is_ok_and(|status| status.success()), "the programs beside `nigh` could not be built");
        }
    });
}
