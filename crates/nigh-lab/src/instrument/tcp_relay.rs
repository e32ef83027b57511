//! A bad network between the nodes of a cluster, on purpose: a relay that carries TCP connections to one node, and delays,
//! holds, resets or forgets them.
//!
//! It works above TCP, which shows lost and reordered packets as delay: so the relay makes delay. It does not read held bytes, so that
//! the sender's TCP stops as it does without acknowledgements, and continues when the weather changes.

use std::net::SocketAddr;
use std::time::Duration;

use rand::Rng;
use rustix::net::sockopt::set_socket_linger;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::sleep;

/// Bytes that are carried at a time.
const PIECE: usize = 16 << 10;

/// What the relay does to connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Weather {
    /// How long each piece is kept,
    pub delay: Duration,
    /// and how much longer at most, drawn for each.
    pub jitter: Duration,
    /// Bytes from callers are held.
    pub holds_calls: bool,
    /// Bytes from the node are held.
    pub holds_answers: bool,
    /// When this number changes, all connections end: both ends get a reset.
    pub reset: u64,
    /// When this number changes, all connections become half open: the node learns that its callers are gone, and the callers
    /// hear nothing more.
    pub forgotten: u64,
}

/// A running relay to one address; it ends when dropped.
#[derive(Debug)]
pub(crate) struct TcpRelay {
    port: u16,
    upstream: watch::Sender<Option<SocketAddr>>,
    weather: watch::Sender<Weather>,
    serving: JoinHandle<()>,
}

impl TcpRelay {
    /// A relay on a free port of all of this machine's addresses. A connection waits until the relay knows its target.
    pub(crate) async fn start() -> std::io::Result<Self> {
        let listener = TcpListener::bind(("0.0.0.0", 0)).await?;
        let port = listener.local_addr()?.port();
        let (upstream, of_upstream) = watch::channel(None);
        let (weather, of_weather) = watch::channel(Weather::default());
        let serving = tokio::spawn(serve(listener, of_upstream, of_weather));
        Ok(Self { port, upstream, weather, serving })
    }

    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    /// Sets the address that it carries connections to.
    pub(crate) fn point_at(&self, upstream: SocketAddr) {
        self.upstream.send_replace(Some(upstream));
    }

    /// Changes what it does, to open connections too.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Weather)) {
        self.weather.send_modify(change);
    }
}

