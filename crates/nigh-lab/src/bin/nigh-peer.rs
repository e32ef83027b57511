//! The peers of the benches that are our own programs, each in a process of its own: `nigh-peer bare-s3s`,
//! `nigh-peer fault-proxy <upstream> <plan>`.

use std::process::ExitCode;

#[tokio::main]
#[expect(clippy::print_stderr, reason = "a command says on standard error what went wrong")]
async fn main() -> ExitCode {
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    let (peer, argument) = (std::env::args().nth(1), std::env::args().nth(2));
    let served = match peer.as_deref() {
        Some("bare-s3s") => nigh_lab::instrument::peer::bare_s3s::serve().await,
        Some("fault-proxy") => nigh_lab::instrument::fault_proxy::run(argument, std::env::args().nth(3)).await,
        other => {
            let there_are = "bare-s3s, fault-proxy";
            Err(std::io::Error::other(format!("unknown peer {other:?}; there are: {there_are}")))
        }
    };
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("nigh-peer: {error}");
            ExitCode::FAILURE
        }
    }
}
