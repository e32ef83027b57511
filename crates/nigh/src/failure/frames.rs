//! The frames of a stack trace, in the forms of Python, Node.js, Go, Ruby and Java, and which of them are the user's
//! own code. Pure.

/// Where a sandbox has the function's code.
const CODE_ROOT: &str = "/var/task/";
/// Folders in the code that hold other people's packages.
const PACKAGE_FOLDERS: [&str; 5] = ["node_modules", "site-packages", "dist-packages", ".venv", "vendor"];

/// A call that had not returned when the error was raised.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Frame {
    /// The file; below the code's root if it is there.
    path: String,
    line: u64,
    /// The function, if the trace names it.
    function: Option<String>,
    /// The line of source, if the trace has it.
    pub(super) source: Option<String>,
    is_in_code: bool,
}

impl Frame {
    fn new(path: &str, line: u64, function: Option<&str>) -> Self {
        let path = path.strip_prefix("file://").unwrap_or(path);
        let below = path.strip_prefix(CODE_ROOT);
        let function = function.map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned);
        Self { path: below.unwrap_or(path).to_owned(), line, function, source: None, is_in_code: below.is_some() }
    }

    /// `main.py:4`.
    pub(super) fn place(&self) -> String {
        format!("{}:{}", self.path, self.line)
    }

    /// `main.py:4 in read`.
    pub(super) fn place_and_function(&self) -> String {
        match self.function.as_deref() {
            // Python's name for the code of a module itself.
            None | Some("<module>") => self.place(),
            Some(function) => format!("{} in {function}", self.place()),
        }
    }

    fn is_of_package(&self, packages: &[String]) -> bool {
        let first = self.path.split('/').next().unwrap_or_default();
        let module = first.strip_suffix(".py").unwrap_or(first);
        packages.iter().any(|package| package == module)
            || self.path.split('/').any(|folder| PACKAGE_FOLDERS.contains(&folder))
    }
}

/// The frames of a trace, innermost first.
pub(super) fn frames(trace: &[String]) -> Vec<Frame> {
    let mut frames: Vec<Frame> = Vec::new();
    let mut outermost_first = false;
    for line in trace {
        let text = line.trim();
        if let Some(frame) = python_frame(text) {
            outermost_first = true;
            frames.push(frame);
        } else if outermost_first {
            // A line of source, or marks below one.
            if let Some(last) = frames.last_mut()
                && last.source.is_none()
                && text.contains(|c: char| !matches!(c, '^' | '~' | ' '))
            {
                last.source = Some(text.to_owned());
            }
        } else {
            frames.extend(frame_of_call(text).or_else(|| ruby_frame(text)));
        }
    }
    if outermost_first {
        frames.reverse();
    }
    frames
}

/// The frames of the user's own code. If none is in the function's code (a compiled program knows only where it was
/// built), all are the user's.
pub(super) fn of_user<'a>(frames: &'a [Frame], packages: &[String]) -> Vec<&'a Frame> {
    if !frames.iter().any(|frame| frame.is_in_code) {
        return frames.iter().filter(|frame| frame.line > 0 && !frame.path.starts_with('<')).collect();
    }
    frames.iter().filter(|frame| frame.is_in_code && !frame.is_of_package(packages)).collect()
}

/// `File "/var/task/main.py", line 4, in read`; of a syntax error `File "/var/task/main.py" Line 4`.
fn python_frame(text: &str) -> Option<Frame> {
    let (path, rest) = text.strip_prefix("File \"")?.split_once('"')?;
    let rest = rest.trim_start_matches([',', ' ']);
    let rest = rest.strip_prefix("line ").or_else(|| rest.strip_prefix("Line "))?;
    let (line, function) = rest.split_once(", in ").map_or((rest, None), |(line, function)| (line, Some(function)));
    Some(Frame::new(path, line.trim().parse().ok()?, function))
}