impl Drop for TcpRelay {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve(
    listener: TcpListener,
    mut upstream: watch::Receiver<Option<SocketAddr>>,
    weather: watch::Receiver<Weather>,
) {
    // The connections end with the relay.
    let mut connections = JoinSet::new();
    loop {
        let accepted = listener.accept().await;
        while connections.try_join_next().is_some() {}
        let Ok((caller, _)) = accepted else { continue };
        let Ok(Some(to)) = upstream.wait_for(Option::is_some).await.map(|to| *to) else { return };
        connections.spawn(carry(caller, to, weather.clone()));
    }
}

/// How a connection ends.
enum RelayEnd {
    Both,
    Reset,
    Forgotten,
}

async fn carry(mut caller: TcpStream, to: SocketAddr, mut weather: watch::Receiver<Weather>) {
    let made = *weather.borrow_and_update();
    // Nobody listens: the caller's connection closes, as late as TCP refuses it.
    let Ok(mut node) = TcpStream::connect(to).await else { return };
    // A socket that refuses the option is only slower.
    let _ = (caller.set_nodelay(true), node.set_nodelay(true));
    match carry_until(&mut caller, &mut node, &mut weather, made).await {
        RelayEnd::Both => {}
        RelayEnd::Reset => {
            // With a linger of zero, dropping a socket resets it.
            let _ = (set_socket_linger(&caller, Some(Duration::ZERO)), set_socket_linger(&node, Some(Duration::ZERO)));
        }
        RelayEnd::Forgotten => {
            drop(node);
            // The caller gets no answer until it gives up or is reset.
            let _ = weather.wait_for(|now| now.reset != made.reset).await;
        }
    }
}

async fn carry_until(
    caller: &mut TcpStream,
    node: &mut TcpStream,
    weather: &mut watch::Receiver<Weather>,
    made: Weather,
) -> RelayEnd {
    let (from_caller, to_caller) = caller.split();
    let (from_node, to_node) = node.split();
    let there = pass(from_caller, to_node, weather.clone(), |weather| weather.holds_calls);
    let back = pass(from_node, to_caller, weather.clone(), |weather| weather.holds_answers);
    let both = async { tokio::join!(there, back) };
    let changed = weather.wait_for(|now| now.reset != made.reset || now.forgotten != made.forgotten);
    tokio::select! {
        _ = both => RelayEnd::Both,
        now = changed => match now {
            Ok(now) if now.reset == made.reset => RelayEnd::Forgotten,
            Ok(_) | Err(_) => RelayEnd::Reset,
        },
    }
}

/// Carries one direction to its end.
async fn pass(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    mut weather: watch::Receiver<Weather>,
    holds: impl Fn(&Weather) -> bool,
) {
    let mut piece = vec![0; PIECE];
    loop {
        if weather.wait_for(|now| !holds(now)).await.is_err() {
            return;
        }
        let Ok(bytes @ 1..) = from.read(&mut piece).await else { break };
        let Weather { delay, jitter, .. } = *weather.borrow_and_update();
        let wait = delay + jitter.mul_f64(rand::rng().random::<f64>());
        if !wait.is_zero() {
            sleep(wait).await;
        }
        if weather.wait_for(|now| !holds(now)).await.is_err() || to.write_all(&piece[..bytes]).await.is_err() {
            break;
        }
    }
    // The other end hears of the end of this direction.
    let _ = to.shutdown().await;
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    const SOON: Duration = Duration::from_millis(300);

    /// A server that says back what it hears, until the connection ends, and then says that it has ended.
    async fn echo() -> (SocketAddr, tokio::sync::mpsc::UnboundedReceiver<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (tell, ended) = tokio::sync::mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let tell = tell.clone();
                tokio::spawn(async move {
                    let (mut from, mut to) = stream.split();
                    let _ = tokio::io::copy(&mut from, &mut to).await;
                    let _ = tell.send(());
                });
            }
        });
        (address, ended)
    }

    async fn heard(stream: &mut TcpStream, word: &[u8]) -> bool {
        let mut answer = vec![0; word.len()];
        let asked = async {
            stream.write_all(word).await?;
            stream.read_exact(&mut answer).await
        };
        matches!(timeout(SOON, asked).await, Ok(Ok(_))) && answer == word
    }

    #[tokio::test]
    async fn what_passes_is_delayed_held_reset_and_forgotten_as_the_weather_says() {
        let (address, mut ended) = echo().await;
        let relay = TcpRelay::start().await.unwrap();
        relay.point_at(address);
        let open = async || TcpStream::connect(("127.0.0.1", relay.port())).await.unwrap();
        let mut stream = open().await;
        assert!(heard(&mut stream, b"one").await);

        relay.change(|weather| weather.delay = Duration::from_millis(50));
        let begun = std::time::Instant::now();
        assert!(heard(&mut stream, b"two").await);
        assert!(begun.elapsed() >= Duration::from_millis(100), "both ways: {:?}", begun.elapsed());
        relay.change(|weather| *weather = Weather::default());

        relay.change(|weather| weather.holds_answers = true);
        assert!(!heard(&mut stream, b"three").await, "the answer is held");
        relay.change(|weather| weather.holds_answers = false);
        let mut late = [0; 5];
        timeout(SOON, stream.read_exact(&mut late)).await.unwrap().unwrap();
        assert_eq!(&late, b"three", "and is not lost");

        relay.change(|weather| weather.forgotten += 1);
        timeout(SOON, ended.recv()).await.unwrap().unwrap();
        assert!(!heard(&mut stream, b"four").await, "nobody answers");
        assert!(timeout(SOON, stream.read(&mut late)).await.is_err(), "and nobody says that the connection has ended");
        let mut other = open().await;
        assert!(heard(&mut other, b"five").await, "who connects anew is carried");

        relay.change(|weather| weather.reset += 1);
        assert!(matches!(timeout(SOON, other.read(&mut late)).await, Ok(Ok(0) | Err(_))), "it was told");
    }
}
