//! Whatever a peer sends: no panic; a header, a hello and a certificate's name are taken only if they are written the same,
//! and within their limits.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nigh_rpc::certificates::CertificateFacts;
use nigh_rpc::{HEAD_MAX_BYTES, HEADER_BYTES, Header, Hello, Identity, Kind};

fuzz_target!(|input: (&[u8], &str)| {
    let (bytes, text) = input;
    if let Some(header) = bytes.first_chunk::<HEADER_BYTES>() {
        check(*header);
        // The same with a right beginning, so that what is behind it is read.
        let mut framed = *header;
        framed[..6].copy_from_slice(b"NRPC\x01\0");
        check(framed);
    }
    if let Some(hello) = Hello::parse(bytes) {
        assert_eq!(hello.encode(), bytes);
    }
    if let Some(identity) = Identity::of_uri(text) {
        assert_eq!(identity.uri(), text);
    }
    let _ = CertificateFacts::read(bytes);
});

fn check(bytes: [u8; HEADER_BYTES]) {
    let Ok(header) = Header::parse(&bytes) else { return };
    assert_eq!(header.encode(), bytes);
    assert!(header.head_bytes <= HEAD_MAX_BYTES && header.body_bytes <= 1 << 40);
    if matches!(header.kind, Kind::Hello | Kind::Refusal) {
        assert!(header.head_bytes <= 1 << 10 && header.body_bytes == 0);
    }
}
