//! What `nigh import` says: what a stack has, what is done, and what is left out.

use nigh_terms::ByteSize;

use super::deployment::Imported;
use crate::error::CliError;
use crate::output::{self, Colour, coloured};
use crate::sam::{LayerRef, LeftOut, Stack, StackFunction};

/// Lists a stack.
pub(super) fn stack(stack: &Stack) -> Result<(), CliError> {
    let mut table = output::table(&[]);
    for bucket in &stack.buckets {
        table.add_row(["bucket".to_owned(), bucket.to_string()]);
    }
    for layer in &stack.layers {
        table.add_row(["layer".to_owned(), layer.name.to_string()]);
    }
    for function in &stack.functions {
        table.add_row(["function".to_owned(), described(function)]);
        for part in parts(function) {
            table.add_row([String::new(), part]);
        }
    }
    output::print_table(&table)?;
    left_out(stack)
}

/// Says what was done.
pub(super) fn done(done: &Imported, stack: &Stack) -> Result<(), CliError> {
    for bucket in done.buckets.iter().filter(|bucket| bucket.is_new) {
        output::line(format_args!("made bucket {}", bucket.name))?;
    }
    for layer in done.layers.iter().filter(|layer| layer.is_new) {
        output::line(format_args!("published {}", layer.arn))?;
    }
    for function in &done.functions {
        let url = function.url.as_ref().map(|url| format!(", {url}")).unwrap_or_default();
        output::line(format_args!("{} {}{url}", function.done, function.name))?;
    }
    left_out(stack)
}

/// A function in one line.
fn described(function: &StackFunction) -> String {
    let settings = [
        function.runtime.clone(),
        function.handler.as_ref().map(|handler| format!("handler {handler}")),
        function.memory_mib.map(|mib| ByteSize::mib(mib).to_string()),
        function.timeout_s.map(|seconds| format!("{seconds} s")),
        function.reserved.map(|count| format!("{count} reserved")),
        function.url.map(|access| format!("URL {}", access.word())),
    ];
    let settings: Vec<String> = settings.into_iter().flatten().collect();
    format!("{}: {}", function.name, settings.join(", "))
}

/// What hangs on a function, each in a line.
fn parts(function: &StackFunction) -> Vec<String> {
    let names: Vec<&str> = function.environment.keys().map(String::as_str).collect();
    let environment = (!names.is_empty()).then(|| format!("environment {}", names.join(", ")));
    let layers = function.layers.iter().map(|layer| match layer {
        LayerRef::Own(name) | LayerRef::Arn(name) => format!("layer {name}"),
    });
    let triggers = function.triggers.iter().map(|trigger| format!("trigger {trigger}"));
    let schedules = function.schedules.iter().map(|schedule| format!("schedule {}: {schedule}", schedule.name));
    environment.into_iter().chain(layers).chain(triggers).chain(schedules).collect()
}

/// Lists what is left out: first what the application misses.
fn left_out(stack: &Stack) -> Result<(), CliError> {
    let (missed, others): (Vec<&LeftOut>, Vec<&LeftOut>) = stack.left_out.iter().partition(|one| one.is_missed);
    for (heading, colour, all) in [("left out:", Colour::Yellow, missed), ("not needed here:", Colour::Dim, others)] {
        if all.is_empty() {
            continue;
        }
        output::line(coloured(colour, heading))?;
        let mut table = output::table(&[]);
        for LeftOut { what, why, .. } in all {
            table.add_row([format!("  {what}"), why.clone()]);
        }
        output::print_table(&table)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use nigh_node::client::TriggerFilter;
    use nigh_terms::{BucketName, FunctionName};

    use super::*;
    use crate::deploy::{Trigger, UrlAccess};
    use crate::sam::{StackCode, StackSchedule};

    #[test]
    fn a_function_is_told_with_its_settings_and_what_hangs_on_it() {
        let mut function = StackFunction::new("F", FunctionName::new("hello").unwrap(), StackCode::Path("src".into()));
        assert_eq!(described(&function), "hello: ");
        function.runtime = Some("python3.12".to_owned());
        function.handler = Some("app.handler".to_owned());
        (function.memory_mib, function.timeout_s, function.reserved) = (Some(256), Some(30), Some(2));
        function.url = Some(UrlAccess::Public);
        let words = "hello: python3.12, handler app.handler, 256 MiB, 30 s, 2 reserved, URL public";
        assert_eq!(described(&function), words);
        function.environment = [("LEVEL".to_owned(), "secret".to_owned())].into();
        function.layers = vec![LayerRef::Own("Words".to_owned())];
        let bucket = BucketName::new("photos").unwrap();
        function.triggers = vec![Trigger { bucket, filter: TriggerFilter::created("in/") }];
        function.schedules = vec![StackSchedule {
            name: "often".to_owned(),
            expression: "rate(5 minutes)".to_owned(),
            timezone: None,
            input: None,
            description: None,
            enabled: true,
        }];
        assert_eq!(
            parts(&function),
            ["environment LEVEL", "layer Words", "trigger photos/in/", "schedule often: rate(5 minutes)"]
        );
    }
}