/// `at read (/var/task/index.js:3:9)`, `at file:///var/task/index.mjs:3:9`, `com.example.Main.read(Main.java:10)`.
fn frame_of_call(text: &str) -> Option<Frame> {
    let call = text.strip_prefix("at ").map(|call| call.strip_prefix("async ").unwrap_or(call));
    match text.strip_suffix(')').and_then(|text| text.rsplit_once('(')) {
        Some((before, place)) => {
            let function = call.map_or(before, |call| call.rsplit_once('(').map_or(call, |(before, _)| before));
            let (path, line) = path_and_line(place)?;
            Some(Frame::new(path, line, Some(function)))
        }
        None => {
            let (path, line) = path_and_line(call?)?;
            Some(Frame::new(path, line, None))
        }
    }
}

/// ``/var/task/main.rb:3:in `handler'``.
fn ruby_frame(text: &str) -> Option<Frame> {
    let (place, function) = text.split_once(":in ")?;
    let (path, line) = path_and_line(place)?;
    Some(Frame::new(path, line, Some(function.trim_matches(['`', '\'']))))
}

/// The path and line of `PATH:LINE` or `PATH:LINE:COLUMN`.
fn path_and_line(place: &str) -> Option<(&str, u64)> {
    let (before, last) = place.rsplit_once(':')?;
    let last: u64 = last.parse().ok()?;
    match before.rsplit_once(':').and_then(|(path, line)| Some((path, line.parse().ok()?))) {
        Some((path, line)) => Some((path, line)),
        None => Some((before, last)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(trace: &[&str], packages: &[&str]) -> Vec<String> {
        let [trace, packages] = [trace, packages].map(|of| of.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>());
        let frames = frames(&trace);
        of_user(&frames, &packages).iter().map(|frame| frame.place_and_function()).collect()
    }

    #[test]
    fn pythons_innermost_frame_comes_first_with_its_source() {
        let trace = [
            "  File \"/var/task/main.py\", line 12, in handle",
            "    return read(event)",
            "  File \"/var/task/main.py\", line 4, in read",
            "    b, k = event[\"bucket\"], event[\"key\"]",
            "           ~~~~~^^^^^^^^^^",
        ];
        assert_eq!(places(&trace, &[]), ["main.py:4 in read", "main.py:12 in handle"]);
        let all = frames(&trace.map(str::to_owned));
        assert_eq!(all[0].source.as_deref(), Some("b, k = event[\"bucket\"], event[\"key\"]"));
        let syntax = ["  File \"/var/task/main.py\" Line 3", "    def x(:"];
        assert_eq!(places(&syntax, &[]), ["main.py:3"]);
    }

    #[test]
    fn frames_of_packages_of_the_interpreter_and_of_layers_are_not_the_users() {
        let trace = [
            "File \"/var/task/main.py\", line 5, in handle",
            "File \"/var/task/own/read.py\", line 7, in read",
            "File \"/var/task/requests/api.py\", line 59, in get",
            "File \"/var/task/six.py\", line 1, in reraise",
            "File \"/opt/python/layered.py\", line 1, in f",
            "File \"/usr/lib/python3.11/json/decoder.py\", line 355, in raw_decode",
            "File \"<frozen importlib._bootstrap>\", line 1, in _find",
        ];
        assert_eq!(places(&trace, &["requests", "six"]), ["own/read.py:7 in read", "main.py:5 in handle"]);
    }

    #[test]
    fn other_languages_name_the_innermost_frame_first() {
        let node = [
            "TypeError: no",
            "    at Object.read [as x] (/var/task/lib/read.js:3:9)",
            "    at async handler (file:///var/task/index.mjs:7:5)",
            "    at /var/task/node_modules/sdk/a.js:1:2",
            "    at process.processTicksAndRejections (node:internal/process/task_queues:95:5)",
        ];
        assert_eq!(places(&node, &[]), ["lib/read.js:3 in Object.read [as x]", "index.mjs:7 in handler"]);
        assert_eq!(places(&["at handle (app/main.go:7)"], &[]), ["app/main.go:7 in handle"]);
        assert_eq!(places(&["/var/task/main.rb:3:in `handler'"], &[]), ["main.rb:3 in handler"]);
        assert_eq!(places(&["com.example.Main.read(Main.java:10)"], &[]), ["Main.java:10 in com.example.Main.read"]);
    }

    #[test]
    fn what_is_no_frame_is_passed_over() {
        assert!(places(&["", "at", "at (", "File \"", "File \"x\", line y", ":in ", "a:b", "(1)"], &[]).is_empty());
    }
}
