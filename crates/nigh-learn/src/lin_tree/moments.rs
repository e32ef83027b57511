//! Sums of squares and products: all that a linear model needs of its rows, and cheap to take a fold out of.

/// The symmetric matrix of sums of weighted products of every two columns, the last of which is what is to be
/// predicted.
#[derive(Clone, Debug)]
pub(super) struct Moments {
    size: usize,
    /// Row by row; the upper half is kept up.
    cells: Vec<f64>,
    /// Rows that went into it.
    pub(super) rows: usize,
}

impl Moments {
    pub(super) fn new(size: usize) -> Self {
        Self { size, cells: vec![0.0; size * size], rows: 0 }
    }

    /// Adds a row of `size` columns.
    pub(super) fn add(&mut self, row: &[f64], weight: f64) {
        for (at, &value) in row.iter().enumerate() {
            if value != 0.0 {
                let weighted = weight * value;
                let cells = &mut self.cells[at * self.size + at..(at + 1) * self.size];
                for (cell, other) in cells.iter_mut().zip(&row[at..]) {
                    *cell += weighted * other;
                }
            }
        }
        self.rows += 1;
    }

    pub(super) fn plus(mut self, other: &Self) -> Self {
        for (cell, more) in self.cells.iter_mut().zip(&other.cells) {
            *cell += more;
        }
        self.rows += other.rows;
        self
    }

    pub(super) fn minus(&self, other: &Self) -> Self {
        let cells = self.cells.iter().zip(&other.cells).map(|(all, part)| all - part).collect();
        Self { size: self.size, cells, rows: self.rows - other.rows }
    }

    /// Both halves, for sweeping.
    pub(super) fn full(&self) -> SweptMoments {
        let mut cells = self.cells.clone();
        for row in 0..self.size {
            for column in 0..row {
                cells[row * self.size + column] = cells[column * self.size + row];
            }
        }
        SweptMoments { size: self.size, cells }
    }
}

/// Moments from which columns have been swept: the last column then holds their coefficients.
#[derive(Clone, Debug)]
pub(super) struct SweptMoments {
    size: usize,
    cells: Vec<f64>,
}

impl SweptMoments {
    pub(super) fn at(&self, row: usize, column: usize) -> f64 {
        self.cells[row * self.size + column]
    }

    /// Goodnight's sweep of one column (American Statistician 33, 1979).
    pub(super) fn sweep(&mut self, pivot: usize) {
        let size = self.size;
        let inverse = 1.0 / self.at(pivot, pivot);
        let pivot_row: Vec<f64> =
            self.cells[pivot * size..(pivot + 1) * size].iter().map(|cell| cell * inverse).collect();
        for row in 0..size {
            let factor = self.at(row, pivot);
            if row == pivot || factor == 0.0 {
                continue;
            }
            let cells = &mut self.cells[row * size..(row + 1) * size];
            for (cell, by) in cells.iter_mut().zip(&pivot_row) {
                *cell -= factor * by;
            }
            cells[pivot] = -factor * inverse;
        }
        self.cells[pivot * size..(pivot + 1) * size].copy_from_slice(&pivot_row);
        self.cells[pivot * size + pivot] = inverse;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sweeping_all_columns_gives_the_least_squares() {
        let mut moments = Moments::new(4);
        for at in 0..20 {
            let (x, z) = (f64::from(at), f64::from(at * at % 7));
            moments.add(&[1.0, x, z, 3.0 + 2.0 * x - 0.5 * z], 1.0 + f64::from(at % 3));
        }
        let mut swept = moments.full();
        for column in 0..3 {
            swept.sweep(column);
        }
        for (at, coefficient) in [3.0, 2.0, -0.5].into_iter().enumerate() {
            assert!((swept.at(at, 3) - coefficient).abs() < 1e-9, "{}", swept.at(at, 3));
        }
        assert!(swept.at(3, 3).abs() < 1e-6, "nothing is left to explain");
    }

    #[test]
    fn a_fold_taken_out_is_as_if_it_had_never_been_in() {
        let row = |at: u32| [1.0, f64::from(at), f64::from(at % 5)];
        let (mut all, mut part, mut rest) = (Moments::new(3), Moments::new(3), Moments::new(3));
        for at in 0..30 {
            all.add(&row(at), 1.0);
            if at % 3 == 0 { part.add(&row(at), 1.0) } else { rest.add(&row(at), 1.0) }
        }
        assert_eq!(all.minus(&part).cells, rest.cells);
        assert_eq!(rest.plus(&part).cells, all.cells);
    }
}
