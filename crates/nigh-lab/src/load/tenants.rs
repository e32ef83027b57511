//! Tenants, each with one function and its own inputs, as in FaaSLoad (OFC, section 7.2.2). Pure.
//!
//! Tenants take the functions in turn: with twice as many tenants as functions, two have each.

use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use serde::{Deserialize, Serialize};

/// A function that tenants may have, and the inputs that it takes.
#[derive(Clone, Debug)]
pub(crate) struct OfferedFunction {
    pub(crate) function: String,
    /// Paths below the inputs' folder, small to large.
    pub(crate) inputs: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tenant {
    /// The name of its deployed function: `load-03-wand_edge`.
    pub(crate) name: String,
    pub(crate) function: String,
    /// Paths below the inputs' folder.
    pub(crate) inputs: Vec<String>,
}

impl Tenant {
    /// The key of its copy of an input.
    pub(crate) fn input_key(&self, input: usize) -> String {
        format!("in/{}/{}", self.name, self.inputs.get(input).map_or("", String::as_str))
    }

    /// The key of that input's output, without its suffix.
    pub(crate) fn output_key(&self, side: &str, input: usize) -> String {
        format!("out/{side}/{}/{}", self.name, self.inputs.get(input).map_or("", String::as_str))
    }
}

/// `count` tenants by `seed`, each with `inputs_each` inputs, or with all that its function has.
pub(crate) fn tenants(offered: &[OfferedFunction], count: usize, inputs_each: usize, seed: u64) -> Vec<Tenant> {
    let functions = offered.iter().filter(|one| !one.inputs.is_empty()).cycle().take(count);
    functions
        .enumerate()
        .map(|(number, one)| {
            // A seed for each tenant: one more tenant changes nothing for the others.
            let mut random = StdRng::seed_from_u64(seed.wrapping_add(number as u64));
            let mut inputs = one.inputs.clone();
            inputs.shuffle(&mut random);
            inputs.truncate(inputs_each.max(1));
            let name = format!("load-{:02}-{}", number + 1, one.function);
            Tenant { name, function: one.function.clone(), inputs }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offered() -> Vec<OfferedFunction> {
        let inputs = |count: usize| (0..count).map(|at| format!("images/{at}.jpg")).collect();
        let of = |function: &str, count| OfferedFunction { function: function.to_owned(), inputs: inputs(count) };
        vec![of("edge", 8), of("nothing", 0), of("blur", 2)]
    }

    #[test]
    fn tenants_take_the_functions_that_have_inputs_in_turn() {
        let all = tenants(&offered(), 3, 4, 1);
        let names: Vec<&str> = all.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["load-01-edge", "load-02-blur", "load-03-edge"]);
        assert_eq!(all.iter().map(|one| one.inputs.len()).collect::<Vec<_>>(), [4, 2, 4]);
        assert_eq!(all[1].input_key(7), "in/load-02-blur/");
        assert!(all[0].output_key("nigh", 0).starts_with("out/nigh/load-01-edge/images/"));
    }

    #[test]
    fn the_same_seed_gives_the_same_tenants_however_many_more_there_are() {
        let few = tenants(&offered(), 2, 4, 9);
        assert_eq!(few, tenants(&offered(), 5, 4, 9)[..2]);
        assert_ne!(few, tenants(&offered(), 2, 4, 10));
    }
}
