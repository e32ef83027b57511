//! CSV (RFC 4180) as training sets are kept in: a header line and rows, within limits. What was quoted is known to be
//! text.

use thiserror::Error;

/// Columns of a table at most.
pub const CSV_COLUMNS_MAX: usize = 64;
/// Bytes of one field at most.
pub const CSV_FIELD_BYTES_MAX: usize = 4096;

/// A field as it stood in the file, without its quotes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CsvField {
    /// The text.
    pub text: String,
    /// It stood in quotes: a word, even if it looks like a number.
    pub quoted: bool,
}

/// A table: every row has as many fields as the header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CsvTable {
    /// The names of the columns, each once.
    pub header: Vec<String>,
    /// The rows.
    pub rows: Vec<Vec<CsvField>>,
}

/// Why a text is no table.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CsvError {
    /// Nothing in it.
    #[error("there is no header line; the first line names the columns")]
    Empty,
    /// Two columns have one name.
    #[error("the header names {name:?} twice")]
    Twice {
        /// Which.
        name: String,
    },
    /// A row is longer or shorter than the header.
    #[error("line {line} has {fields} fields where the header has {columns}")]
    Fields {
        /// Where.
        line: usize,
        /// What it has.
        fields: usize,
        /// What the header has.
        columns: usize,
    },
    /// A quote where none may be, or none where one must be.
    #[error("line {line}: a quote that does not begin or end its field; double those inside")]
    Quote {
        /// Where.
        line: usize,
    },
    /// Too much of something.
    #[error("line {line}: more than {limit} {what}")]
    TooMuch {
        /// Where.
        line: usize,
        /// How much may be.
        limit: usize,
        /// Of what.
        what: &'static str,
    },
}

impl CsvTable {
    /// Reads a table of at most `rows_max` rows.
    pub fn read(text: &str, rows_max: usize) -> Result<Self, CsvError> {
        let mut reader = Reader { rest: text, line: 1 };
        let header = reader.record()?.ok_or(CsvError::Empty)?;
        let header: Vec<String> = header.into_iter().map(|field| field.text).collect();
        if let Some((_, name)) = header.iter().enumerate().find(|(at, name)| header[..*at].contains(name)) {
            return Err(CsvError::Twice { name: name.clone() });
        }
        let mut rows = Vec::new();
        loop {
            let line = reader.line;
            let Some(row) = reader.record()? else { break };
            if row.len() != header.len() {
                return Err(CsvError::Fields { line, fields: row.len(), columns: header.len() });
            }
            if rows.len() == rows_max {
                return Err(CsvError::TooMuch { line, limit: rows_max, what: "rows" });
            }
            rows.push(row);
        }
        Ok(Self { header, rows })
    }

    /// The place of a column.
    #[must_use]
    pub fn column(&self, name: &str) -> Option<usize> {
        self.header.iter().position(|known| known == name)
    }
}

struct Reader<'t> {
    rest: &'t str,
    line: usize,
}

