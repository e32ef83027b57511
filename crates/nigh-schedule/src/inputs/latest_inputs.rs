//! The last input of each function: it stands for the next one until that is known.

use std::collections::HashMap;

use bytes::Bytes;
use nigh_functions::function::Function;
use nigh_terms::{FunctionName, Namespace};

/// The most functions whose last input is remembered; with one more, all are forgotten.
const FUNCTIONS_MAX: usize = 1024;
/// The most bytes of an input that is remembered.
const INPUT_BYTES_MAX: usize = 16 * 1024;

/// The last inputs of functions.
#[derive(Debug, Default)]
pub struct LatestInputs(HashMap<(Namespace, FunctionName), Bytes>);

impl LatestInputs {
    /// Remembers the input of an invocation of `function`.
    pub fn had(&mut self, function: &Function, input: &Bytes) {
        let name = (function.namespace.clone(), function.name.clone());
        if input.len() > INPUT_BYTES_MAX {
            self.0.remove(&name);
            return;
        }
        if self.0.len() >= FUNCTIONS_MAX && !self.0.contains_key(&name) {
            self.0.clear();
        }
        // Copied, because a slice of a request would keep the whole request in memory.
        self.0.insert(name, Bytes::copy_from_slice(input));
    }

    /// The last input of `function`, if it is remembered.
    pub fn of(&self, function: &Function) -> Option<Bytes> {
        self.0.get(&(function.namespace.clone(), function.name.clone())).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nigh_functions::test_support::function;

    #[test]
    fn the_last_input_of_a_function_is_remembered_unless_it_is_large() {
        let (mut latest, f) = (LatestInputs::default(), function("f"));
        assert_eq!(latest.of(&f), None);
        latest.had(&f, &Bytes::from_static(b"1"));
        latest.had(&f, &Bytes::from_static(b"2"));
        assert_eq!((latest.of(&f), latest.of(&function("g"))), (Some(Bytes::from_static(b"2")), None));
        latest.had(&f, &vec![b' '; INPUT_BYTES_MAX + 1].into());
        assert_eq!(latest.of(&f), None, "what came before a large one does not stand for it");
        for number in 0..=FUNCTIONS_MAX {
            latest.had(&function(&format!("f-{number}")), &Bytes::from_static(b"{}"));
        }
        assert!(latest.0.len() <= FUNCTIONS_MAX);
    }
}
