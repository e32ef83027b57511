//! The names that a Python module has at its top, read line by line. Pure.
//!
//! This finds what is defined, imported or assigned outside of functions and classes. It takes too many names rather than
//! too few, so that no working handler is refused: text in a multi-line string counts, and a module that makes names in
//! ways that only Python can follow is `open`.

/// A module that has one of these words may have any name.
const OPEN: [&str; 6] = ["import *", "globals()", "__getattr__", "exec(", "setattr(", "vars("];
/// The beginnings of lines that are no part of an earlier one.
const DEFINITIONS: [&str; 4] = ["def ", "async def ", "class ", "@"];
/// The parameters of a handler: event and context.
const HANDLER_PARAMETERS: usize = 2;

/// The names of a module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PythonNames {
    /// Functions with the number of their parameters, in their order.
    functions: Vec<(String, usize)>,
    /// What else has a name: classes, variables, imports.
    others: Vec<String>,
    is_open: bool,
}

impl PythonNames {
    /// The names of the module with this text.
    pub(crate) fn of(source: &str) -> Self {
        let mut names = Self { is_open: OPEN.iter().any(|word| source.contains(word)), ..Self::default() };
        // True within a function or class, whose names are its own.
        let mut is_inside = false;
        let mut lines = source.lines();
        while let Some(line) = lines.next() {
            let is_indented = line.starts_with([' ', '\t']);
            let mut statement = without_remark(line).to_owned();
            if statement.is_empty() || (is_indented && is_inside) {
                continue;
            }
            // A list of names or parameters may go on over lines.
            while opens_more(&statement) {
                let next = lines.next();
                // A bracket in a text: this reader has lost its place.
                names.is_open |= next.is_none_or(|next| DEFINITIONS.iter().any(|word| next.starts_with(word)));
                let Some(next) = next else { break };
                statement.push(' ');
                statement.push_str(without_remark(next));
            }
            is_inside = names.take(&statement) && !is_indented;
        }
        names
    }

    /// True if the module has the name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.functions.iter().any(|(function, _)| function == name) || self.others.iter().any(|other| other == name)
    }

    /// True if the module may have any name.
    pub(crate) const fn is_open(&self) -> bool {
        self.is_open
    }

    /// Its functions.
    pub(crate) fn functions(&self) -> Vec<&str> {
        self.functions.iter().map(|(name, _)| name.as_str()).collect()
    }

    /// Its functions that may be handlers by their parameters.
    pub(crate) fn handlers(&self) -> Vec<&str> {
        let handlers = self.functions.iter().filter(|(_, parameters)| *parameters == HANDLER_PARAMETERS);
        handlers.map(|(name, _)| name.as_str()).collect()
    }

    /// Takes the names of a statement; true if it begins a function or class.
    fn take(&mut self, statement: &str) -> bool {
        let statement = statement.strip_prefix("async ").unwrap_or(statement);
        if let Some(rest) = statement.strip_prefix("def ") {
            let (name, parameters) = rest.split_once('(').unwrap_or((rest, ""));
            self.functions.push((name.trim().to_owned(), parameters_of(parameters)));
            return true;
        }
        if let Some(rest) = statement.strip_prefix("class ") {
            self.others.extend(identifier(rest));
            return true;
        }
        if statement.starts_with("from ") || statement.starts_with("import ") {
            let list = statement.rsplit_once("import ").map_or("", |(_, list)| list);
            for one in list.trim_matches(['(', ')']).split(',') {
                let name = one.rsplit_once(" as ").map_or(one, |(_, name)| name);
                self.others.extend(identifier(name));
            }
        } else if let Some((names, _)) = statement.split_once('=') {
            for one in names.split(',') {
                self.others.extend(identifier(one));
            }
        }
        false
    }
}

/// The line without what follows a `#`, if that is surely not in a text.
fn without_remark(line: &str) -> &str {
    let code = if line.contains(['"', '\'']) { line } else { line.split('#').next().unwrap_or_default() };
    code.trim()
}

/// True if a bracket of the statement is open.
fn opens_more(statement: &str) -> bool {
    let count = |brackets: [char; 3]| statement.matches(brackets).count();
    let starts = ["def ", "async def ", "from ", "import "];
    starts.iter().any(|start| statement.starts_with(start)) && count(['(', '[', '{']) > count([')', ']', '}'])
}

/// The number of parameters in what stands behind the opening bracket; those with a default value do not count, nor do
/// `*args` and `**kwargs`.
fn parameters_of(rest: &str) -> usize {
    let (mut depth, mut parts, mut part) = (0, Vec::new(), String::new());
    for c in rest.chars() {
        match c {
            ')' if depth == 0 => break,
            ',' if depth == 0 => parts.push(std::mem::take(&mut part)),
            _ => {
                match c {
                    '(' | '[' | '{' => depth += 1,
                    ')' | ']' | '}' => depth -= 1,
                    _ => {}
                }
                part.push(c);
            }
        }
    }
    parts.push(part);
    let counts = |part: &&String| {
        let part = part.trim();
        !part.is_empty() && !part.starts_with(['*', '/']) && !part.contains('=')
    };
    parts.iter().filter(counts).count()
}

/// The identifier that `text` begins with.
fn identifier(text: &str) -> Option<String> {
    let name: String = text.trim().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    (!name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_defined_imported_or_assigned_at_the_top_is_a_name() {
        let names = PythonNames::of(
            "import os, json as j\nfrom a.b import (\n    one,  # a remark (\n    two as second,\n)\n\
             LEVEL: int = 3\nx, y = 1, 2\nclass Handler(Base):\n    def inside(self): pass\n\n\
             try:\n    from fast import go\nexcept ImportError:\n    go = None\n\
             @wrapped\nasync def handle(event,\n                 context=None, *, more=[1, 2]):\n    hidden = 1\n",
        );
        for name in ["os", "j", "one", "second", "LEVEL", "x", "y", "Handler", "go", "handle"] {
            assert!(names.has(name), "{name}: {names:?}");
        }
        for name in ["inside", "hidden", "two", "Base", "more"] {
            assert!(!names.has(name), "{name}: {names:?}");
        }
        assert!(!names.is_open());
    }

    #[test]
    fn a_handler_takes_an_event_and_a_context() {
        let names = PythonNames::of(
            "def helper(a):\n  pass\ndef go(event: dict[str, int], context) -> None:\n  pass\n\
             def three(a, b, c=1): pass\ndef all(*args, **kwargs): pass\n",
        );
        assert_eq!(names.functions(), ["helper", "go", "three", "all"]);
        assert_eq!(names.handlers(), ["go", "three"]);
    }

    #[test]
    fn a_module_that_makes_names_in_other_ways_may_have_any() {
        let lost = "def one(text='('):\n    pass\n\ndef handle(event, context): pass\n";
        for source in ["from lib import *\n", "globals()['handle'] = 1\n", "def __getattr__(name): ...\n", lost] {
            assert!(PythonNames::of(source).is_open(), "{source}");
        }
        assert_eq!(PythonNames::of(""), PythonNames::default());
    }
}
