use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Empty, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use nigh_rpc::certificates::Authority;
use nigh_rpc::{CertificateFiles, Identity, Role};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::listener::{DoorListener, serve};
use crate::tls::client::ClientTls;

struct Door {
    folder: tempfile::TempDir,
    tls: Arc<DoorTls>,
    address: SocketAddr,
    stop: CancellationToken,
}

impl Drop for Door {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn identity(name: &str) -> Identity {
    Identity::new("lab", Role::Node, name).unwrap()
}

fn issue(folder: &Path, name: &str, at: OffsetDateTime, days: u32) -> CertificateFiles {
    let authority = Authority::open(folder).or_else(|_| Authority::create(folder, "lab", 10)).unwrap();
    let names = ["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
    authority.issue_at(&identity(name), &names, at, days, true).unwrap()
}

fn now() -> OffsetDateTime {
    OffsetDateTime::now_utc()
}

/// A door that answers everything, with a certificate of the authority in its folder.
async fn door(oldest: OldestTls, asks_clients: bool) -> Door {
    let folder = tempfile::tempdir().unwrap();
    let CertificateFiles { authority, certificate, key } = issue(folder.path(), "door", now(), 10);
    let files = DoorFiles { certificate, key, client_authority: asks_clients.then_some(authority) };
    let tls = Arc::new(DoorTls::open(files, oldest).unwrap());
    let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, stop) = (tcp.local_addr().unwrap(), CancellationToken::new());
    let listener = DoorListener::new(tcp, Some(Arc::clone(&tls)));
    let until = stop.clone();
    tokio::spawn(async move {
        serve("test", listener, 16, until, |_, _| async { Response::new(Full::new(Bytes::from("here"))) }).await;
    });
    Door { folder, tls, address, stop }
}

impl Door {
    fn client(&self) -> ClientTls {
        ClientTls::trusting(Some(&self.folder.path().join("authority.crt"))).unwrap()
    }

    async fn get(&self, client: &ClientTls, host: &str) -> std::io::Result<String> {
        let tcp = TcpStream::connect(self.address).await?;
        let stream = client.connect(host, tcp).await?;
        let broken = std::io::Error::other;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
        tokio::spawn(connection);
        let request = Request::get("/").header("host", "localhost").body(Empty::<Bytes>::new()).unwrap();
        let answer = sender.send_request(request).await.map_err(broken)?;
        let body = answer.into_body().collect().await.map_err(broken)?.to_bytes();
        Ok(String::from_utf8(body.to_vec()).unwrap())
    }

    fn serial(&self) -> String {
        self.tls.facts().serial.clone()
    }
}

#[tokio::test]
async fn a_door_answers_over_tls_to_its_names_and_addresses() {
    let door = door(OldestTls::V12, false).await;
    for host in ["localhost", "127.0.0.1", "[::1]"] {
        assert_eq!(door.get(&door.client(), host).await.unwrap(), "here", "{host}");
    }
    let other = door.get(&door.client(), "example.org").await.unwrap_err().to_string();
    assert!(other.contains("example.org"), "{other}");
    let stranger = tempfile::tempdir().unwrap();
    Authority::create(stranger.path(), "lab", 10).unwrap();
    let stranger = ClientTls::trusting(Some(&stranger.path().join("authority.crt"))).unwrap();
    let refused = door.get(&stranger, "localhost").await.unwrap_err().to_string();
    assert!(refused.contains("authority.crt"), "{refused}");
    let system = ClientTls::trusting(None).unwrap();
    let refused = door.get(&system, "localhost").await.unwrap_err().to_string();
    assert!(refused.contains("by this system") && refused.contains("--ca"), "{refused}");
}

#[tokio::test]
async fn a_client_without_tls_is_told_to_use_it() {
    let door = door(OldestTls::V12, false).await;
    let mut tcp = TcpStream::connect(door.address).await.unwrap();
    tcp.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    tcp.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 426 ") && answer.contains("https://"), "{answer}");
}

#[tokio::test]
async fn new_files_are_used_from_the_next_connection_on_and_unusable_ones_never() {
    let door = door(OldestTls::V12, false).await;
    let (client, folder) = (door.client(), door.folder.path());
    let path = |file: &str| folder.join(file);
    let answers = async || door.get(&client, "localhost").await.unwrap() == "here";
    let first = door.serial();
    let (certificate, key) = (std::fs::read(path("door.crt")).unwrap(), std::fs::read(path("door.key")).unwrap());
    issue(folder, "door", now(), 10);
    let second = door.serial();
    assert!(answers().await && second != first);
    // Of the two files one is there already.
    std::fs::write(path("door.crt"), &certificate).unwrap();
    assert!(answers().await && door.tls.reload().is_err());
    assert_eq!(door.serial(), second);
    // The kernel's times of files are some milliseconds apart.
    tokio::time::sleep(Duration::from_millis(20)).await;
    std::fs::write(path("door.key"), &key).unwrap();
    assert!(answers().await);
    assert_eq!(door.serial(), first);
    // Half written, empty, gone.
    for half in [&certificate[..certificate.len() / 2], b""] {
        std::fs::write(path("door.crt"), half).unwrap();
        assert!(answers().await && door.serial() == first);
    }
    std::fs::remove_file(path("door.crt")).unwrap();
    assert!(answers().await && door.serial() == first);
    // One that is over replaces none that is not.
    issue(folder, "door", now() - time::Duration::days(300), 1);
    assert!(answers().await && door.serial() == first);
    let refused = door.tls.reload().unwrap_err();
    assert!(matches!(refused, CertificateError::NotValidNow { .. }), "{refused}");
    issue(folder, "door", now(), 10);
    assert!(door.tls.reload().unwrap() && !door.tls.reload().unwrap());
    assert!(answers().await);
}

#[tokio::test]
async fn a_certificate_that_is_over_serves_until_a_valid_one_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let CertificateFiles { certificate, key, .. } = issue(folder.path(), "door", now() - time::Duration::days(300), 1);
    let files = DoorFiles { certificate, key, client_authority: None };
    let tls = DoorTls::open(files, OldestTls::V13).unwrap();
    let old = tls.facts();
    issue(folder.path(), "door", now() - time::Duration::days(200), 1);
    assert_ne!(tls.facts().serial, old.serial);
    issue(folder.path(), "door", now(), 10);
    assert!(is_valid(&tls.facts(), now()));
}

