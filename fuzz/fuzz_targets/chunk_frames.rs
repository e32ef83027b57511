//! Whatever the aws-chunked body and however it is cut: no panic, the same verdict, and the same bytes in its chunks.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nigh_s3::fuzzing::reframe;

/// The bytes in the chunks of `body`, which is well framed as far as it goes, and what follows the last.
fn decode(mut body: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let mut inside = Vec::new();
    while let Some(end) = body.windows(2).position(|pair| pair == b"\r\n") {
        let digits = body[..end].split(|&byte| byte == b';').next().expect("split gives one at least");
        let digits = std::str::from_utf8(digits).expect("hexadecimal digits");
        let size = usize::from_str_radix(digits, 16).expect("hexadecimal digits");
        let rest = &body[end + 2..];
        if size == 0 {
            return (inside, body.to_vec());
        }
        inside.extend_from_slice(&rest[..size.min(rest.len())]);
        body = rest.get(size.saturating_add(2)..).unwrap_or_default();
    }
    (inside, body.to_vec())
}

fuzz_target!(|input: (bool, u8, &[u8])| {
    let (signed, piece, body) = input;
    let whole = reframe(signed, std::iter::once(body));
    let cut = reframe(signed, body.chunks(usize::from(piece).max(1)));
    assert_eq!(whole.is_some(), cut.is_some());
    let (Some(whole), Some(cut)) = (whole, cut) else { return };
    assert_eq!(decode(&whole), decode(&cut));
    if signed {
        assert!(body.starts_with(&whole));
        assert_eq!(whole, cut);
    } else {
        assert_eq!(decode(&whole).0, decode(body).0);
    }
});
