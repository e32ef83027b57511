//! Identifies requests that a client repeats.
//!
//! AWS SDKs send `amz-sdk-invocation-id`, a UUID that all attempts of one call share. A request that is repeated
//! because its answer was lost is carried out only once.

use http::HeaderMap;
use nigh_engine::RequestId;

const INVOCATION_ID: &str = "amz-sdk-invocation-id";
/// Number of hexadecimal digits of a UUID.
const DIGITS: usize = 32;

/// The id that all attempts of this request share. None if the client sent no valid id.
pub(crate) fn request(headers: &HeaderMap) -> Option<RequestId> {
    let text = headers.get(INVOCATION_ID)?.to_str().ok()?;
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    let is_uuid = digits.len() == DIGITS && digits.bytes().all(|b| b.is_ascii_hexdigit());
    is_uuid.then(|| u128::from_str_radix(&digits, 16).ok().map(RequestId)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(value: &str) -> Option<RequestId> {
        let mut headers = HeaderMap::new();
        headers.insert(INVOCATION_ID, value.parse().ok()?);
        request(&headers)
    }

    #[test]
    fn the_attempts_of_one_call_have_one_name_and_anything_else_has_none() {
        let name = of("3f1b9c9e-51a5-4a0e-9d66-2f1f6f3d2a10");
        assert_eq!(name, Some(RequestId(0x3f1b_9c9e_51a5_4a0e_9d66_2f1f_6f3d_2a10)));
        assert_eq!(request(&HeaderMap::new()), None);
        for other in ["", "1", "+f1b9c9e-51a5-4a0e-9d66-2f1f6f3d2a10", "3f1b9c9e51a54a0e9d662f1f6f3d2a10ff"] {
            assert_eq!(of(other), None, "{other}");
        }
    }
}
