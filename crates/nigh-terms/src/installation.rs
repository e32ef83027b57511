//! Where an installed `nigh` has the programs that belong to it.
//!
//! Paths only: the caller looks which of them exists. All packages use one layout below a prefix (Filesystem Hierarchy
//! Standard, 4.7): `bin/nigh`, and `lib/nigh/` for the programs that it starts.

use std::iter;
use std::path::{Path, PathBuf};

/// The folder below the prefix.
const LIBRARY: &str = "lib/nigh";

/// Where the program `name` may lie that belongs to `program`, the likeliest place first: beside it, in the library
/// folder of its prefix, or in the parent folder (where Cargo puts the programs that its tests start).
pub fn companion_programs(program: &Path, name: &str) -> impl Iterator<Item = PathBuf> {
    let above = program.parent().and_then(Path::parent);
    let library = above.map(|prefix| prefix.join(LIBRARY).join(name));
    let parent = above.map(|folder| folder.join(name));
    iter::once(program.with_file_name(name)).chain(library).chain(parent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_companion_is_looked_for_beside_the_program_in_its_library_and_in_the_parent() {
        let places: Vec<PathBuf> = companion_programs(Path::new("/usr/bin/nigh"), "nigh-sandbox").collect();
        assert_eq!(
            places,
            ["/usr/bin/nigh-sandbox", "/usr/lib/nigh/nigh-sandbox", "/usr/nigh-sandbox"].map(PathBuf::from)
        );
        assert_eq!(companion_programs(Path::new("nigh"), "x").collect::<Vec<_>>(), [PathBuf::from("x")]);
    }
}
