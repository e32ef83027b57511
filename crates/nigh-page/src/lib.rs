//! The page that a node serves: its built assets, in the program.
//!
//! The source is in `page/` (TypeScript, Preact, uPlot). `npm run build` there makes `dist/`, which is committed, so that
//! nobody who builds Nigh needs Node.js; a test builds it again and compares. The page speaks to the admin API of the node
//! that serves it, and to nobody else.

use std::sync::LazyLock;

/// The policy that the page keeps (`Content-Security-Policy`).
pub const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
     connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

/// A file of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asset {
    /// Its bytes, compressed by gzip (RFC 1952).
    pub bytes_gzip: &'static [u8],
    /// Its type (`Content-Type`).
    pub content_type: &'static str,
    /// Names its content (`ETag`), with the quotes.
    pub etag: &'static str,
}

/// A built file and the path at which browsers find it.
struct BuiltFile {
    path: &'static str,
    bytes_gzip: &'static [u8],
    content_type: &'static str,
    etag: LazyLock<String>,
}

macro_rules! built {
    ($path:literal, $file:literal, $content_type:literal) => {
        BuiltFile {
            path: $path,
            bytes_gzip: include_bytes!(concat!("../dist/", $file, ".gz")),
            content_type: $content_type,
            etag: LazyLock::new(|| etag(include_bytes!(concat!("../dist/", $file, ".gz")))),
        }
    };
}

static FILES: [BuiltFile; 4] = [
    built!("/", "index.html", "text/html; charset=utf-8"),
    built!("/page.js", "page.js", "text/javascript; charset=utf-8"),
    built!("/page.css", "page.css", "text/css; charset=utf-8"),
    built!("/icon.svg", "icon.svg", "image/svg+xml"),
];

/// The file at `path`, which begins with a slash; none if the page has no such file.
#[must_use]
pub fn asset(path: &str) -> Option<Asset> {
    let file = FILES.iter().find(|file| file.path == path)?;
    Some(Asset { bytes_gzip: file.bytes_gzip, content_type: file.content_type, etag: &file.etag })
}

/// The paths of all files.
pub fn paths() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|file| file.path)
}

/// The checksum and the length of the content, which gzip stores in the last eight bytes.
fn etag(bytes_gzip: &[u8]) -> String {
    let trailer = bytes_gzip.last_chunk::<8>().copied().map_or(0, u64::from_be_bytes);
    format!("\"{trailer:016x}\"")
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    /// The most bytes of all files together, as they are sent.
    const WIRE_BYTES_MAX: usize = 100_000;

    fn text(path: &str) -> String {
        let mut text = String::new();
        let file = asset(path).unwrap();
        flate2::read::GzDecoder::new(file.bytes_gzip).read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn each_file_is_found_by_its_path_with_a_tag_of_its_own() {
        let tags: std::collections::BTreeSet<&str> = paths().map(|path| asset(path).unwrap().etag).collect();
        assert_eq!(tags.len(), FILES.len());
        assert!(tags.iter().all(|tag| tag.len() == 18 && tag.starts_with('"') && tag.ends_with('"')), "{tags:?}");
        for nothing in ["", "page.js", "/index.html", "/../Cargo.toml"] {
            assert_eq!(asset(nothing), None, "{nothing}");
        }
    }

    #[test]
    fn the_page_is_small() {
        let bytes: usize = FILES.iter().map(|file| file.bytes_gzip.len()).sum();
        assert!(bytes < WIRE_BYTES_MAX, "{bytes} bytes");
    }

    #[test]
    fn the_document_has_no_inline_script_or_style_and_names_no_other_host() {
        let document = text("/");
        assert!(document.contains("<script type=\"module\" src=\"/page.js\"></script>"), "{document}");
        for forbidden in ["<style", " style=", "onload", "onclick", "javascript:", "http://", "https://"] {
            assert!(!document.contains(forbidden), "{forbidden} in {document}");
        }
        // A name space of XML is a name, and nobody asks for it.
        let script = text("/page.js").replace("http://www.w3.org/", "");
        for forbidden in ["eval(", "new Function", "http://", "https://"] {
            assert!(!script.contains(forbidden), "{forbidden} in the script");
        }
        assert!(!text("/page.css").contains("url(http"));
    }
}
