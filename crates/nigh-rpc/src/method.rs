//! A method: the number and the limits of a kind of call. Both sides have the same.

/// A method: its number, and the limits of its calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Method {
    /// Its number on the wire.
    pub number: u16,
    /// Its name, for meters and messages.
    pub name: &'static str,
    /// The longest head of a call, bytes; never more than 1 MiB.
    pub head_max: u32,
    /// The longest body of a call, bytes.
    pub body_max: u64,
}
