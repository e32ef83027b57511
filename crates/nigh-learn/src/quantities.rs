//! Quantities: the numbers of a row and products of them that memory is known to follow.
//!
//! A function's memory is mostly its decoded input or output: pixels times channels, frames times channels, rows times
//! fields. So products of numbers with known names (`in_width`, `in_height`, ...) are quantities, too. An argument with
//! the name of a dimension of the input (`arg_width` beside `in_width`) counts as that dimension of the output, whose
//! size is in proportion. Numbers with unknown names are used as they are.

use serde::{Deserialize, Serialize};

use crate::feature::FEATURES_MAX;
use crate::schema::{ColumnKind, EncodedRow, Schema};

/// Quantities of a function at most: its numbers first, then the products.
pub(crate) const QUANTITIES_MAX: usize = 40;
/// Columns in one product at most.
const FACTORS_MAX: usize = 4;

/// A product of powers of columns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Quantity {
    /// Columns with their exponents.
    factors: Vec<(u8, i8)>,
    /// It is an amount that memory may be proportional to, by itself and by each word.
    pub(crate) amount: bool,
}

impl Quantity {
    fn of(&self, features: &EncodedRow) -> f64 {
        let mut product = 1.0;
        for &(column, exponent) in &self.factors {
            let value = features.values[usize::from(column)];
            match exponent {
                1 => product *= value,
                2 => product *= value * value,
                // A size of nothing has no proportions.
                _ if value == 0.0 => return 0.0,
                -1 => product /= value,
                _ => product /= value * value,
            }
        }
        // Nor has a proportion to nearly nothing a meaning.
        if product.is_finite() { product } else { 0.0 }
    }

    /// The one column that it is.
    pub(crate) fn column(&self) -> Option<usize> {
        match self.factors.as_slice() {
            [(column, 1)] => Some(usize::from(*column)),
            _ => None,
        }
    }
}

/// The quantities of a function.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Quantities(Vec<Quantity>);

impl Quantities {
    /// Those that the names of the columns suggest.
    pub(crate) fn of_schema(schema: &Schema) -> Self {
        let number = |name: &str| {
            let at = schema.position(name)?;
            matches!(schema.columns[at].kind, ColumnKind::Number { .. }).then_some(at as u8)
        };
        let mut all = Self::default();
        let decoded = decoded_sizes(&number);
        // If it is unknown how the input decodes, each of its numbers may be an amount.
        let all_are_amounts = decoded.is_empty();
        for (at, column) in schema.columns.iter().enumerate() {
            if matches!(column.kind, ColumnKind::Number { .. }) {
                let name = column.name.as_str();
                let amount = name == "input_size" || (all_are_amounts && name.starts_with("in_"));
                all.push(vec![(at as u8, 1)], amount);
            }
        }
        for factors in &decoded {
            all.push(factors.clone(), true);
        }
        for factors in output_sizes(&number, &decoded) {
            all.push(factors, true);
        }
        all
    }

