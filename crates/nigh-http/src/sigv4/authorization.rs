//! The `Authorization` header, taken apart. Pure; nothing of what it says is believed here.

use http::HeaderMap;
use http::header::AUTHORIZATION;

use super::hex::hex_digest;
use super::{ALGORITHM, SignatureError};

/// The longest `Authorization` header that is looked at.
const AUTHORIZATION_BYTES_MAX: usize = 4096;
/// The most headers that one signature covers.
const SIGNED_HEADERS_MAX: usize = 64;

/// An `Authorization` header, taken apart. Nothing of it is believed before `check_signature`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authorization<'a> {
    /// Whose secret it claims.
    pub access_key: &'a str,
    /// `yyyymmdd`.
    pub date: &'a str,
    /// Any region's name.
    pub region: &'a str,
    /// The service it was signed for.
    pub service: &'a str,
    /// The names of the headers it covers, in order.
    pub signed_headers: Vec<&'a str>,
    /// The signature.
    pub signature: [u8; 32],
}

impl<'a> Authorization<'a> {
    /// Finds and takes apart the header.
    ///
    /// # Errors
    /// `Missing` without the header, `Incomplete` if it has another form.
    pub fn of(headers: &'a HeaderMap) -> Result<Self, SignatureError> {
        let header = headers.get(AUTHORIZATION).ok_or(SignatureError::Missing)?;
        Self::parse(header.to_str().map_err(|_| SignatureError::Incomplete("the header is not ASCII"))?)
    }

    /// Takes apart the header's value.
    ///
    /// # Errors
    /// `Incomplete` if it has another form.
    pub fn parse(header: &'a str) -> Result<Self, SignatureError> {
        let incomplete = SignatureError::Incomplete;
        if header.len() > AUTHORIZATION_BYTES_MAX {
            return Err(incomplete("the Authorization header is too long"));
        }
        let rest = header.strip_prefix(ALGORITHM).ok_or(incomplete("the algorithm is not AWS4-HMAC-SHA256"))?;
        let rest = rest.strip_prefix(' ').ok_or(incomplete("nothing follows the algorithm"))?;
        let (mut credential, mut signed_headers, mut signature) = (None, None, None);
        for parameter in rest.split(',') {
            let (name, value) = parameter.trim().split_once('=').ok_or(incomplete("a parameter has no value"))?;
            let place = match name {
                "Credential" => &mut credential,
                "SignedHeaders" => &mut signed_headers,
                "Signature" => &mut signature,
                _ => return Err(incomplete("a parameter is unknown")),
            };
            if place.replace(value).is_some() {
                return Err(incomplete("a parameter is given twice"));
            }
        }
        let credential = credential.ok_or(incomplete("there is no Credential"))?;
        let mut scope = credential.rsplitn(5, '/');
        let (Some("aws4_request"), Some(service), Some(region), Some(date), Some(access_key)) =
            (scope.next(), scope.next(), scope.next(), scope.next(), scope.next())
        else {
            return Err(incomplete("the Credential is not KEY/DATE/REGION/SERVICE/aws4_request"));
        };
        let signed: Vec<&str> = signed_headers.ok_or(incomplete("there are no SignedHeaders"))?.split(';').collect();
        if signed.len() > SIGNED_HEADERS_MAX {
            return Err(incomplete("too many headers are signed"));
        }
        if !signed.is_sorted_by(|a, b| a < b) || signed.iter().any(|name| name.is_empty() || !is_lower_token(name)) {
            return Err(incomplete("SignedHeaders are not lower-case, sorted and distinct"));
        }
        let signature = signature.and_then(hex_digest).ok_or(incomplete("the Signature is not 64 hex digits"))?;
        Ok(Self { access_key, date, region, service, signed_headers: signed, signature })
    }
}

fn is_lower_token(name: &str) -> bool {
    name.bytes()
        .all(|octet| octet.is_ascii_lowercase() || octet.is_ascii_digit() || b"-_.!~*'+^`|#$%&".contains(&octet))
}
