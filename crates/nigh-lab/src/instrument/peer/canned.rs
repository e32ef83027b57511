//! The canned C server: what HTTP costs when nothing is done for it.

use std::path::Path;
use std::process::Command;

use super::{PeerError, PeerProcess};

const SOURCE: &str = include_str!("../../../peers/canned.c");
const PEER: &str = "canned C server";

/// Compiles the server into `folder` and starts it. It answers `GET /<bytes>`.
pub(crate) fn start(folder: &Path) -> Result<PeerProcess, PeerError> {
    let failed = |reason: String| PeerError::Failed { peer: PEER, reason };
    let (source, program) = (folder.join("canned.c"), folder.join("canned"));
    std::fs::write(&source, SOURCE).map_err(|error| failed(error.to_string()))?;
    let compiled = Command::new("cc").args(["-O2", "-pthread", "-o"]).arg(&program).arg(&source).output();
    let output = compiled.map_err(|error| PeerError::NotInstalled {
        peer: PEER,
        missing: format!("the C compiler `cc` ({error})"),
        hint: "install gcc".to_owned(),
    })?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    PeerProcess::start(PEER, &mut Command::new(program))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instrument::http_load::Connection;

    #[test]
    fn it_answers_as_many_bytes_as_the_path_says() {
        let folder = tempfile::tempdir().unwrap();
        let peer = start(folder.path()).unwrap();
        let mut connection = Connection::open(peer.address()).unwrap();
        for bytes in [0, 1, 1024, 10 << 20] {
            let request = format!("GET /{bytes} HTTP/1.1\r\nHost: x\r\n\r\n");
            assert_eq!(connection.exchange(request.as_bytes()).unwrap(), bytes);
        }
    }
}
