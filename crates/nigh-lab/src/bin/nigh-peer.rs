//! The peers of the benches that are our own programs, each in a process of its own: `nigh-peer bare-s3s`.

use std::process::ExitCode;

#[tokio::main]
#[expect(clippy::print_stderr, reason = "a command says on standard error what went wrong")]
async fn main() -> ExitCode {
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    let served = match std::env::args().nth(1).as_deref() {
        Some("bare-s3s") => nigh_lab::peer::bare_s3s::serve().await,
        other => Err(std::io::Error::other(format!("unknown peer {other:?}; there is: bare-s3s"))),
    };
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("nigh-peer: {error}");
            ExitCode::FAILURE
        }
    }
}