    fn push(&mut self, factors: Vec<(u8, i8)>, amount: bool) {
        let known = self.0.iter().any(|quantity| quantity.factors == factors);
        if !known && factors.len() <= FACTORS_MAX && self.0.len() < QUANTITIES_MAX {
            self.0.push(Quantity { factors, amount });
        }
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &Quantity> {
        self.0.iter()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Writes the quantities of a row to the beginning of `into`.
    #[inline]
    pub(crate) fn of(&self, features: &EncodedRow, into: &mut [f64]) {
        for (quantity, value) in self.0.iter().zip(into) {
            *value = quantity.of(features);
        }
    }

    pub(crate) fn is_sound(&self, columns: usize) -> bool {
        let factor = |(column, exponent): &(u8, i8)| {
            usize::from(*column) < columns.min(FEATURES_MAX) && (-2..=2).contains(exponent) && *exponent != 0
        };
        self.0.len() <= QUANTITIES_MAX
            && self
                .0
                .iter()
                .all(|quantity| quantity.factors.len() <= FACTORS_MAX && quantity.factors.iter().all(factor))
    }
}

type Factors = Vec<(u8, i8)>;

/// What the input is when it is decoded, by the names of its numbers.
fn decoded_sizes(number: &impl Fn(&str) -> Option<u8>) -> Vec<Factors> {
    let mut sizes: Vec<Factors> = Vec::new();
    let product = |names: &[&str]| names.iter().map(|name| Some((number(name)?, 1))).collect::<Option<Factors>>();
    let picture = ["in_width", "in_height"];
    let known: &[&[&str]] = if number(picture[0]).is_some() && number(picture[1]).is_some() {
        &[
            &["in_width", "in_height"],
            &["in_width", "in_height", "in_channels"],
            &["in_width", "in_height", "in_frames"],
        ]
    } else if number("in_frames").is_some() {
        &[&["in_frames"], &["in_frames", "in_channels"]]
    } else {
        &[
            &["in_duration", "in_samplerate"],
            &["in_duration", "in_samplerate", "in_channels"],
            &["in_rows", "in_fields"],
            &["in_rows", "in_fields", "in_itemsize"],
        ]
    };
    sizes.extend(known.iter().filter_map(|names| product(names)));
    // Pairs of rows or of fields, as in the product of a matrix with itself.
    for (one, other) in [("in_rows", "in_fields"), ("in_fields", "in_rows")] {
        if let (Some(one), Some(_)) = (number(one), number(other)) {
            let mut square = vec![(one, 2)];
            sizes.push(square.clone());
            if let Some(item) = number("in_itemsize") {
                square.push((item, 1));
                sizes.push(square);
            }
        }
    }
    sizes
}

/// What the output is, where an argument names one of the input's dimensions.
fn output_sizes(number: &impl Fn(&str) -> Option<u8>, decoded: &[Factors]) -> Vec<Factors> {
    let mut sizes: Vec<Factors> = Vec::new();
    if let (Some(width), Some(height)) = (number("in_width"), number("in_height")) {
        match (number("arg_width"), number("arg_height")) {
            (Some(to_width), Some(to_height)) => sizes.push(vec![(to_width, 1), (to_height, 1)]),
            (Some(to), None) => sizes.push(vec![(to, 2), (height, 1), (width, -1)]),
            (None, Some(to)) => sizes.push(vec![(to, 2), (width, 1), (height, -1)]),
            (None, None) => {}
        }
        if let Some(size) = number("arg_size") {
            sizes.push(vec![(size, 2)]);
        }
    }
    for (to, from) in [("arg_samplerate", "in_samplerate"), ("arg_channels", "in_channels"), ("arg_rows", "in_rows")] {
        if let (Some(to), Some(from)) = (number(to), number(from)) {
            let scaled = decoded.iter().take(2).map(|size| [size.as_slice(), &[(to, 1), (from, -1)]].concat());
            sizes.extend(scaled);
        }
    }
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feature::FeatureRow;

    fn quantities(numbers: &[(&str, f64)]) -> Vec<f64> {
        let mut row = FeatureRow::default();
        for (name, value) in numbers {
            row.set_number(name, *value).unwrap();
        }
        let schema = Schema::learn([&row].into_iter());
        let quantities = Quantities::of_schema(&schema);
        assert!(quantities.is_sound(schema.columns.len()));
        let mut values = [f64::NAN; QUANTITIES_MAX];
        quantities.of(&schema.encode(&row), &mut values);
        values[..quantities.len()].to_vec()
    }

    #[test]
    fn a_picture_is_its_pixels_and_its_samples_and_what_it_is_resized_to() {
        let values = quantities(&[
            ("arg_width", 50.0),
            ("in_channels", 3.0),
            ("in_height", 200.0),
            ("in_width", 100.0),
            ("input_size", 7.0),
        ]);
        assert_eq!(values, [50.0, 3.0, 200.0, 100.0, 7.0, 20_000.0, 60_000.0, 5_000.0]);
    }

    #[test]
    fn a_matrix_is_its_cells_its_bytes_and_its_squares() {
        let values = quantities(&[("in_fields", 3.0), ("in_itemsize", 8.0), ("in_rows", 5.0)]);
        assert_eq!(values, [3.0, 8.0, 5.0, 15.0, 120.0, 25.0, 200.0, 9.0, 72.0]);
    }

    #[test]
    fn proportions_of_nothing_are_nothing() {
        let values = quantities(&[("arg_width", 50.0), ("in_height", 0.0), ("in_width", 0.0)]);
        assert!(values.iter().all(|value| value.is_finite()), "{values:?}");
    }

    #[test]
    fn unknown_names_take_part_as_they_are() {
        assert_eq!(quantities(&[("arg_depth", 4.0), ("in_polygons", 9.0)]), [4.0, 9.0]);
    }
}
