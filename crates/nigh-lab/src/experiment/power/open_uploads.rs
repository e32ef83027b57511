//! Multipart uploads that are open while the power is cut: parts that were acknowledged must be there after it, and make
//! the object when the upload is completed then.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use http::Method;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::LabError;
use crate::experiment::client_calls::{CallOutcome, Caller, Door, element};
use crate::experiment::judged_clients::body::{CONTENT_HEADER, Content, WRITE_HEADER, write_name};
use crate::experiment::judged_clients::history::{ReadFinding, WriteId};
use crate::experiment::judged_clients::{CLIENTS, get};
use crate::instrument::http_load::header;

/// Not that of the clients, whose listings are compared.
pub(super) const BUCKET: &str = "uploads";
/// S3's smallest part but the last.
const PART_MIN: usize = 5 << 20;
/// Uploads that are open at one cut.
const OPEN_MAX: usize = 24;
const PAUSE: Duration = Duration::from_millis(10);
/// How long a completion may be refused after a start.
const COMPLETED_WITHIN: Duration = Duration::from_secs(60);

struct OpenUpload {
    id: String,
    path: String,
    write: WriteId,
    content: Content,
    /// Number and entity tag of each part that was acknowledged.
    parts: Vec<(usize, String)>,
    /// All of its parts were.
    whole: bool,
}

/// One client's uploads, over all lives of the node.
pub(super) struct OpenUploads {
    draw: StdRng,
    sequence: u64,
    open: Vec<OpenUpload>,
    /// Parts that were acknowledged before a cut.
    pub(super) parts: u64,
    /// Uploads that lack some of them.
    pub(super) lost: Vec<String>,
}

impl OpenUploads {
    pub(super) fn new(seed: u64) -> Self {
        let draw = StdRng::seed_from_u64(seed ^ 0x75);
        Self { draw, sequence: 0, open: Vec::new(), parts: 0, lost: Vec::new() }
    }

    /// Begins uploads and sends their parts until `stop`.
    pub(super) fn begin_some(&mut self, door: &Door, stop: &AtomicBool) -> Result<(), LabError> {
        let mut caller = Caller::new(door);
        while !stop.load(Ordering::Relaxed) {
            if self.open.len() < OPEN_MAX {
                self.begin(&mut caller, stop)?;
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    fn begin(&mut self, caller: &mut Caller<'_>, stop: &AtomicBool) -> Result<(), LabError> {
        self.sequence += 1;
        let tail = self.draw.random_range(1..200_000);
        let lengths = if self.draw.random_range(0..6) == 0 { vec![PART_MIN, tail] } else { vec![tail] };
        let write = WriteId { client: CLIENTS, sequence: self.sequence };
        let (key, bytes) = (format!("open/{}", self.sequence), lengths.iter().sum());
        let content = Content { key: key.clone(), client: CLIENTS, sequence: self.sequence, bytes };
        let path = format!("/{BUCKET}/{key}");
        let names = [(WRITE_HEADER, write_name(write)), (CONTENT_HEADER, content.name())];
        let made = caller.call(&Method::POST, &format!("{path}?uploads="), &names, b"")?;
        let CallOutcome::Done { body, .. } = made else { return Ok(()) };
        let text = String::from_utf8_lossy(&body).into_owned();
        let Some(id) = element(&text, "UploadId").map(str::to_owned) else { return Ok(()) };
        let (body, mut from, mut parts) = (content.body(), 0, Vec::new());
        for (n, length) in lengths.iter().enumerate() {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let target = format!("{path}?partNumber={}&uploadId={id}", n + 1);
            match caller.call(&Method::PUT, &target, &[], &body[from..from + length])? {
                CallOutcome::Done { head, .. } => {
                    parts.push((n + 1, header(&head, "etag").unwrap_or_default().to_owned()));
                }
                _ => break,
            }
            from += length;
        }
        let whole = parts.len() == lengths.len();
        self.parts += parts.len() as u64;
        self.open.push(OpenUpload { id, path, write, content, parts, whole });
        Ok(())
    }

    /// Completes what was whole before the cut and reads it; of the others, only the parts are looked for.
    pub(super) fn complete_all(&mut self, door: &Door) -> Result<(), LabError> {
        let mut caller = Caller::new(door);
        for upload in std::mem::take(&mut self.open) {
            let found = if upload.whole { complete(&mut caller, &upload)? } else { has_parts(&mut caller, &upload)? };
            if let Err(why) = found {
                self.lost.push(format!("Lost: {} with parts {:?}: {why}", upload.path, upload.parts));
            }
            // What is left is read by nobody.
            let rest = if upload.whole { upload.path } else { format!("{}?uploadId={}", upload.path, upload.id) };
            caller.call(&Method::DELETE, &rest, &[], b"")?;
        }
        Ok(())
    }
}

fn complete(caller: &mut Caller<'_>, upload: &OpenUpload) -> Result<Result<(), String>, LabError> {
    let part =
        |(number, tag): &(usize, String)| format!("<Part><PartNumber>{number}</PartNumber><ETag>{tag}</ETag></Part>");
    let parts: String = upload.parts.iter().map(part).collect();
    let document = format!("<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>");
    let target = format!("{}?uploadId={}", upload.path, upload.id);
    let done = answered(caller, &Method::POST, &target, document.as_bytes())?;
    if let Err(why) = done {
        return Ok(Err(why));
    }
    let expected = ReadFinding::Whole { id: upload.write, content: upload.content.clone() };
    Ok(match get(caller, &upload.path)? {
        Ok(seen) if seen == expected => Ok(()),
        Ok(seen) => Err(format!("it is {seen:?}")),
        Err(why) => Err(why),
    })
}

fn has_parts(caller: &mut Caller<'_>, upload: &OpenUpload) -> Result<Result<(), String>, LabError> {
    let target = format!("{}?uploadId={}", upload.path, upload.id);
    let listed = match answered(caller, &Method::GET, &target, b"")? {
        Ok(listed) => listed,
        Err(why) => return Ok(Err(why)),
    };
    let has = |number: usize| listed.contains(&format!("<PartNumber>{number}</PartNumber>"));
    let missing = upload.parts.iter().find(|(number, _)| !has(*number));
    Ok(missing.map_or(Ok(()), |(number, _)| Err(format!("part {number} is not in {listed}"))))
}

/// The body of the answer; asked again while the node is busy. What it refuses for good is the error.
fn answered(
    caller: &mut Caller<'_>,
    method: &Method,
    target: &str,
    body: &[u8],
) -> Result<Result<String, String>, LabError> {
    let begun = Instant::now();
    loop {
        let why = match caller.call(method, target, &[], body)? {
            CallOutcome::Done { body, .. } => return Ok(Ok(String::from_utf8_lossy(&body).into_owned())),
            CallOutcome::Absent => return Ok(Err("there is no such upload".to_owned())),
            CallOutcome::Refused(why) | CallOutcome::Broken(why) => why,
        };
        if why.starts_with("HTTP/1.1 4") || begun.elapsed() > COMPLETED_WITHIN {
            return Ok(Err(why));
        }
        std::thread::sleep(PAUSE);
    }
}