impl Reader<'_> {
    /// The next record; none at the end, where an empty line may stand.
    fn record(&mut self) -> Result<Option<Vec<CsvField>>, CsvError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let mut fields = Vec::new();
        loop {
            if fields.len() == CSV_COLUMNS_MAX {
                return Err(CsvError::TooMuch { line: self.line, limit: CSV_COLUMNS_MAX, what: "columns" });
            }
            let field = if self.rest.starts_with('"') { self.quoted()? } else { self.plain()? };
            if field.text.len() > CSV_FIELD_BYTES_MAX {
                return Err(CsvError::TooMuch {
                    line: self.line,
                    limit: CSV_FIELD_BYTES_MAX,
                    what: "bytes in a field",
                });
            }
            fields.push(field);
            if let Some(rest) = self.rest.strip_prefix(',') {
                self.rest = rest;
                continue;
            }
            let ended = self.rest.strip_prefix("\r\n").or_else(|| self.rest.strip_prefix('\n'));
            match ended {
                Some(rest) => self.rest = rest,
                None if self.rest.is_empty() => {}
                None => return Err(CsvError::Quote { line: self.line }),
            }
            self.line += 1;
            return Ok(Some(fields));
        }
    }

    fn plain(&mut self) -> Result<CsvField, CsvError> {
        let end = self.rest.find([',', '\n']).unwrap_or(self.rest.len());
        let text = &self.rest[..end];
        // A carriage return is the line's, if the line ends here.
        let text = if self.rest[end..].starts_with('\n') { text.strip_suffix('\r').unwrap_or(text) } else { text };
        if text.contains('"') {
            return Err(CsvError::Quote { line: self.line });
        }
        let field = CsvField { text: text.to_owned(), quoted: false };
        self.rest = &self.rest[text.len()..];
        Ok(field)
    }

    fn quoted(&mut self) -> Result<CsvField, CsvError> {
        let mut text = String::new();
        let mut rest = &self.rest[1..];
        loop {
            let end = rest.find('"').ok_or(CsvError::Quote { line: self.line })?;
            text.push_str(&rest[..end]);
            rest = &rest[end + 1..];
            match rest.strip_prefix('"') {
                Some(after) => {
                    text.push('"');
                    rest = after;
                }
                None => break,
            }
        }
        self.line += text.matches('\n').count();
        self.rest = rest;
        Ok(CsvField { text, quoted: true })
    }
}

/// A word as a field: always in quotes.
#[must_use]
pub fn quoted(word: &str) -> String {
    format!("\"{}\"", word.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn quotes_commas_and_line_ends_inside_a_field_are_read() {
        let table = CsvTable::read("a,b\r\n1,\"x,\"\"y\"\"\nz\"\n,2", 10).unwrap();
        assert_eq!(table.header, ["a", "b"]);
        assert_eq!(table.rows[0][1], CsvField { text: "x,\"y\"\nz".to_owned(), quoted: true });
        assert_eq!((table.rows[1][0].text.as_str(), table.rows[1][1].text.as_str()), ("", "2"));
        assert_eq!(table.column("b"), Some(1));
    }

    #[test]
    fn what_is_no_table_is_refused_with_its_line() {
        let refused = |text: &str| CsvTable::read(text, 2).unwrap_err();
        assert_eq!(refused(""), CsvError::Empty);
        assert_eq!(refused("a,a\n"), CsvError::Twice { name: "a".to_owned() });
        assert_eq!(refused("a,b\n1,2\n3\n"), CsvError::Fields { line: 3, fields: 1, columns: 2 });
        assert_eq!(refused("a\n\"x"), CsvError::Quote { line: 2 });
        assert_eq!(refused("a\n\"x\"y\n"), CsvError::Quote { line: 2 });
        assert_eq!(refused("a\nx\"y\n"), CsvError::Quote { line: 2 });
        assert!(matches!(refused("a\n1\n2\n3\n"), CsvError::TooMuch { line: 4, limit: 2, .. }));
        let wide = vec!["x"; CSV_COLUMNS_MAX + 1].join(",");
        assert!(matches!(refused(&wide), CsvError::TooMuch { .. }));
        assert!(matches!(refused(&format!("a\n{}\n", "x".repeat(5000))), CsvError::TooMuch { .. }));
    }

    proptest! {
        #[test]
        fn what_is_written_in_quotes_reads_back(words in prop::collection::vec(".*", 1..5)) {
            let header: Vec<String> = (0..words.len()).map(|at| format!("c{at}")).collect();
            let line: Vec<String> = words.iter().map(|word| quoted(word)).collect();
            let text = format!("{}\n{}\n", header.join(","), line.join(","));
            let table = CsvTable::read(&text, 1).unwrap();
            let read: Vec<&str> = table.rows[0].iter().map(|field| field.text.as_str()).collect();
            prop_assert_eq!(read, words.iter().map(String::as_str).collect::<Vec<_>>());
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[a-b,\"\r\n]{0,60}") {
            if let Ok(table) = CsvTable::read(&text, 8) {
                prop_assert!(table.rows.iter().all(|row| row.len() == table.header.len()));
            }
        }
    }
}
