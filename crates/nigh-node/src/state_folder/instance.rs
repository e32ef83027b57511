//! The name by which a node recognises its own sandboxes among those of all nodes on the machine, even after a crash.
//!
//! The name consists of a random number, drawn at the first start and stored in the state folder, and of the inode of
//! the file that has it. So two nodes on copies of one state folder have two names, and neither ends the other's
//! sandboxes; a folder that is moved keeps its name.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use nigh_terms::hex;
use sha2::{Digest, Sha256};

use super::{StateFolderError, failed, write_private};

/// The hexadecimal digits of the number in the file: 128 bits.
const NUMBER_DIGITS: usize = 32;
/// The bytes of the name, two hexadecimal digits each: 64 bits.
const NAME_BYTES: usize = 8;

/// Reads the number at `path`, or draws one and writes it there, and makes the name from it: letters and digits only.
/// The caller holds the state folder's lock.
///
/// # Errors
/// If the file has another content, or the system refuses.
pub fn name_of(path: &Path) -> Result<String, StateFolderError> {
    let number = match fs::read_to_string(path) {
        Ok(number) => number,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let number = format!("{:0NUMBER_DIGITS$x}", rand::random::<u128>());
            write_private(path, number.as_bytes())?;
            number
        }
        Err(error) => return Err(failed(path)(error)),
    };
    if number.len() != NUMBER_DIGITS || !number.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(StateFolderError::Instance { path: path.to_owned() });
    }
    let file = fs::metadata(path).map_err(failed(path))?;
    let digest = Sha256::new()
        .chain_update(number)
        .chain_update(file.dev().to_le_bytes())
        .chain_update(file.ino().to_le_bytes())
        .finalize();
    Ok(hex(&digest[..NAME_BYTES]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_is_the_same_at_every_start_and_where_the_folder_is_moved_to() {
        let parent = tempfile::tempdir().unwrap();
        let (here, there) = (parent.path().join("here"), parent.path().join("there"));
        fs::create_dir(&here).unwrap();
        let first = name_of(&here.join("instance")).unwrap();
        assert_eq!(first.len(), 2 * NAME_BYTES);
        assert!(first.bytes().all(|byte| byte.is_ascii_alphanumeric()));
        assert_eq!(name_of(&here.join("instance")).unwrap(), first);
        fs::rename(&here, &there).unwrap();
        assert_eq!(name_of(&there.join("instance")).unwrap(), first);
    }

    #[test]
    fn other_folders_and_copies_of_this_one_have_other_names() {
        let folder = tempfile::tempdir().unwrap();
        let [first, other, copy] = ["first", "other", "copy"].map(|name| folder.path().join(name));
        let name = name_of(&first).unwrap();
        assert_ne!(name_of(&other).unwrap(), name);
        fs::copy(&first, &copy).unwrap();
        assert_ne!(name_of(&copy).unwrap(), name);
    }

    #[test]
    fn a_file_that_holds_no_number_is_refused_and_left_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("instance");
        for text in ["", "0123", &"g".repeat(NUMBER_DIGITS), &"0".repeat(NUMBER_DIGITS + 1)] {
            fs::write(&path, text).unwrap();
            let error = name_of(&path).unwrap_err();
            assert!(matches!(&error, StateFolderError::Instance { .. }), "{text:?}: {error}");
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
    }
}
