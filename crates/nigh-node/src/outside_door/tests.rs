//! The door over a socket, in front of a memory whose store knows its buckets' names.

use std::io::{Read, Write};

use nigh_terms::SystemClock;
use tokio::net::TcpListener;

use super::*;

/// Sends a request. Returns the status and the body of the door's answer.
fn ask(address: std::net::SocketAddr, head: &str, body: &[u8]) -> (u16, String) {
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    let length = body.len();
    write!(stream, "{head}Host: n\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n").unwrap();
    // A request that is refused for its length is closed while it is sent, so the write may fail.
    let _ = stream.write_all(body);
    let mut text = String::new();
    let _ = stream.read_to_string(&mut text);
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    (status, text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default())
}

#[tokio::test(flavor = "multi_thread")]
async fn who_does_not_sign_or_has_no_token_is_refused_and_nothing_else_is_here() {
    let folder = tempfile::tempdir().unwrap();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let store = nigh_stores::directory::DirectoryStore::open(&folder.path().join("objects"), Arc::clone(&clock));
    let writes = nigh_objects::Writes::through(nigh_terms::Epoch(1));
    let limits = nigh_objects::MemoryLimits {
        cache: nigh_terms::ByteSize::mib(1),
        cached_object: nigh_terms::ByteSize::mib(1),
        object: nigh_terms::ByteSize::mib(1),
    };
    let spool = folder.path().join("spool");
    let memory = ObjectMemory::open(Arc::new(store.unwrap()), writes, Arc::clone(&clock), Vec::new(), spool, limits)
        .await
        .unwrap();
    let machine = crate::machine::Machine { hostname: "n".to_owned(), memory: nigh_terms::ByteSize::gib(1), cpus: 1 };
    let mut settings = crate::config::Settings::defaults(folder.path(), &machine);
    let token = folder.path().join("token");
    std::fs::write(&token, "a token of tests\n".replace(' ', "-")).unwrap();
    std::fs::set_permissions(&token, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    settings.outside.events_token_file = Some(token);
    let secrets = OutsideSecrets::read(&settings).unwrap();
    let door = Arc::new(OutsideDoor::new(memory, secrets, Duration::from_secs(60), clock));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, until) = (listener.local_addr().unwrap(), CancellationToken::new());
    let serving = tokio::spawn(door.serve(listener, until.clone()));

    let asked = tokio::task::spawn_blocking(move || {
        let events = br#"{"Records": [{"eventName": "ObjectCreated:Put",
            "s3": {"bucket": {"name": "nobodys"}, "object": {"key": "k", "eTag": "e"}}}]}"#;
        let post = |path: &str, more: &str| format!("POST {path} HTTP/1.1\r\n{more}");
        let bearer = "Authorization: Bearer a-token-of-tests\r\n";
        assert_eq!(ask(address, &post("/outside/v1/s3-events", bearer), events), (200, r#"{"dropped":0}"#.to_owned()));
        assert_eq!(ask(address, &post("/outside/v1/s3-events", bearer), b"{}").0, 400);
        assert_eq!(ask(address, &post("/outside/v1/s3-events", bearer), &vec![b' '; EVENTS_BYTES_MAX + 1]).0, 413);
        for wrong in ["", "Authorization: Bearer a-token-of-test\r\n", "Authorization: a-token-of-tests\r\n"] {
            assert_eq!(ask(address, &post("/outside/v1/s3-events", wrong), events).0, 403, "{wrong}");
        }
        for path in ["/outside/v1/push", "/outside/v1/invalidate"] {
            assert_eq!(ask(address, &post(path, bearer), b"{}").0, 403);
        }
        assert_eq!(ask(address, &post("/", bearer), b"").0, 404);
        assert_eq!(ask(address, &format!("GET /outside/v1/s3-events HTTP/1.1\r\n{bearer}"), b"").0, 404);
    });
    asked.await.unwrap();
    until.cancel();
    serving.await.unwrap();
}
