//! A training job as a neighbour: threads that train until the process ends. `nigh-peer train <threads>`.
//!
//! Any datagram to its port is answered with the steps done so far, all threads together, as 8 bytes.

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::touch::NoRecording;
use super::training_job::{Digits, HIDDEN, Network, Trainer};

/// Threads at most.
const THREADS_MAX: usize = 1024;
/// As many digits as the MNIST training set has: 47 MB.
const DIGITS: usize = 60_000;

/// Trains until the process ends; prints the port first.
///
/// # Errors
/// If the number of threads is none or no port can be had.
#[expect(clippy::print_stdout, reason = "the port is this program's one output")]
pub fn serve(threads: Option<String>) -> std::io::Result<()> {
    let wrong = || std::io::Error::other(format!("how many threads? 1 to {THREADS_MAX}"));
    let threads: usize = threads.and_then(|text| text.parse().ok()).ok_or_else(wrong)?;
    if !(1..=THREADS_MAX).contains(&threads) {
        return Err(wrong());
    }
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    let (network, digits) = (Arc::new(Network::new(HIDDEN, 1)), Arc::new(Digits::made_up(DIGITS, 1)));
    let steps = Arc::new(AtomicU64::new(0));
    for thread in 0..threads {
        let (network, digits, steps) = (Arc::clone(&network), Arc::clone(&digits), Arc::clone(&steps));
        std::thread::spawn(move || {
            let mut trainer = Trainer::new(&network, thread as u64);
            loop {
                trainer.step(&network, &digits, &mut NoRecording);
                steps.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    println!("{}", socket.local_addr()?.port());
    let mut asked = [0; 8];
    loop {
        let (_, client) = socket.recv_from(&mut asked)?;
        // Whoever asked and is gone needs no answer.
        let _ = socket.send_to(&steps.load(Ordering::Relaxed).to_le_bytes(), client);
    }
}
