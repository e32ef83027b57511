//! Verifies that Swift's middleware sent a message, recently and only once. Pure.
//!
//! Follows `integrations/swift/README.md`, "Signatures". The first line of the signed text differs from that of Nigh's
//! own requests, so a message of one direction cannot be sent in the other.

use std::collections::{HashSet, VecDeque};

use hmac::{Hmac, KeyInit, Mac};
use http::request::Parts;
use nigh_terms::{SecretKey, hex};
use sha2::{Digest, Sha256};

/// The first line of the signed text.
const TO_NIGH: &str = "nigh-outside-1";
/// The prefix of signed headers.
const PREFIX: &str = "x-nigh-";
const DATE: &str = "x-nigh-date";
const NONCE: &str = "x-nigh-nonce";
const SIGNATURE: &str = "x-nigh-signature";
/// The most nonces that are remembered; beyond it messages are rejected, because none may be accepted twice.
const NONCES_MAX: usize = 100_000;

/// The nonce of a message that one of `secrets` signed within `skew_s` seconds of now.
///
/// # Errors
/// The reason, for the sender.
pub(super) fn verify(
    secrets: &[SecretKey],
    head: &Parts,
    body: &[u8],
    now_s: u64,
    skew_s: u64,
) -> Result<String, &'static str> {
    let text_of = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let signature = hex_bytes(text_of(SIGNATURE)).unwrap_or_default();
    let text = canonical(head, body);
    // Every secret is tried, so that the time reveals nothing.
    let good = secrets.iter().fold(false, |good, secret| good | is_signed_by(secret, &text, &signature));
    if !good {
        return Err("the signature does not match; check that both sides have the same secret");
    }
    let date: Option<u64> = Some(text_of(DATE)).filter(|text| text.len() <= 12).and_then(|text| text.parse().ok());
    if date.is_none_or(|date| date.abs_diff(now_s) > skew_s) {
        return Err("the date is too far from this node's; check both clocks");
    }
    let nonce = text_of(NONCE);
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if !(16..=64).contains(&nonce.len()) || !nonce.bytes().all(is_letter) {
        return Err("the nonce is not 16 to 64 letters and digits");
    }
    Ok(nonce.to_owned())
}

fn is_signed_by(secret: &SecretKey, text: &str, signature: &[u8]) -> bool {
    Hmac::<Sha256>::new_from_slice(secret.reveal().as_bytes()).is_ok_and(|mut mac| {
        mac.update(text.as_bytes());
        mac.verify_slice(signature).is_ok()
    })
}

fn canonical(head: &Parts, body: &[u8]) -> String {
    let mut signed: Vec<(&str, &str)> = head
        .headers
        .iter()
        .filter(|(name, _)| name.as_str().starts_with(PREFIX) && *name != SIGNATURE)
        .map(|(name, value)| (name.as_str(), value.to_str().unwrap_or_default().trim()))
        .collect();
    signed.sort_unstable();
    let digest = hex(&Sha256::digest(body));
    let query = head.uri.query().unwrap_or_default();
    let mut lines =
        vec![TO_NIGH.to_owned(), head.method.as_str().to_owned(), head.uri.path().to_owned(), query.to_owned(), digest];
    lines.extend(signed.iter().map(|(name, value)| format!("{name}:{value}")));
    lines.join("\n")
}

fn hex_bytes(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| Some((digit(*pair.first()?)? * 16 + digit(*pair.get(1)?)?) as u8)).collect()
}

/// The used nonces whose dates may still be accepted.
#[derive(Debug, Default)]
pub(super) struct Nonces {
    used: HashSet<String>,
    order: VecDeque<(u64, String)>,
}