#[tokio::test]
async fn a_version_older_than_the_oldest_is_refused() {
    for (oldest, answers) in [(OldestTls::V12, true), (OldestTls::V13, false)] {
        let door = door(oldest, false).await;
        let roots = nigh_rpc::certificates::authorities(&door.folder.path().join("authority.crt")).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
        let builder = builder.with_protocol_versions(&[&TLS12]).unwrap();
        let config = builder.with_root_certificates(roots).with_no_client_auth();
        let tcp = TcpStream::connect(door.address).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let connected = TlsConnector::from(Arc::new(config)).connect(name, tcp).await;
        assert_eq!(connected.is_ok(), answers, "{oldest:?}");
    }
}

/// A client with the certificate `name` of the door's authority.
async fn shown(door: &Door, name: &str) -> std::io::Result<()> {
    let folder = door.folder.path();
    let roots = nigh_rpc::certificates::authorities(&folder.join("authority.crt")).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots);
    let chain = read_certificates(&folder.join(format!("{name}.crt"))).unwrap();
    let config = builder.with_client_auth_cert(chain, read_key(&folder.join(format!("{name}.key"))).unwrap()).unwrap();
    let tcp = TcpStream::connect(door.address).await?;
    let name = ServerName::try_from("localhost").unwrap();
    let mut stream = TlsConnector::from(Arc::new(config)).connect(name, tcp).await?;
    stream.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    if answer.starts_with("HTTP/1.1 200 ") { Ok(()) } else { Err(std::io::Error::other(answer)) }
}

#[tokio::test]
async fn where_clients_need_a_certificate_those_without_and_revoked_ones_are_refused() {
    let door = door(OldestTls::V12, true).await;
    let folder = door.folder.path();
    assert!(door.get(&door.client(), "localhost").await.is_err());
    issue(folder, "alice", now(), 10);
    shown(&door, "alice").await.unwrap();
    Authority::open(folder).unwrap().revoke(&[identity("alice")]).unwrap();
    shown(&door, "alice").await.unwrap_err();
    issue(folder, "bob", now(), 10);
    shown(&door, "bob").await.unwrap();
    issue(folder, "carol", now() - time::Duration::days(300), 1);
    shown(&door, "carol").await.unwrap_err();
}

#[tokio::test]
async fn a_client_that_does_not_end_its_handshake_is_given_up_when_the_door_closes() {
    let door = door(OldestTls::V12, false).await;
    let mut silent = TcpStream::connect(door.address).await.unwrap();
    silent.write_all(&[22, 3, 1]).await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    door.stop.cancel();
    let mut rest = Vec::new();
    let closed = tokio::time::timeout(Duration::from_secs(5), silent.read_to_end(&mut rest)).await;
    assert!(closed.is_ok());
}
