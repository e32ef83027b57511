//! The programs that stand beside `nigh`.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

/// Builds `nigh-sandbox` and the others that `nigh` starts or lends to functions: `cargo test -p nigh` alone leaves them
/// out, or as they were.
///
/// Who has built the whole workspace says so by `NIGH_TEST_BUILT`, Cargo's flags. They and all that they depend on would
/// else be built once more, with the features of their packages alone. Gives the folder where they lie.
pub(crate) fn build_programs() -> PathBuf {
    static BUILT: OnceLock<()> = OnceLock::new();
    BUILT.get_or_init(|| {
        if std::env::var_os("NIGH_TEST_BUILT").is_none() {
            let build = [
                "build",
                "--quiet",
                "-p",
                "nigh-sandbox",
                "-p",
                "nigh-sizing",
                "-p",
                "nigh-lambda",
                "-p",
                "nigh-lab",
                "-p",
                "nigh-python",
                "--bins",
                "--lib",
            ];
            let built = Command::new(env!("CARGO")).args(build).status();
            assert!(built.is_ok_and(|status| status.success()), "the programs beside `nigh` could not be built");
        }
    });
    // Of target/debug/deps/TEST.
    let test = std::env::current_exe().unwrap_or_default();
    test.ancestors().nth(2).map(PathBuf::from).unwrap_or_default()
}
