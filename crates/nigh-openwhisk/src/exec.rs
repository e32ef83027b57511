//! The code of actions: stored as an archive, and shown as it was uploaded.

use std::io::{Cursor, Read as _, Write as _};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use nigh_functions::action::names::{EntityPath, QualifiedName};
use nigh_functions::code_archive::Archive;
use nigh_functions::function::Runtime;
use nigh_functions::runtime_catalog::RuntimeCatalog;
use nigh_terms::Namespace;
use serde::Deserialize;
use zip::write::SimpleFileOptions;

use super::error::WhiskError;
use super::kinds;
use super::limits::{CODE_BYTES_MAX, SEQUENCE_MAX};

/// The first bytes of a zip archive.
const ZIP_MAGIC: &[u8] = b"PK";

/// `exec` of a request.
#[derive(Debug, Default, Deserialize)]
pub(super) struct ExecShape {
    kind: Option<String>,
    code: Option<String>,
    main: Option<String>,
    image: Option<String>,
    components: Option<Vec<String>>,
}

/// The executable of an action.
#[derive(Debug)]
pub(super) enum Exec {
    Code(Code),
    Sequence(Vec<EntityPath>),
}

/// The code of an action.
#[derive(Debug)]
pub(super) struct Code {
    pub(super) kind: String,
    pub(super) runtime: Runtime,
    pub(super) main: Option<String>,
    pub(super) archive: Bytes,
    /// It was uploaded as text.
    pub(super) is_text: bool,
}

impl ExecShape {
    /// Parses it for an action of `namespace`. May take as long as unpacking does.
    pub(super) fn read(self, namespace: &Namespace, catalog: &RuntimeCatalog) -> Result<Exec, WhiskError> {
        let kind = self.kind.ok_or_else(|| WhiskError::bad_request("exec has no kind"))?;
        if kind == kinds::SEQUENCE {
            return components(&self.components.unwrap_or_default(), namespace).map(Exec::Sequence);
        }
        let runtime = kinds::runtime(&kind, self.image.as_deref(), catalog)?;
        let code = self.code.filter(|code| !code.is_empty());
        let code = code
            .ok_or_else(|| WhiskError::bad_request("'code' must be a string or attachment object defined in 'exec'"))?;
        let (archive, is_text) = archive(&runtime, code)?;
        let kind = kinds::concrete(kind, &runtime);
        Ok(Exec::Code(Code { kind, runtime, main: self.main.filter(|main| !main.is_empty()), archive, is_text }))
    }
}

fn components(names: &[String], namespace: &Namespace) -> Result<Vec<EntityPath>, WhiskError> {
    if names.is_empty() {
        return Err(WhiskError::bad_request("No component specified for the sequence."));
    }
    if names.len() > SEQUENCE_MAX {
        return Err(WhiskError::bad_request("Too many actions in the sequence."));
    }
    names.iter().map(|name| own(name, namespace)).collect()
}

/// The place of an entity, which must be in `namespace`.
pub(super) fn own(name: &str, namespace: &Namespace) -> Result<EntityPath, WhiskError> {
    let name: QualifiedName = name.parse()?;
    if name.is_in(namespace) { Ok(name.path) } else { Err(WhiskError::forbidden()) }
}

/// The archive of `code`, and whether `code` was text.
fn archive(runtime: &Runtime, code: String) -> Result<(Bytes, bool), WhiskError> {
    // The text of a program is never the base64 of an archive.
    let decoded = STANDARD.decode(code.trim().as_bytes()).ok().filter(|decoded| !decoded.is_empty());
    let (bytes, is_text) = match decoded {
        Some(zip) if zip.starts_with(ZIP_MAGIC) => {
            return if zip.len() > CODE_BYTES_MAX { Err(too_large(zip.len())) } else { Ok((zip.into(), false)) };
        }
        // A single program.
        Some(program) if *runtime == Runtime::Native => (program, false),
        _ => (code.into_bytes(), true),
    };
    if bytes.len() > CODE_BYTES_MAX {
        return Err(too_large(bytes.len()));
    }
    let zipped = zipped(kinds::file(runtime), &bytes);
    Ok((zipped.map_err(|error| WhiskError::internal(format!("the code cannot be packed: {error}")))?, is_text))
}

