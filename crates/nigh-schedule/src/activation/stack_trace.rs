//! The stack trace in a runtime's error object, as lines of bounded length: pure.
//!
//! Each language's runtime client has a form of its own: Python sends texts of two lines, `File "PATH", line N, in NAME`
//! and the source; Node.js and Ruby send texts of one line; Go sends objects of path, line and label.

use serde_json::Value;

/// The fields that runtime clients use: Python, Ruby, Java and Go the first, Node.js the second.
const FIELDS: [&str; 2] = ["stackTrace", "trace"];
/// The most lines of a record.
const LINES_MAX: usize = 64;
/// The most characters of a line.
const LINE_CHARS_MAX: usize = 300;

/// The lines of the stack trace in `error`. If they are too many, the middle is left out: the first are the handler's,
/// or, where the innermost frame stands first, those where it failed; the last are the other end.
#[must_use]
pub fn lines(error: &Value) -> Vec<String> {
    let frames = FIELDS.iter().find_map(|field| error.get(field)?.as_array());
    let mut lines: Vec<String> = frames.into_iter().flatten().flat_map(frame_lines).collect();
    if lines.len() > LINES_MAX {
        let half = LINES_MAX / 2;
        lines.drain(half..lines.len() - half);
    }
    lines
}

fn frame_lines(frame: &Value) -> Vec<String> {
    let shortened = |line: &str| line.chars().take(LINE_CHARS_MAX).collect();
    if let Some(text) = frame.as_str() {
        return text.lines().map(str::trim_end).filter(|line| !line.is_empty()).map(shortened).collect();
    }
    let text = |name: &str| frame.get(name).and_then(Value::as_str).unwrap_or_default();
    let Some(line) = frame.get("line").and_then(Value::as_u64) else { return Vec::new() };
    vec![shortened(&format!("at {} ({}:{line})", text("label"), text("path")))]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_frames_of_each_runtime_become_lines() {
        let python =
            json!({ "stackTrace": ["  File \"/var/task/app.py\", line 3, in handler\n    return {}[1]\n", ""] });
        assert_eq!(lines(&python), ["  File \"/var/task/app.py\", line 3, in handler", "    return {}[1]"]);
        let node = json!({ "trace": ["Error: no", "    at handler (/var/task/index.js:3:9)"] });
        assert_eq!(lines(&node), ["Error: no", "    at handler (/var/task/index.js:3:9)"]);
        let go = json!({ "stackTrace": [{ "path": "app/main.go", "line": 7, "label": "handle" }] });
        assert_eq!(lines(&go), ["at handle (app/main.go:7)"]);
    }

    #[test]
    fn what_is_no_trace_gives_no_lines_and_a_long_one_loses_its_middle() {
        for none in [json!(null), json!("text"), json!({ "stackTrace": 7 }), json!({ "stackTrace": [7, {}, null] })] {
            assert!(lines(&none).is_empty(), "{none}");
        }
        let long: Vec<String> = (0..1000).map(|n| format!("frame {n} {}", "x".repeat(1000))).collect();
        let kept = lines(&json!({ "stackTrace": long }));
        assert_eq!(kept.len(), LINES_MAX);
        assert!(kept.iter().all(|line| line.chars().count() <= LINE_CHARS_MAX));
        assert!(kept[0].starts_with("frame 0 ") && kept[LINES_MAX - 1].starts_with("frame 999 "));
    }
}
