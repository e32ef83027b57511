//! MD5 by AWS-LC's assembler: a quarter faster than Rust's, and all that a large put waits for.
//!
//! It is what S3's entity tags are made of, and nothing else is: it protects nobody. The library is the one that TLS
//! uses; its safe wrapper leaves MD5 out.

use std::alloc::{Layout, handle_alloc_error};
use std::ptr::{NonNull, null_mut};

use aws_lc_sys::{
    EVP_DigestFinal, EVP_DigestInit_ex, EVP_DigestUpdate, EVP_MD_CTX, EVP_MD_CTX_free, EVP_MD_CTX_new, EVP_md5,
};

/// Bytes of a digest.
const BYTES: usize = 16;

/// A digest in the making.
pub struct Md5(NonNull<EVP_MD_CTX>);

// SAFETY: the context is this value's own, and the library binds it to no thread.
unsafe impl Send for Md5 {}

impl Default for Md5 {
    fn default() -> Self {
        Self::new()
    }
}

impl Md5 {
    /// Of no bytes.
    pub fn new() -> Self {
        // SAFETY: it takes nothing, and gives a new context or null.
        let context = NonNull::new(unsafe { EVP_MD_CTX_new() });
        let Some(context) = context else { no_memory() };
        let this = Self(context);
        // SAFETY: the context is new and `this` frees it; a null engine is the library's own.
        if unsafe { EVP_DigestInit_ex(this.0.as_ptr(), EVP_md5(), null_mut()) } != 1 {
            no_memory();
        }
        this
    }

    /// Takes the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        // SAFETY: the context was begun, and the bytes are as many as said, borrowed and only read. It cannot fail.
        unsafe { EVP_DigestUpdate(self.0.as_ptr(), bytes.as_ptr().cast(), bytes.len()) };
    }

    /// The digest of all of them.
    pub fn finish(self) -> [u8; BYTES] {
        let mut digest = [0; BYTES];
        // SAFETY: the context was begun, and the digest has the 16 bytes that are written; a null length is not told.
        // It cannot fail.
        unsafe { EVP_DigestFinal(self.0.as_ptr(), digest.as_mut_ptr(), null_mut()) };
        digest
    }
}

impl Drop for Md5 {
    fn drop(&mut self) {
        // SAFETY: the context came from `EVP_MD_CTX_new` and is freed once.
        unsafe { EVP_MD_CTX_free(self.0.as_ptr()) };
    }
}

/// All that beginning a digest can fail of.
fn no_memory() -> ! {
    handle_alloc_error(Layout::new::<EVP_MD_CTX>())
}

#[cfg(test)]
mod tests {
    use md5::Digest as _;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_the_md5_of_another_implementation_however_the_bytes_are_cut(
            bytes in prop::collection::vec(any::<u8>(), 0..300),
            cuts in prop::collection::vec(0usize..300, 0..5),
        ) {
            let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.sort_unstable();
            cuts.push(bytes.len());
            let (mut digest, mut from) = (Md5::new(), 0);
            for cut in cuts {
                digest.update(&bytes[from..cut]);
                from = cut;
            }
            prop_assert_eq!(digest.finish(), <[u8; BYTES]>::from(md5::Md5::digest(&bytes)));
        }
    }
}