fn too_large(is: usize) -> WhiskError {
    WhiskError::larger_than("Code", is, CODE_BYTES_MAX)
}

/// An archive with one program; equal bytes give equal archives.
fn zipped(name: &str, bytes: &[u8]) -> zip::result::ZipResult<Bytes> {
    let options = SimpleFileOptions::default()
        .compression_method(zip::CompressionMethod::Stored)
        .last_modified_time(zip::DateTime::default())
        .unix_permissions(0o755);
    let mut zip = zip::ZipWriter::new(Cursor::new(Vec::with_capacity(bytes.len() + 256)));
    zip.start_file(name, options)?;
    zip.write_all(bytes)?;
    Ok(zip.finish()?.into_inner().into())
}

/// The code in `archive` for `exec.code`: text or base64. May wait for the disk.
pub(super) fn code(archive: &Archive, runtime: &Runtime, is_text: bool) -> std::io::Result<String> {
    if is_text {
        let mut zip = zip::ZipArchive::new(archive.reader()).map_err(std::io::Error::other)?;
        let mut text = String::new();
        zip.by_name(kinds::file(runtime)).map_err(std::io::Error::other)?.read_to_string(&mut text)?;
        return Ok(text);
    }
    let mut bytes = Vec::with_capacity(archive.size().bytes() as usize);
    archive.reader().read_to_end(&mut bytes)?;
    Ok(STANDARD.encode(bytes))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(exec: Value) -> Result<Exec, WhiskError> {
        let catalog = RuntimeCatalog::new([11]).with_nodes([20]).with_native();
        let shape: ExecShape = serde_json::from_value(exec).unwrap();
        shape.read(&Namespace::new("tenant").unwrap(), &catalog)
    }

    fn code_of(exec: Value) -> Code {
        match read(exec) {
            Ok(Exec::Code(code)) => code,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn code_goes_back_as_it_came() {
        let text = "def main(args):\n    return {'ü': 1}\n";
        let made = code_of(json!({ "kind": "python:3", "code": text }));
        let archive: Archive = made.archive.clone().into();
        assert!(made.is_text);
        assert_eq!(code(&archive, &made.runtime, true).unwrap(), text);
        assert_eq!(code_of(json!({ "kind": "python:3", "code": text })).archive, made.archive, "the same version");

        let zip = STANDARD.encode(zipped("__main__.py", b"x = 1").unwrap());
        let made = code_of(json!({ "kind": "python:3", "code": zip, "main": "run" }));
        assert_eq!((made.is_text, made.main.as_deref()), (false, Some("run")));
        assert_eq!(code(&made.archive.into(), &made.runtime, false).unwrap(), zip);

        for (kind, concrete) in [("python:default", "python:3"), ("nodejs:default", "nodejs:20"), ("native", "native")]
        {
            assert_eq!(code_of(json!({ "kind": kind, "code": text })).kind, concrete);
        }
        let program = STANDARD.encode(b"\x7fELF and more");
        let made = code_of(json!({ "kind": "blackbox", "image": "openwhisk/dockerskeleton", "code": program }));
        let mut zip = zip::ZipArchive::new(Cursor::new(made.archive)).unwrap();
        assert_eq!(zip.by_name("exec").unwrap().unix_mode().unwrap() & 0o777, 0o755);
    }

    #[test]
    fn what_is_no_code_is_refused() {
        for bad in [
            json!({}),
            json!({ "kind": "python:3" }),
            json!({ "kind": "python:3", "code": "" }),
            json!({ "kind": "cobol:1", "code": "x" }),
            json!({ "kind": "sequence" }),
            json!({ "kind": "sequence", "components": ["a"] }),
            json!({ "kind": "sequence", "components": vec!["/_/a"; 51] }),
        ] {
            assert_eq!(read(bad.clone()).unwrap_err().status.as_u16(), 400, "{bad}");
        }
        assert_eq!(read(json!({ "kind": "sequence", "components": ["/other/a"] })).unwrap_err().status.as_u16(), 403);
        let Ok(Exec::Sequence(parts)) = read(json!({ "kind": "sequence", "components": ["/_/a", "tenant/p/b"] }))
        else {
            panic!("a sequence")
        };
        assert_eq!(parts.iter().map(ToString::to_string).collect::<Vec<_>>(), ["a", "p/b"]);
    }
}