impl Nonces {
    /// True if `nonce` is used for the first time. A nonce is forgotten when its date is no longer accepted.
    pub(super) fn use_once(&mut self, nonce: String, now_s: u64, skew_s: u64) -> bool {
        while let Some((used_s, oldest)) = self.order.front()
            && used_s.saturating_add(2 * skew_s) < now_s
        {
            self.used.remove(oldest);
            self.order.pop_front();
        }
        if self.used.len() >= NONCES_MAX || !self.used.insert(nonce.clone()) {
            return false;
        }
        self.order.push_back((now_s, nonce));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "0123456789abcdef0123456789abcdef";
    const NOW: u64 = 1_700_000_000;

    fn head(date: u64, nonce: &str) -> Parts {
        let request = http::Request::post("/outside/v1/push").header(DATE, date).header(NONCE, nonce);
        request.body(()).unwrap().into_parts().0
    }

    fn signed(mut head: Parts, secret: &str, body: &[u8]) -> Parts {
        let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
        mac.update(canonical(&head, body).as_bytes());
        head.headers.insert(SIGNATURE, hex(&mac.finalize().into_bytes()).parse().unwrap());
        head
    }

    #[test]
    fn a_signature_is_the_one_that_the_middleware_makes() {
        // The signature of `nigh_swift.signing.sign` with this secret, date, nonce and body.
        let mut head = head(NOW, "abcdefghijklmnopqrstuvwx");
        let made = "464e810635c4bc3016a8354626a0473a19009cab4f1b4e0398f74d14acd2190e";
        head.headers.insert(SIGNATURE, made.parse().unwrap());
        let secrets = [SecretKey::new("another secret of thirty-two bytes"), SecretKey::new(SECRET)];
        assert_eq!(verify(&secrets, &head, b"{}", NOW, 60).as_deref(), Ok("abcdefghijklmnopqrstuvwx"));
    }

    #[test]
    fn another_secret_body_path_date_or_nonce_is_refused() {
        let secrets = [SecretKey::new(SECRET)];
        let good = || signed(head(NOW, "abcdefghijklmnop"), SECRET, b"{}");
        let check = |head: &Parts, body: &[u8], now| verify(&secrets, head, body, now, 60);
        assert!(check(&good(), b"{}", NOW + 60).is_ok() && check(&good(), b"{}", NOW - 60).is_ok());
        assert!(check(&good(), b"{}", NOW + 61).unwrap_err().contains("date"));
        assert!(check(&good(), b"{ }", NOW).unwrap_err().contains("signature"));
        let mut elsewhere = good();
        elsewhere.uri = "/outside/v1/invalidate".parse().unwrap();
        assert!(check(&elsewhere, b"{}", NOW).is_err());
        let mut more = good();
        more.headers.insert("x-nigh-op", "push".parse().unwrap());
        assert!(check(&more, b"{}", NOW).is_err());
        let mut unsigned = good();
        unsigned.headers.remove(SIGNATURE);
        assert!(check(&unsigned, b"{}", NOW).is_err());
        assert!(verify(&[], &good(), b"{}", NOW, 60).is_err());
        let other = signed(head(NOW, "abcdefghijklmnop"), "a secret that nobody shares with Swift", b"{}");
        assert!(check(&other, b"{}", NOW).is_err());
        for nonce in ["short", "with a blank in it", &"n".repeat(65)] {
            assert!(check(&signed(head(NOW, nonce), SECRET, b"{}"), b"{}", NOW).unwrap_err().contains("nonce"));
        }
    }

    #[test]
    fn a_nonce_is_used_once_while_its_date_could_hold() {
        let mut nonces = Nonces::default();
        assert!(nonces.use_once("a".to_owned(), NOW, 60));
        assert!(!nonces.use_once("a".to_owned(), NOW + 120, 60));
        assert!(nonces.use_once("a".to_owned(), NOW + 121, 60));
        for count in 0..NONCES_MAX {
            nonces.use_once(count.to_string(), NOW + 121, 60);
        }
        assert!(!nonces.use_once("one more".to_owned(), NOW + 121, 60));
        assert!(nonces.use_once("one more".to_owned(), NOW + 300, 60));
    }
}
