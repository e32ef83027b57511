//! The bytes of all invocations of a cell, signed beforehand: signing each would cost the callers more than sending it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::Method;
use parking_lot::RwLock;

use super::nodes::function_name;
use crate::LabError;
use crate::instrument::platform::invocations_path;
use crate::instrument::sign::Signer;

const PAYLOAD: &[u8] = b"{\"ping\":1}";
/// A request is sent again and again for so long before it is signed anew; a door takes signatures of 15 minutes.
const SIGNED_FOR: Duration = Duration::from_secs(60);

type SignedRequests = Vec<Vec<Arc<[u8]>>>;

pub(super) struct Requests<'a> {
    signer: &'a Signer,
    doors: &'a [SocketAddr],
    functions: u32,
    signed: RwLock<(SignedRequests, Instant)>,
}

impl<'a> Requests<'a> {
    pub(super) async fn sign(signer: &'a Signer, doors: &'a [SocketAddr], functions: u32) -> Result<Self, LabError> {
        let signed = RwLock::new((sign(signer, doors, functions).await?, Instant::now()));
        Ok(Self { signer, doors, functions, signed })
    }

    pub(super) fn of(&self, door: usize, function: u32) -> Arc<[u8]> {
        Arc::clone(&self.signed.read().0[door][function as usize])
    }

    pub(super) async fn renew(&self) -> Result<(), LabError> {
        let is_due = self.signed.read().1.elapsed() > SIGNED_FOR;
        if is_due {
            let signed = sign(self.signer, self.doors, self.functions).await?;
            *self.signed.write() = (signed, Instant::now());
        }
        Ok(())
    }
}

async fn sign(signer: &Signer, doors: &[SocketAddr], functions: u32) -> Result<SignedRequests, LabError> {
    let mut signed = Vec::new();
    for &door in doors {
        let mut of_door = Vec::new();
        for function in 0..functions {
            let path = invocations_path(&function_name(function));
            let headers = [("content-type", "application/json")];
            of_door.push(Arc::from(signer.signed(Method::POST, door, &path, &headers, PAYLOAD).await?));
        }
        signed.push(of_door);
    }
    Ok(signed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_request_names_its_function_and_is_signed_anew_when_it_is_time() {
        let signer = Signer::new("lambda", "local", "key", "secret");
        let doors = ["127.0.0.1:1".parse().unwrap(), "127.0.0.1:2".parse().unwrap()];
        let requests = Requests::sign(&signer, &doors, 3).await.unwrap();
        let text = String::from_utf8(requests.of(1, 2).to_vec()).unwrap();
        assert!(text.starts_with("POST /2015-03-31/functions/contender-2/invocations HTTP/1.1\r\n"), "{text}");
        assert!(text.contains("host: 127.0.0.1:2\r\n") && text.contains("authorization: "), "{text}");
        let before = requests.of(0, 0);
        requests.renew().await.unwrap();
        assert!(Arc::ptr_eq(&before, &requests.of(0, 0)));
        let long_ago = Instant::now().checked_sub(SIGNED_FOR * 2);
        requests.signed.write().1 = long_ago.unwrap();
        requests.renew().await.unwrap();
        assert!(!Arc::ptr_eq(&before, &requests.of(0, 0)));
    }
}
