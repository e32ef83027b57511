//! The terms that a linear model may choose from: quantities, words, and amounts that differ by word or grow with an
//! argument.

use serde::{Deserialize, Serialize};

use crate::quantities::{QUANTITIES_MAX, Quantities};
use crate::sample::Sample;
use crate::schema::{ColumnKind, EncodedRow, Schema};

/// Indicators at most.
pub(super) const INDICATORS_MAX: usize = 40;
/// Terms to choose from at most.
pub(super) const TERMS_MAX: usize = 88;
/// Rows that must have a word for it to be told apart.
const INDICATED_ROWS_MIN: usize = 4;
/// A number of so few values is also told apart value by value.
const FEW_VALUES: usize = 6;

/// True where a column has this value.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Indicator {
    column: u8,
    value: f64,
}

/// One term.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Term {
    Quantity(u8),
    Indicator(u8),
    /// An amount where an indicator is true.
    AmountIf(u8, u8),
    /// An amount times an argument.
    Product(u8, u8),
}

/// What terms and trees are made of, of one row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Values {
    pub(super) quantities: [f64; QUANTITIES_MAX],
    pub(super) indicators: [f64; INDICATORS_MAX],
}

/// The quantities and indicators of a function.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Basis {
    pub(super) quantities: Quantities,
    pub(super) indicators: Vec<Indicator>,
}

impl Basis {
    /// Learns which words and which of few numbers are told apart.
    pub(super) fn learn(schema: &Schema, samples: &[Sample]) -> Self {
        let mut indicators = Vec::new();
        for (at, column) in schema.columns.iter().enumerate() {
            let mut values: Vec<f64> = samples.iter().map(|sample| sample.features.values[at]).collect();
            values.sort_by(f64::total_cmp);
            let groups: Vec<&[f64]> = values.chunk_by(|one, next| one == next).collect();
            let is_number = matches!(column.kind, ColumnKind::Number { .. });
            if groups.len() < 2 || (is_number && groups.len() > FEW_VALUES) {
                continue;
            }
            let often = groups.iter().filter(|group| group.len() >= INDICATED_ROWS_MIN);
            indicators.extend(often.map(|group| Indicator { column: at as u8, value: group[0] }));
        }
        indicators.truncate(INDICATORS_MAX);
        Self { quantities: Quantities::of_schema(schema), indicators }
    }

    /// The values of a row.
    #[inline]
    pub(super) fn values(&self, features: &EncodedRow) -> Values {
        let mut values = Values { quantities: [0.0; QUANTITIES_MAX], indicators: [0.0; INDICATORS_MAX] };
        self.quantities.of(features, &mut values.quantities);
        for (indicator, value) in self.indicators.iter().zip(&mut values.indicators) {
            *value = f64::from(u8::from(features.values[usize::from(indicator.column)] == indicator.value));
        }
        values
    }

    /// All terms, what is simple first.
    pub(super) fn terms(&self, schema: &Schema) -> Vec<Term> {
        let quantities = || (0..self.quantities.len() as u8).zip(self.quantities.iter());
        let indicators = || (0..self.indicators.len() as u8).zip(&self.indicators);
        let is_argument = |column: usize| schema.columns[column].name.as_str().starts_with("arg_");
        let mut terms: Vec<Term> = quantities().map(|(at, _)| Term::Quantity(at)).collect();
        terms.extend(indicators().map(|(at, _)| Term::Indicator(at)));
        let amounts: Vec<u8> = quantities().filter(|(_, quantity)| quantity.amount).map(|(at, _)| at).collect();
        // Arguments change what is done with the input, other words how it is read.
        for arguments in [true, false] {
            for &amount in &amounts {
                let chosen = indicators().filter(|(_, one)| is_argument(usize::from(one.column)) == arguments);
                terms.extend(chosen.map(|(indicator, _)| Term::AmountIf(amount, indicator)));
                let argument = |quantity: &crate::quantities::Quantity| quantity.column().is_some_and(is_argument);
                let numbers = quantities().filter(|(_, quantity)| arguments && argument(quantity));
                terms.extend(numbers.map(|(number, _)| Term::Product(amount, number)));
            }
        }
        terms.truncate(TERMS_MAX);
        terms
    }

    pub(super) fn is_sound(&self, columns: usize) -> bool {
        let indicator = |one: &Indicator| usize::from(one.column) < columns && one.value.is_finite();
        self.quantities.is_sound(columns)
            && self.indicators.len() <= INDICATORS_MAX
            && self.indicators.iter().all(indicator)
    }
}

impl Term {
    #[inline]
    pub(super) fn of(self, values: &Values) -> f64 {
        match self {
            Self::Quantity(at) => values.quantities[usize::from(at)],
            Self::Indicator(at) => values.indicators[usize::from(at)],
            Self::AmountIf(amount, at) => values.quantities[usize::from(amount)] * values.indicators[usize::from(at)],
            Self::Product(amount, at) => values.quantities[usize::from(amount)] * values.quantities[usize::from(at)],
        }
    }

    pub(super) fn is_sound(self, basis: &Basis) -> bool {
        let quantity = |at: u8| usize::from(at) < basis.quantities.len();
        let indicator = |at: u8| usize::from(at) < basis.indicators.len();
        match self {
            Self::Quantity(at) => quantity(at),
            Self::Indicator(at) => indicator(at),
            Self::AmountIf(amount, at) => quantity(amount) && indicator(at),
            Self::Product(amount, at) => quantity(amount) && quantity(at),
        }
    }
}
